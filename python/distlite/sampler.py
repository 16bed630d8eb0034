# SPDX-License-Identifier: BSD-3-Clause
"""Which samples of a data set are this rank's, in the order that torch would choose."""

from __future__ import annotations

from operator import index

from .world import get_rank, get_world_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    import numpy as np

__all__ = ["DistributedSampler"]

# From here on torch goes through the numbers the other way round.
_LARGE = (2**32 - 1) // 20


class DistributedSampler:
    """The indices of one rank's samples; index-equal to torch's class of this name.

    `dataset` is whatever has a length.  Sample i of an epoch's order goes to rank
    i % `num_replicas`.  All ranks get equally many: what does not come out even is
    filled up with samples from the order's beginning, or, with `drop_last`, left out at
    its end.  With `shuffle` the order is another one in each epoch, made of `seed` plus
    the epoch, which are the same on all ranks; call set_epoch() before each.

    `num_replicas` and `rank` are the default group's unless given, which is a
    ValueError without a default group, as is a `rank` not below `num_replicas`.
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
        """Chooses the order of the next iteration.  Without it all epochs are alike."""
        self.epoch = epoch


def permutation(count: int, seed: int) -> list[int]:
    """What torch.randperm() gives with a generator of that seed, -2**63 to 2**64 - 1.

    Takes some 0.2 us a number.
    """
    import numpy as np

    seed = index(seed)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"a seed has 64 bits: {seed}")
    # The generator looks at the lower half only, of negative ones in two's complement.
    source = np.random.RandomState(seed & 0xFFFFFFFF)
    shuffle = _shuffle if count < _LARGE else _shuffle_large
    return shuffle(count, source) if count > 1 else list(range(count))


def _shuffle(count: int, source: np.random.RandomState) -> list[int]:
    """Every number changes places with itself or one behind it."""
    import numpy as np

    order = list(range(count))
    words = np.frombuffer(source.bytes(4 * (count - 1)), "<u4")
    steps = words % np.arange(count, 1, -1, dtype=np.uint32)
    for i, step in enumerate(steps.tolist()):
        j = i + step
        order[i], order[j] = order[j], order[i]
    return order


def _shuffle_large(count: int, source: np.random.RandomState) -> list[int]:
    """Every number takes a place up to its own; who was there moves to its own."""
    import numpy as np

    order = list(range(count))
    words = np.frombuffer(source.bytes(8 * count), "<u4").astype(np.uint64)
    wide = words[0::2] << np.uint64(32) | words[1::2]
    wide %= np.arange(1, count + 1, dtype=np.uint64)
    # Not tolist(): there may be no room for another list of so many.
    for i, j in enumerate(map(int, wide)):
        order[i] = order[j]
        order[j] = i
    return order
