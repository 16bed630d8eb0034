# SPDX-License-Identifier: BSD-3-Clause
"""Ranks laid out in a grid, and what each exchanges with its neighbours.

The messages go through a group of the grid's own, so they meet no other messages.  The
tag of each is the place, among the sender's neighbours, that it is for.  Where a
dimension has one or two ranks and wraps around, two places may be the same rank, or
this one, for which nothing is sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

from ._C import ProcessGroup, Work, _exchange, all_gather_object, irecv, isend
from .groups.p2p import P2POp, batch_isend_irecv
from .groups.regroup import split
from .groups.world import info_of, world

__all__ = ["Cartesian"]


class Cartesian:
    """The ranks of a group, laid out in a grid.

    All ranks of the group construct it, with the same arguments. Ranks fill the grid in
    the order of the elements of a C array. The methods use ranks in the grid's own
    group, `group`; in a grid of the default group, these are the global ranks. `dims`
    and `periods` are tuples, and `coords` are the coordinates of this rank.

    The neighbours of a rank have places, numbered as in MPI: place `2 * d` is the
    neighbour with the lower coordinate along dimension `d`, place `2 * d + 1` the one
    with the higher coordinate. At the end of a dimension that does not wrap around
    there is no neighbour.

    Args:
        dims: The number of ranks along each dimension. Zeros are replaced by numbers
            that are as equal as possible and give each rank of the group a place.
        periods: Whether each dimension wraps around, so that its last rank and its
            first one are neighbours; a single value is for all dimensions.
        group: The group; None is the default group.

    Raises:
        TypeError: A dimension is not an integer, or a period not a bool.
        ValueError: The grid does not have one place for each rank of the group, the
            zeros cannot be replaced, or the ranks passed different arguments.
        DistBackendError: A rank failed, or did not call it within the group's timeout.

    Example:
        >>> grid = dist.Cartesian((0, 1), periods=True)
        >>> grid.dims, grid.coords == (rank, 0)
        ((2, 1), True)
        >>> line = dist.Cartesian(2)
        >>> line.neighbours == [(None, 1), (0, None)][rank]
        True
    """

    def __init__(
        self,
        dims: int | Sequence[int],
        periods: bool | Sequence[bool] = False,
        group: ProcessGroup | None = None,
    ) -> None:
        parent = world.require_default() if group is None else group
        info_of(parent)
        self.dims, self.periods = _checked(dims, periods, parent.size())
        _compare(parent, self.dims, self.periods)
        made = split(0, 0, parent, parent.timeout, "cartesian")
        assert made is not None
        self.group = made
        self.coords = self.coords_of(made.rank())
        self._neighbours = tuple(
            rank for d in range(len(self.dims)) for rank in self.shift(d)
        )
        every_place = tuple(range(2 * len(self.dims)))
        self._all_peers = self._peers_at(every_place)
        # Where this rank is its own neighbour.
        self._own_places = tuple(
            place for place in every_place if self._neighbours[place] == made.rank()
        )

    def __repr__(self) -> str:
        return (
            f"Cartesian(dims={self.dims}, periods={self.periods}, coords={self.coords})"
        )

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Returns the coordinates of a rank; ValueError if it is not in the grid."""
        size = math.prod(self.dims)
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not in the grid of {size}")
        coords = []
        for length in reversed(self.dims):
            rank, at = divmod(rank, length)
            coords.append(at)
        return tuple(reversed(coords))

    def rank_of(self, coords: Sequence[int]) -> int | None:
        """Returns the rank at these coordinates, or None outside of the grid.
        Coordinates wrap around in periodic dimensions.
        """
        if len(coords) != len(self.dims):
            raise ValueError(
                f"{len(coords)} coordinates for a grid of {len(self.dims)} dimensions"
            )
        rank = 0
        for at, length, wraps in zip(coords, self.dims, self.periods, strict=True):
            if not wraps and not 0 <= at < length:
                return None
            rank = rank * length + at % length
        return rank

    def shift(
        self, dimension: int, displacement: int = 1
    ) -> tuple[int | None, int | None]:
        """Returns the source and the destination of a move by `displacement` along a
        dimension; None for one that would be outside of the grid."""
        if not 0 <= dimension < len(self.dims):
            raise ValueError(
                f"dimension {dimension} of a grid that has {len(self.dims)}"
            )
        ends = []
        for step in (-displacement, displacement):
            coords = list(self.coords)
            coords[dimension] += step
            ends.append(self.rank_of(coords))
        return ends[0], ends[1]

    @property
    def neighbours(self) -> tuple[int | None, ...]:
        """The ranks of the neighbours, by their places; None where there is none."""
        return self._neighbours

    def neighbor_all_gather(
        self, outputs: Sequence[Any], array: Any, async_op: bool = False
    ) -> list[Work] | None:
        """Sends an array to all neighbours, and receives one from each.

        Args:
            outputs: A list of arrays to receive into, by place, or one array with a
                part for each place along its first dimension. A place without a
                neighbour may be None; an array there is left unchanged.
            array: The array to send.
            async_op: Return at once; the arrays are in use until all works have ended.

        Returns:
            None, or with `async_op` a list of `Work`, one for each message.

        Raises:
            ValueError: There is not one output for each place.
            DistBackendError: A neighbour failed, or sends an array of another dtype or
                a larger one.

        Example:
            >>> line = dist.Cartesian(2, periods=True)
            >>> both = np.zeros(2)
            >>> line.neighbor_all_gather(both.reshape(2, 1), np.array([rank + 1.0]))
            >>> bool((both == 2.0 - rank).all())
            True
        """
        inputs = [array] * len(self._all_peers)
        if async_op or not _exchange(outputs, inputs, self._all_peers, self.group):
            return self._exchange_each(outputs, inputs, async_op)
        if self._own_places:
            self._copy(outputs, inputs, self._own_places)
        return None

    def neighbor_all_to_all(
        self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool = False
    ) -> list[Work] | None:
        """Sends a different array to each neighbour, and receives one from each.

        The arrays may differ in size and in dtype. The array for the neighbour at one
        place arrives there at the opposite place.

        Args:
            outputs: The arrays to receive into, as in `neighbor_all_gather`.
            inputs: A list of arrays to send, by place; None where there is no
                neighbour.
            async_op: Return at once; the arrays are in use until all works have ended.

        Returns:
            None, or with `async_op` a list of `Work`, one for each message.

        Raises:
            ValueError: There is not one output and one input for each place.
            DistBackendError: A neighbour failed, or sends an array of another dtype or
                a larger one.

        Example:
            >>> line = dist.Cartesian(2)
            >>> there, here = np.zeros(3), np.full(3, rank + 1.0)
            >>> line.neighbor_all_to_all([there] * 2, [here] * 2)
            >>> bool((there == 2.0 - rank).all())
            True
        """
        # Without a function in between, whose frame would cost as much as a message.
        if async_op or not _exchange(outputs, inputs, self._all_peers, self.group):
            return self._exchange_each(outputs, inputs, async_op)
        if self._own_places:
            self._copy(outputs, inputs, self._own_places)
        return None

    def exchange_halos(self, array: Any, width: int = 1) -> None:
        """Fills the margins of an array with the edges of the neighbours' arrays.

        The dimensions of the grid are the first ones of the array. Along each of them
        the array has `width` elements at both ends for the neighbours' values. The
        dimensions are exchanged one after the other, so the corners are filled, too.
        Margins at an end of the grid are left unchanged.

        Args:
            array: A NumPy array, or another one whose slices are views.
            width: The width of the margins.

        Raises:
            ValueError: The array has fewer dimensions than the grid, or is too short.
            DistBackendError: A neighbour failed, or has an array of another dtype or
                with larger edges.

        Example:
            >>> line = dist.Cartesian(2)
            >>> cells = np.array([0.0, rank + 1.0, rank + 1.0, 0.0])
            >>> line.exchange_halos(cells)
            >>> cells.tolist() == [[0.0, 1.0, 1.0, 2.0], [1.0, 2.0, 2.0, 0.0]][rank]
            True
        """
        shape = tuple(array.shape)[: len(self.dims)]
        if width < 1 or len(shape) < len(self.dims) or min(shape) < 3 * width:
            raise ValueError(
                f"exchange_halos: an array of the shape {tuple(array.shape)} has no "
                f"room for margins of {width} around elements of its own in a grid of "
                f"{len(self.dims)} dimensions"
            )
        for d in range(len(self.dims)):
            margins: list[Any] = [None] * (2 * len(self.dims))
            edges = list(margins)
            for side, (margin, edge) in enumerate(
                (
                    (slice(0, width), slice(width, 2 * width)),
                    (slice(-width, None), slice(-2 * width, -width)),
                )
            ):
                before = (slice(None),) * d
                margins[2 * d + side] = array[(*before, margin)]
                edges[2 * d + side] = array[(*before, edge)]
            places = (2 * d, 2 * d + 1)
            peers = self._peers_at(places)
            if not _exchange(margins, edges, peers, self.group):
                for work in self._begin(margins, edges, peers):
                    work.wait()
            own = [place for place in places if place in self._own_places]
            self._copy(margins, edges, own)

    def _peers_at(self, places: tuple[int, ...]) -> tuple[int | None, ...]:
        """Returns, by place, the rank to exchange messages with; None at all other
        places and where the neighbour is this rank itself."""
        own = self.group.rank()
        return tuple(
            None if peer == own or place not in places else peer
            for place, peer in enumerate(self._neighbours)
        )

    def _exchange_each(
        self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool
    ) -> list[Work] | None:
        outputs = self._by_place(outputs, "outputs")
        inputs = self._by_place(inputs, "inputs")
        works = self._begin(outputs, inputs, self._all_peers)
        self._copy(outputs, inputs, self._own_places)
        if async_op:
            return works
        for work in works:
            work.wait()
        return None

    def _copy(
        self, outputs: Sequence[Any], inputs: Sequence[Any], places: Sequence[int]
    ) -> None:
        """Copies what this rank has for itself at these places: what goes out at one
        place comes in at the opposite one."""
        for place in places:
            output, own = outputs[place], inputs[place ^ 1]
            _check_both(output, own, place)
            output[...] = own

    def _begin(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        peers: tuple[int | None, ...],
    ) -> list[Work]:
        ops: list[P2POp] = []
        for place, peer in enumerate(peers):
            if peer is None:
                continue
            output, own = outputs[place], inputs[place]
            _check_both(output, own, place)
            ops.append(P2POp(isend, own, None, self.group, place, peer))
            # The neighbour's place for this rank is the opposite one.
            ops.append(P2POp(irecv, output, None, self.group, place ^ 1, peer))
        return batch_isend_irecv(ops) if ops else []

    def _by_place(self, arrays: Sequence[Any], what: str) -> Sequence[Any]:
        """Returns a list with the array of each place, where they are the parts of one
        array."""
        count = len(self._all_peers)
        if len(arrays) != count:
            raise ValueError(f"{len(arrays)} {what} for {count} places of neighbours")
        return arrays if isinstance(arrays, (list, tuple)) else list(arrays)


