# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of test_log_matrix.py do: everything that the log has a line for."""

import sys

import numpy as np

import distlite as dist
from distlite.data_parallel import GradientReducer

rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
dist.all_reduce(np.ones(3, np.float32))
# In another order than the reducer expects.
reducer = GradientReducer({"weight": np.ones(2), "bias": np.ones(1)})
reducer.ready("weight", np.ones(2))
reducer.ready("bias", np.ones(1))
reducer.finish()
dist.destroy_process_group()
