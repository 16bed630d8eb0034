# SPDX-License-Identifier: BSD-3-Clause
"""The samples of a data set that are this rank's, in the order that torch would
choose."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from operator import index

import numpy as np

from ..groups.world import get_rank, get_world_size

__all__ = ["DistributedSampler"]


class DistributedSampler:
    """The indices of the samples of one rank, the same as those of torch's class.

    Sample i of the order of an epoch goes to rank i % `num_replicas`. All ranks get the
    same number of samples. From 214 million samples on, the order differs from torch's.

    Args:
        dataset: An object that has a length.
        num_replicas: The number of ranks; None is the size of the default group.
        rank: The rank; None is that in the default group.
        shuffle: If True, the order is a different one in each epoch; see `set_epoch`.
        seed: The seed of the orders, to which the number of the epoch is added; the
            same on all ranks.
        drop_last: If True, samples at the end of the order are left out to give all
            ranks the same number; otherwise samples from its beginning are repeated.

    Raises:
        ValueError: There is no default group, or the rank is out of range.

    Example:
        >>> from distlite.data_parallel import DistributedSampler
        >>> sampler = DistributedSampler(range(6), shuffle=False)
        >>> list(sampler) == [[0, 2, 4], [1, 3, 5]][rank]
        True
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= index(self.rank) < index(self.num_replicas):
            raise ValueError(
                f"Invalid rank {self.rank}, rank should be in the interval "
                f"[0, {self.num_replicas - 1}]"
            )
        self.dataset = dataset
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        whole, rest = divmod(len(dataset), self.num_replicas)
        self.num_samples = whole + (1 if rest and not drop_last else 0)
        self.total_size = self.num_samples * self.num_replicas

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name != "dataset"
        )
        return f"{type(self).__name__}({fields})"

    def __iter__(self) -> Iterator[int]:
        """This rank's indices of the epoch, `num_samples` of them."""
        count = len(self.dataset)
        missing = self.total_size - count
        if missing > 0 if self.drop_last else missing < 0:
            raise AssertionError(
                f"the data set has {count} samples now, which does not fit the "
                f"{self.total_size} indices of all ranks; make a new sampler"
            )
        if self.shuffle:
            order = permutation(count, self.seed + self.epoch)
        else:
            order = list(range(count))
        if missing > 0 and count > 0:
            order += (order * -(-missing // count))[:missing]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration.

        Without it all epochs have the same order.

        Args:
            epoch: The number of the epoch.

        Example:
            >>> from distlite.data_parallel import DistributedSampler
            >>> sampler = DistributedSampler(range(6))
            >>> sampler.set_epoch(3)
            >>> len(list(sampler))
            3
        """
        self.epoch = epoch


def permutation(count: int, seed: int) -> list[int]:
    """Returns torch.randperm() for a generator of that seed, -2**63 to 2**64 - 1, and
    fewer than (2**32 - 1) // 20 numbers.

    It takes about 0.2 us for each number.
    """
    seed = index(seed)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"the seed must fit into 64 bits: {seed}")
    # The generator looks at the lower half only, of negative ones in two's complement.
    source = np.random.RandomState(seed & 0xFFFFFFFF)
    order = list(range(count))
    if count < 2:
        return order
    # Every number changes places with itself or a later one.
    words = np.frombuffer(source.bytes(4 * (count - 1)), "<u4")
    steps = words % np.arange(count, 1, -1, dtype=np.uint32)
    for i, step in enumerate(steps.tolist()):
        j = i + step
        order[i], order[j] = order[j], order[i]
    return order
