# SPDX-License-Identifier: BSD-3-Clause
"""Training on several ranks, each with samples of its own and the same parameters.

`DistributedSampler` deals out the samples, `GradientReducer` averages the gradients
while the backward pass still computes others.
"""

# sampler           which samples are whose
# gradient_reducer  means of gradients while backward goes on
# gradient_buckets  the arrays that travel together
# gradient_check    whether all ranks have the same parameters and gradients

from .gradient_reducer import GradientReducer
from .sampler import DistributedSampler

__all__ = ["DistributedSampler", "GradientReducer"]

for _public in (DistributedSampler, GradientReducer):
    _public.__module__ = __name__