def _check_both(output: Any, own: Any, place: int) -> None:
    if output is None or own is None:
        raise ValueError(
            f"there is a neighbour at place {place}, but no "
            f"{'input' if own is None else 'output'} for it"
        )


def _compare(
    parent: ProcessGroup, lengths: tuple[int, ...], wraps: tuple[bool, ...]
) -> None:
    """Fails on all ranks if they were called with different arguments."""
    told: list[Any] = [None] * parent.size()
    all_gather_object(told, (lengths, wraps), parent)
    texts = [f"the dimensions {dims} and periods {periods}" for dims, periods in told]
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise ValueError(
                f"Cartesian: rank 0 called it with {texts[0]}, rank {rank} with {text}"
            )


def _checked(
    dims: int | Sequence[int], periods: bool | Sequence[bool], size: int
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    lengths = [index(each) for each in ([dims] if isinstance(dims, int) else dims)]
    wraps = [periods] * len(lengths) if isinstance(periods, bool) else list(periods)
    if not all(isinstance(each, bool) for each in wraps):
        raise TypeError(f"periods must be bools, not {periods}")
    if len(wraps) != len(lengths) or not lengths or min(lengths) < 0:
        raise ValueError(
            "a grid needs at least one dimension, none of them negative, and a period "
            f"for each, not the dimensions {tuple(lengths)} and periods {tuple(wraps)}"
        )
    fixed = math.prod(length for length in lengths if length)
    if 0 in lengths and size % fixed:
        raise ValueError(
            f"{size} ranks cannot fill a grid of {tuple(lengths)}: {fixed} does not "
            f"divide {size}"
        )
    if 0 in lengths:
        factors = iter(_balanced(size // fixed, lengths.count(0)))
        lengths = [length or next(factors) for length in lengths]
    if math.prod(lengths) != size:
        raise ValueError(
            f"a grid of {tuple(lengths)} has {math.prod(lengths)} places, but the "
            f"group has {size} ranks; distlite.split() makes a group of some of them"
        )
    return tuple(lengths), tuple(wraps)


def _balanced(size: int, count: int) -> list[int]:
    """Returns `count` factors of `size` that are as equal as possible, the largest
    first."""
    best = [size] + [1] * (count - 1)

    def search(rest: int, most: int, taken: list[int]) -> None:
        nonlocal best
        if len(taken) == count - 1:
            if rest <= most and sum(taken) + rest < sum(best):
                best = [*taken, rest]
            return
        for factor in range(min(rest, most), 0, -1):
            if rest % factor == 0:
                search(rest // factor, factor, [*taken, factor])

    search(size, size, [])
    return best
