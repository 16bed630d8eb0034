# SPDX-License-Identifier: BSD-3-Clause
"""A process as a member of a world: its epochs, its steps, and its leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from fcntl import F_DUPFD_CLOEXEC, fcntl
from functools import partial
from operator import index
from os import close, devnull, environ
from threading import Thread
from typing import Any

import numpy as np

from .._C import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    PrefixStore,
    ProcessGroup,
    Store,
    TCPStore,
    _recording_identify,
    all_reduce,
)
from ..groups.backends import backends_of
from ..groups.check_in import Arrivals
from ..groups.group_making import GroupRequest
from ..groups.lifecycle import _limit_of, _quote
from ..groups.members import MemberId, is_known_dead, make_of_members
from ..groups.reduce_op import ReduceOp
from ..groups.world import GroupInfo, is_initialized
from ..stores.timeouts import seconds_of

# Loaded now, because the members wait for the one of them that reports a failure.
from ..tools import failure  # noqa: F401
from .ledger import REQUEST, Arrival, Finished, Ledger, Record, Rules
from .restore import send_state

__all__ = ["Member", "View", "join"]

# Seconds that the members of a new epoch have for making its group, at least.
PATIENCE = 10.0
# Seconds between two looks for newcomers, or this many times what a look takes, but no
# more than the last number: a look at a store that does not answer takes seconds.
LOOK, SHARE, LONGEST_LOOK = 0.02, 50, 5.0
# Seconds for the store's answer when this process leaves.
LEAVE_PATIENCE = 1.0
# Descriptors that the groups of two epochs together seldom exceed.
DESCRIPTORS = 1024


@dataclass(frozen=True)
class View:
    """One epoch, as one of its members sees it.

    Args:
        epoch: The number of the epoch, from 1.
        rank: The rank of this process: that in the group, or, with stable ranks, its
            number, which it keeps.
        size: The number of members.
        members: The names of the members, in the order of the group.
        ranks: The ranks of the members, in the order of the group.
        joined: The members that are new in this epoch.
        lost: The members of the last epoch that are not members any more.
        left: The members that have called `leave`.
        behind: The ranks in the group of members that do not have the state.
        sources: The ranks in the group of members that have the state.
        done: The last committed step, or None.
        group: The process group of this epoch.

    Example:
        >>> with dist.elastic.join(store, min_size=2) as member:
        ...     view = member.next()
        ...     values = np.array([1.0])
        ...     dist.all_reduce(values, group=view.group)
        ...     view.epoch, view.size, values
        (1, 2, array([2.]))
    """

    epoch: int
    rank: int
    size: int
    members: tuple[str, ...]
    ranks: tuple[int, ...]
    joined: tuple[str, ...]
    lost: tuple[str, ...]
    left: tuple[str, ...]
    behind: tuple[int, ...]
    sources: tuple[int, ...]
    done: int | None
    group: ProcessGroup


def join(
    store: Store | None = None,
    name: str = "world",
    min_size: int | None = None,
    max_size: int | None = None,
    spare: bool | None = None,
    ranks: str = "compact",
    quorum: str = "majority",
    settle: float = 1.0,
    timeout: timedelta | float | None = None,
) -> Member:
    """Prepares this process to become a member of a world.

    It becomes a member when `next` returns. All processes pass the same arguments,
    except for `spare` and `timeout`.

    Args:
        store: A store that all processes share, and that outlives them. None is the
            launcher's store, at MASTER_ADDR and MASTER_PORT; then the launcher also
            provides the sizes, and whether this process is a spare, unless they are
            passed.
        name: The name of the world in the store.
        min_size: With fewer members the world waits for more (None: 1).
        max_size: The largest number of members. Further processes wait, and take the
            places of lost members.
        spare: Whether this process only takes the place of a lost member.
        ranks: "compact": the remaining members are numbered anew, in the old order;
            "stable": they keep their ranks, and newcomers take the free ones.
        quorum: The members of the last epoch that are needed to continue after the
            store was replaced: a "majority", or "any".
        settle: The seconds that members wait for members that do not call `next` and
            whose processes, as far as is known, have not ended. Choose more than the
            time between two calls of a member.
        timeout: The time that each call and each operation of a group may take, a
            `timedelta` or seconds; None is 30 minutes, and negative is no limit.

    Returns:
        The `Member`, whose with statement leaves the world at its end.

    Raises:
        ValueError: An argument is out of range, or there is no launcher.
        DistNetworkError: The store cannot be reached.

    Example:
        >>> member = dist.elastic.join(store, min_size=2, timeout=20)
        >>> member.next().size
        2
        >>> member.leave()
    """
    limit = _limit_of(timeout)
    if store is None:
        store = _launchers_store(limit)
        told = _launchers_sizes()
        min_size = told[0] if min_size is None else min_size
        max_size = told[1] if max_size is None else max_size
        spare = told[2] if spare is None else spare
    least = 1 if min_size is None else index(min_size)
    most = None if max_size is None else index(max_size)
    if least < 1 or (most is not None and most < least):
        raise ValueError(
            f"1 <= min_size <= max_size is needed, not {min_size} and {max_size}"
        )
    for text, argument, choices in (
        (ranks, "ranks", ("compact", "stable")),
        (quorum, "quorum", ("majority", "any")),
    ):
        if text not in choices:
            raise ValueError(f"{argument} must be one of {choices}, not {text!r}")
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"name must be a text without '/', not {name!r}")
    seconds = seconds_of(settle, "settle")
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"settle must be from 0 seconds on, not {settle}")
    rules = Rules(least, most, ranks == "stable", quorum == "majority", seconds)
    return Member(store, name, rules, bool(spare), limit)


def _launchers_store(limit: timedelta) -> Store:
    """Returns the store of the launcher that has started this process."""
    address, port = (environ.get(each) for each in ("MASTER_ADDR", "MASTER_PORT"))
    if not address or not port or not port.isdecimal():
        raise ValueError(
            "MASTER_ADDR and MASTER_PORT do not name a launcher's store: start this "
            "program by `distlite run --on-failure continue`, or pass a store"
        )
    return TCPStore(address, int(port), timeout=limit)


def _launchers_sizes() -> tuple[int | None, int | None, bool]:
    """Returns the least and the largest size of the world, and whether this process is
    a spare, as the launcher says."""
    least, _, most = environ.get("DISTLITE_ELASTIC_SIZE", "").partition(":")
    is_spare = environ.get("DISTLITE_ELASTIC_SPARE") == "1"
    if not least.isdecimal() or not most.isdecimal():
        return None, None, is_spare
    return int(least), int(most), is_spare


def _reserve_descriptors() -> None:
    """Has the kernel make the table of descriptors as large as it will be.

    To enlarge it in a process with threads, the kernel waits for all processors, which
    takes 20 ms on a busy machine; the members of an epoch would wait for that."""
    with suppress(OSError), open(devnull) as file:
        close(fcntl(file.fileno(), F_DUPFD_CLOEXEC, DESCRIPTORS - 1))


class Member:
    """This process in a world, made by `distlite.elastic.join`.

    Only one thread at a time may use it. A with statement leaves the world at its end;
    an exception ends the epoch, so that the others do not wait for this process.

    Args:
        store: The store.
        name: The name of the world in the store.
        rules: The arguments of `join` about sizes, ranks and waiting.
        is_spare: Whether this process only takes the place of a lost member.
        limit: The time that each call may take.

    Example:
        >>> with dist.elastic.join(store, min_size=2) as member:
        ...     while (member.done or 0) < 3:
        ...         view = member.next()
        ...         with member.step((member.done or 0) + 1):
        ...             dist.all_reduce(np.ones(2), group=view.group)
        >>> member.done
        3
    """

    def __init__(
        self, store: Store, name: str, rules: Rules, is_spare: bool, limit: timedelta
    ) -> None:
        self._id = MemberId()
        _reserve_descriptors()
        self._rules, self._is_spare, self._limit = rules, is_spare, limit
        seconds = self._seconds_of(None)
        self._ledger = Ledger(store, name, self._id.text, rules, seconds)
        self._view: View | None = None  # of the epoch that is on
        # The last one, and its members; the one before, until a step has succeeded.
        self._group: ProcessGroup | None = None
        self._names: list[str] = []
        self._old: ProcessGroup | None = None
        self._is_ready, self._is_closed = False, False
        self._done: int | None = None
        self._begun: int | None = None  # a step of which it cannot tell the outcome yet
        self._flags = np.zeros(3, np.int64)  # what the members tell in a step's end
        self._looks_at, self._is_clean = 0.0, True
        self._asking: Thread | None = None
        self._asked_in = 0  # the last epoch in which newcomers were seen
        self._heard_at = 0.0  # of the other members

    def __repr__(self) -> str:
        state = "left" if self._is_closed else f"epoch {self._ledger.last.epoch}"
        return f"<Member {self.id} of {self._ledger.name!r}, {state}>"

    @property
    def id(self) -> str:
        """The name of this process among all members there ever were."""
        return self._id.text

    @property
    def done(self) -> int | None:
        """The last committed step, or None.

        For a member that is behind, it is the step of the state that `restore` gets.
        """
        return self._done

    @property
    def view(self) -> View | None:
        """The view of the present epoch, or None."""
        return self._view

    def next(
        self, timeout: timedelta | float | None = None, *, anew: bool = False
    ) -> View:
        """Returns the present epoch, or joins the next one.

        The next one begins after an error in a step, or if newcomers wait, which all
        members learn at the end of a step.

        Args:
            timeout: The time to wait, a `timedelta` or seconds; None is that of `join`.
            anew: Whether to end the present epoch, after an error of an operation
                outside of a step.

        Returns:
            The `View`, when all members of the epoch have its group.

        Raises:
            Evicted: The others have gone on without this process.
            Finished: The work is done, and this process was not a member.
            DistStoreError: Not enough members have called it. The error names them, no
                member is evicted, and the call may be repeated.
            DistNetworkError: The store cannot be reached.

        Example:
            >>> member = dist.elastic.join(store, min_size=2)
            >>> member.next() is member.next()
            True
            >>> member.leave()
        """
        self._check_open()
        if self._view is not None and not anew and not self._is_left_out():
            return self._view
        self._end("its member calls for the next epoch")
        deadline = time.monotonic() + self._seconds_of(timeout)
        return self._next(deadline, self._begun)

    def _next(self, deadline: float, dropped: int | None) -> View:
        """`dropped` is the step of which the caller has no result any more."""
        while True:
            arrival = replace(self._arrival(), dropped=dropped)
            record = self._ledger.decide(arrival, deadline, self._has_ended)
            self._forget_group()
            self._old, self._group = self._group, None
            try:
                view = self._enter(record, deadline)
            except (DistBackendError, DistNetworkError, DistStoreError) as error:
                self._end(_quote(error))
                if time.monotonic() >= deadline:
                    raise DistStoreError(
                        f"epoch {record.epoch} of {self._ledger.name} did not begin in "
                        f"time: {_quote(error)}"
                    ) from error
                continue
            if arrival.lacks(record.done) and self.id in record.ready:
                # That was decided by what it said before it dropped the result.
                self._end(f"a member has no result of step {dropped} any more")
                continue
            self._view, self._done, self._begun = view, record.done, None
            self._heard_at = time.monotonic()
            return view

    def _is_left_out(self) -> bool:
        """Returns whether there is a later epoch, of which a process knows nothing that
        was stopped or computed for long; within `settle` there is none."""
        now, found = time.monotonic(), False
        if now - self._heard_at < max(LOOK, self._rules.settle):
            return False
        with suppress(DistError):  # the members do not need the store for their steps
            self._ledger.limit(1.0)
            found = self._ledger.has_later()
        self._heard_at = _next_look(now)
        return found

    def step(self, number: int) -> AbstractContextManager[View]:
        """Executes a step, which either all members commit or none.

        A success costs one small all_reduce. If that fails, the statement first joins
        the next epoch; if one of the members there has seen the success, this member
        commits the step, too. Change state after the statement, or so that you can undo
        the change. A failure takes at most the timeout of its operations and that of
        the next epoch.

        Args:
            number: The number of the step, larger than that of the last committed one,
                and the same for all members.

        Returns:
            A context manager whose value is the view.

        Raises:
            ValueError: The step has been committed before.
            DistBackendError: The step was not committed, or the epoch is over: call
                `next`.
            DistStoreError, DistNetworkError: The next epoch did not begin in time, so
                whether the step was committed is not known. `next` tells: if it was,
                this member is behind, or, where nobody has the result, `done` is the
                step before.
            Evicted: The others have gone on without this process.

        Example:
            >>> with dist.elastic.join(store, min_size=2) as member:
            ...     view = member.next()
            ...     with member.step(1):
            ...         dist.barrier(view.group)
            >>> member.done
            1
        """
        return _Step(self, number)

    def _begin(self, number: int) -> View:
        self._check_open()
        if self._done is not None and number <= self._done:
            raise ValueError(
                f"step {number} is not after step {self._done}, which is committed"
            )
        view = self._view
        if view is None:
            raise DistBackendError("there is no present epoch: call next()")
        if self._old is not None and view.done != self._done:
            self._forget_group()
        return view

    def restore(
        self,
        view: View,
        load: Callable[[dict[str, Any]], object],
        dump: Callable[[], dict[str, Any]],
    ) -> bool:
        """Sends the state to the members that do not have it.

        All members of the epoch call it; if no member is behind, it returns at once.
        Every member that has the state sends an equal part of each array.

        Args:
            view: The epoch.
            load: The function that takes the state, called on members that are behind.
            dump: The function that returns the state, a dict of NumPy arrays and other
                objects by name, called on members that have it. They must all return
                the same.

        Returns:
            Whether `load` was called.

        Raises:
            DistBackendError: A member was lost meanwhile, or the epoch is over: call
                `next`.

        Example:
            >>> with dist.elastic.join(store, min_size=2) as member:
            ...     view = member.next()
            ...     member.restore(view, print, lambda: {"w": np.zeros(2)})
            False
        """
        self._check_open()
        if self._view is None or view.epoch != self._view.epoch:
            raise DistBackendError(f"epoch {view.epoch} is over: call next()")
        if not self._view.behind:
            return False
        is_behind = view.group.rank() in view.behind
        try:
            state = None if is_behind else dump()
            deadline = time.monotonic() + self._seconds_of(None)
            state = send_state(view, state, deadline)
            view.group.set_timeout(self._limit)
        except BaseException as error:
            self._end(f"restore ended with {_quote(error)}")
            raise
        if is_behind:
            load(state)
        self._is_ready = True
        everybody = tuple(range(view.size))
        self._view = replace(self._view, behind=(), sources=everybody)
        return is_behind

    def replace_store(self, store: Store) -> None:
        """Continues with another store, after the first one was lost for good.

        All members call it, before `next`. A majority of the last epoch's members is
        needed there, unless `join` got `quorum="any"`.

        Args:
            store: The store.

        Raises:
            DistNetworkError: The store cannot be reached.

        Example:
            >>> with dist.elastic.join(store, "other") as member:
            ...     member.replace_store(dist.HashStore())
        """
        self._check_open()
        self._ledger.use(store, self._seconds_of(None))
        self._looks_at = 0.0

    def leave(self) -> None:
        """Leaves the world; the others go on without waiting for this process.

        A step that they have begun fails, and is executed again. A second call does
        nothing.

        Example:
            >>> member = dist.elastic.join(store, "alone" + str(rank))
            >>> member.next().size
            1
            >>> member.leave()
        """
        if self._is_closed:
            return
        with suppress(DistError):  # without a store the others see that it has ended
            self._ledger.limit(LEAVE_PATIENCE)
            if self._ledger.last.epoch:
                self._ledger.note_leaving(replace(self._arrival(), is_leaving=True))
        self._close("left the world")

    def finish(self) -> None:
        """Ends the work of the world, and leaves it.

        No process joins any more: `next` raises `Finished` for newcomers and spares
        that wait, and ends their with statement. Members that have not seen the end of
        the last step still learn of it. All members may call it. A second call does
        nothing.

        Raises:
            DistNetworkError: The store cannot be reached.

        Example:
            >>> member = dist.elastic.join(store, "done" + str(rank))
            >>> member.next().size
            1
            >>> member.finish()
        """
        if self._is_closed:
            return
        self._ledger.limit(min(self._seconds_of(None), REQUEST))
        self._ledger.finish()
        self.leave()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None:
            self.leave()
            return False
        self._close(f"its with statement ended with {_quote(error)}")
        return isinstance(error, Finished)

    def _close(self, reason: str) -> None:
        self._is_closed = True
        self._end(reason)
        self._forget_group()
        if self._group is not None:
            self._group.shutdown()
        self._id.close()

    def _seconds_of(self, timeout: timedelta | float | None) -> float:
        limit = self._limit if timeout is None else _limit_of(timeout)
        seconds = limit.total_seconds()
        return seconds if seconds >= 0 else float("inf")

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this member has left its world: join() makes another")

    def _end(self, reason: str) -> None:
        """Leaves the group of the epoch, so that the others see that it is over, and
        that no operation of it writes into an array in the next one."""
        self._view = None
        if self._group is not None:
            self._group._abort(reason)
            if not self._group._drain():
                self._group = None  # the caller has shut it down

    def _forget_group(self) -> None:
        """Gives back what the group before the last one has, now that time is left."""
        group, self._old = self._old, None
        if group is not None:
            group.shutdown()

    def _arrival(self) -> Arrival:
        return Arrival(
            id=self.id,
            after=self._ledger.last.epoch,
            is_spare=self._is_spare,
            is_ready=self._is_ready,
            done=self._done,
            group=self._group.group_name if self._group is not None else "",
        )

    def _enter(self, record: Record, deadline: float) -> View:
        """Makes the group of an epoch, with all of its members."""
        self._show(record)
        left = max(0.001, deadline - time.monotonic())
        patience = min(left, PATIENCE + self._rules.settle)
        until = time.monotonic() + patience
        keys = PrefixStore(f"group/{record.epoch}", self._ledger.store)
        place, size = record.members.index(self.id), len(record.members)
        info = GroupInfo(backends_of(None), list(range(size)))
        request = GroupRequest(info, keys, place, timedelta(seconds=patience))
        request.label = f"{self._ledger.name}.{record.epoch}.{record.identity}"
        request.description = f"epoch {record.epoch} of {self._ledger.name}"
        if record.parent:
            request.parent, request.is_successor = self._old, True
            request.parent_ranks = [self._names.index(m) for m in record.members]
        has_ended = partial(is_known_dead, own=self.id)
        group = make_of_members(request, record.members, keys, until, has_ended)
        self._group, self._names = group, record.members
        # The last group may still have been in the middle of its own.
        self._flags = np.zeros(3, np.int64)
        group.set_timeout(self._limit)
        self._looks_at, self._is_clean = time.monotonic() + LOOK, False
        return self._view_of(record, group)

    def _show(self, record: Record) -> None:
        """Has the members' recordings belong together, of which one writes the table
        after a failure; they may be ranks of another job already."""
        if not is_initialized():
            rank = record.ranks[record.members.index(self.id)]
            job = f"{self._ledger.name} {record.identity}"
            _recording_identify(job, rank, record.ranks[-1] + 1)

    def _view_of(self, record: Record, group: ProcessGroup) -> View:
        size, place = len(record.members), group.rank()
        has_state = list(map(set(record.ready).__contains__, record.members))
        # Without anybody who has a state, that of each member is as good as any.
        is_new = not any(has_state)
        self._is_ready = is_new or has_state[place]
        return View(
            epoch=record.epoch,
            rank=record.ranks[place],
            size=size,
            members=tuple(record.members),
            ranks=tuple(record.ranks),
            joined=tuple(record.joined),
            lost=tuple(record.lost),
            left=tuple(record.left),
            behind=tuple(r for r in range(size) if not (is_new or has_state[r])),
            sources=tuple(r for r in range(size) if has_state[r]),
            done=record.done,
            group=group,
        )

    def _has_ended(self, member: str) -> bool:
        """Returns whether the last group knows that a member's process has ended."""
        group, names = self._group, self._names
        return (
            group is not None
            and member in names
            and group._has_ended(names.index(member))
        )

    def _commit(self, view: View, number: int) -> None:
        """Learns whether all members have executed the body of the step."""
        flags = self._flags
        # The last number is whether newcomers wait.
        flags[0], flags[1], flags[2] = number, -number, self._sees_newcomers(view)
        self._begun = number
        try:
            all_reduce(flags, op=ReduceOp.MAX, group=view.group)
        except DistBackendError as error:
            self._end(f"step {number} ended with {_quote(error)}")
            self._next(time.monotonic() + self._seconds_of(None), None)
            if self._done is not None and self._done >= number:
                return
            raise DistBackendError(
                f"step {number} was not committed: {error}"
            ) from error
        except BaseException as error:
            self._end(f"step {number} ended with {_quote(error)}")
            raise
        self._begun = None
        last, first, is_asked_for = flags.tolist()
        if last != -first:
            self._end("the members are in different steps")
            raise DistBackendError(
                f"the members are in the steps {-first} to {last}: all need the "
                "same number, one more than that of view.done"
            )
        self._done, self._is_ready = number, True
        self._heard_at = time.monotonic()
        if is_asked_for:
            self._end("newcomers wait for the next epoch")

    def _sees_newcomers(self, view: View) -> bool:
        """Returns whether newcomers wait; the first member asks the store, now and
        then."""
        if view.group.rank() != 0:
            return False
        is_asking = self._asking is not None and self._asking.is_alive()
        if time.monotonic() >= self._looks_at and not is_asking:
            # The members do not need the store for their steps: one that does not
            # answer would delay each of them.
            self._ledger.limit(1.0)
            work = self._ledger.last, self._is_clean
            self._is_clean = True
            if self._ledger.has_own_connection:
                self._asking = Thread(target=self._ask, args=work, daemon=True)
                self._asking.start()
            else:
                self._ask(*work)
        return self._asked_in == view.epoch

    def _ask(self, record: Record, is_clean: bool) -> None:
        """Asks the store whether newcomers wait, and deletes there what making the
        epoch has left, now that nobody waits for it to begin. What stays, because that
        fails, goes with the next epoch."""
        began = time.monotonic()
        with suppress(DistError, NotImplementedError):
            if self._ledger.is_asked_for(record):
                self._asked_in = record.epoch
            if not is_clean:
                keys = PrefixStore(f"group/{record.epoch}", self._ledger.store)
                Arrivals(keys, len(record.members)).clean()
                self._ledger.clean(record)
        self._looks_at = _next_look(began)


def _next_look(since: float) -> float:
    """Returns when to ask the store again, if it has been asked since that time."""
    spent = time.monotonic() - since
    return since + min(max(LOOK, SHARE * spent), LONGEST_LOOK)


class _Step:
    """The with statement of a step; a generator would take longer than all else."""

    __slots__ = "_member", "_number", "_view"
    _view: View

    def __init__(self, member: Member, number: int) -> None:
        self._member, self._number = member, index(number)

    def __enter__(self) -> View:
        self._view = self._member._begin(self._number)
        return self._view

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        member, number = self._member, self._number
        if error is None:
            member._commit(self._view, number)
        else:
            member._end(f"the body of step {number} ended with {_quote(error)}")
