# SPDX-License-Identifier: BSD-3-Clause
"""Training on several ranks, each with samples of its own and the same parameters.

`DistributedSampler` deals out the samples, `GradientReducer` averages the gradients
while the backward pass still computes others.
"""

from .parallel.gradient_reducer import GradientReducer, ReducerStatistics
from .parallel.sampler import DistributedSampler

__all__ = ["DistributedSampler", "GradientReducer", "ReducerStatistics"]

for _public in (DistributedSampler, GradientReducer, ReducerStatistics):
    _public.__module__ = __name__


def __dir__() -> list[str]:
    return __all__
