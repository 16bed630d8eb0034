# SPDX-License-Identifier: BSD-3-Clause
"""Members of `distlite.elastic` in a simulated world of processes, a store and groups.

Their code is the real one of `ledger.py` and `member.py`. Its processes are threads of
which one runs at a time, time jumps when all wait, and who runs next, how long requests
take, and what fails, follows from a seed.

    elastic_world.py FIRST LAST
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import distlite
from distlite.elastic import ledger, member

STEPS = 8
FAULTS = ["kill", "kill", "stop", "leave", "raise", "outage", "replacement"]
GONE = ("kill", "leave", "stop")
# Seconds: of a call of `next`, of an operation of a group, and what ends with them.
CALLS, OPERATIONS, LATE = [20.0, 20.0, 0.5], [6.0, 6.0, 1.0], 1.5
PATIENCE, END = 60.0, 400.0
ERRORS = (
    distlite.DistBackendError,
    distlite.DistStoreError,
    distlite.DistNetworkError,
)


class Killed(BaseException):
    """The process has ended; nothing that it does any more has an effect."""


class Wrong(AssertionError):
    """A guarantee does not hold."""


@dataclass(eq=False)
class Process:
    world: World
    number: int
    name: str
    comes_at: float = 0.0
    is_spare: bool = False
    kill_at: int = 0  # the number of the request, 0: never
    leaves_at: int = 0
    raises_at: int = 0
    requests: int = 0
    is_dead: bool = False
    is_over: bool = False
    stopped_until: float = 0.0
    until: float = 0.0
    is_ready: Callable[[], bool] | None = None
    # The state: the steps that it has committed, each with the epoch of its body.
    steps: list[tuple[int, str]] = field(default_factory=list)
    epoch: str = ""  # the last one that it has begun
    is_moved: bool = False  # it goes on with the store that replaces the first one
    end: str = ""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self.world.live(self)
        except Killed:
            self.end = "killed"
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.world.turn.release()

    def wait(self, seconds: float, is_ready: Callable[[], bool] | None = None) -> bool:
        """Hands over until `is_ready`, or the time has come, which returns False."""
        if self.is_dead:
            raise Killed
        self.until, self.is_ready = self.world.now + max(0.0, seconds), is_ready
        self.world.turn.release()
        self.turn.acquire()
        if self.is_dead:
            raise Killed
        return is_ready is not None and is_ready()

    def die(self) -> None:
        self.is_dead = True
        self.world.note("dies", self.number)
        raise Killed


class World:
    """All that the processes of a seed share."""

    def __init__(self, seed: int, faults: int = 3) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now, self.hash = 1000.0, hashlib.sha1()
        self.turn = threading.Semaphore(0)
        self.current: Process | None = None
        self.values: dict[str, bytes] = {}
        self.records: list[dict[str, Any]] = []  # decided, in this order
        self.groups: dict[str, Group] = {}
        self.states: dict[str, list[tuple[int, str]]] = {}  # with which epochs begin
        self.outage = (0.0, 0.0)
        # Whether the store has lost all that it held, and when it will.
        self.is_replaced, self.replaced_at = False, math.inf
        self.faults: list[tuple[Any, ...]] = []
        self.is_stable = self.random.random() < 0.5
        self.max_size = self.random.choice([None, None, 3])
        self.call = self.random.choice(CALLS)
        self.operation = self.random.choice(OPERATIONS)
        count = self.random.randrange(2, 6)
        self.processes = [self._process(number) for number in range(count)]
        drawn = [self._fault() for _ in range(self.random.randrange(faults + 1))]
        # Newcomers alone are too few to begin anew in an empty store.
        is_replaced = any(kind == "replacement" for kind, *_ in drawn)
        is_large = is_replaced or self.random.random() < 0.3
        self.min_size = count // 2 + 1 if is_large else 1
        for fault in drawn:
            self._plan(fault)

    def _process(self, number: int) -> Process:
        choice = self.random
        # Processes of other places see each other's beats only.
        place = choice.choice(["a", "a", "b", "-"])
        made = Process(self, number, f"h:{number}:{place}:{number:04x}")
        if number > 0 and choice.random() < 0.3:
            made.comes_at = choice.uniform(0.0, 4.0)
            made.is_spare = choice.random() < 0.4
        return made

    def _fault(self) -> tuple[Any, ...]:
        choice, kind = self.random, self.random.choice(FAULTS)
        # Process 0 stays to the end.
        victim = choice.choice(self.processes[1:])
        number, step = choice.randrange(1, 150), choice.randrange(1, STEPS + 1)
        at, span = self.now + choice.uniform(0.0, 4.0), choice.uniform(0.1, 4.0)
        return kind, victim.number, number, step, at, span

    def _plan(self, fault: tuple[Any, ...]) -> None:
        kind, victim_number, number, step, at, span = fault
        victim = self.processes[victim_number]
        if kind in GONE:
            gone = {f[1] for f in self.faults if f[0] in GONE}
            if len(self.processes) - len(gone | {victim.number}) < self.min_size:
                return
        self.faults.append(fault)
        if kind == "kill":
            victim.kill_at = number
        elif kind == "leave":
            victim.leaves_at = step
        elif kind == "raise":
            victim.raises_at = step
        elif kind == "outage":
            self.outage = at, at + span
        elif kind == "replacement":
            self.outage, self.replaced_at = (at, at + span), at + span

    # The scheduler.

    def note(self, *what: object) -> None:
        self.hash.update(repr((round(self.now, 9), *what)).encode())

    def run(self) -> None:
        for each in self.processes:
            each.until = self.now + each.comes_at
            each.thread.start()
        stops = [fault for fault in self.faults if fault[0] == "stop"]
        while left := [p for p in self.processes if not p.is_over]:
            for stop in [stop for stop in stops if stop[4] <= self.now]:
                self.processes[stop[1]].stopped_until = self.now + stop[5]
                stops.remove(stop)
            ready = [p for p in left if self._may_run(p)]
            if not ready:
                times = [max(p.until, p.stopped_until) for p in left]
                times += [p.stopped_until for p in left]
                times += [stop[4] for stop in stops]
                self.now = min(at for at in times if at > self.now)
                continue
            if self.now > 1000.0 + END:
                raise Wrong(f"it goes on for ever: {[p.number for p in left]}")
            self.current = self.random.choice(ready)
            self.current.turn.release()
            self.turn.acquire()

    def _may_run(self, process: Process) -> bool:
        if process.is_dead:
            return True
        if process.stopped_until > self.now:
            return False
        is_ready = process.is_ready
        return process.until <= self.now or (is_ready is not None and is_ready())

    def me(self) -> Process:
        assert self.current is not None
        return self.current

    # What the processes execute.

    def live(self, process: Process) -> None:
        rules = ledger.Rules(self.min_size, self.max_size, self.is_stable, True, 1.0)
        limit = timedelta(seconds=self.operation)
        own = member.Member(self.store, "world", rules, process.is_spare, limit)
        try:
            with own:
                self._work(process, own)
                process.end = process.end or "finished"
        except ledger.Evicted:
            process.end = "evicted"
        if own._is_closed and not process.end:
            process.end = "told that it is finished"

    def _work(self, process: Process, own: member.Member) -> None:
        while (own.done or 0) < STEPS:
            number = (own.done or 0) + 1
            if process.leaves_at and number >= process.leaves_at:
                process.end = "left"
                return
            try:
                view = self._next(own)
                own.restore(
                    view,
                    lambda state: self._load(process, state),
                    lambda: {"steps": list(process.steps)},
                )
                number = (own.done or 0) + 1
                if number > STEPS:
                    break
                if [step for step, _ in process.steps] != list(range(1, number)):
                    raise Wrong(f"{process.steps} before step {number}")
                self._compare(process, view.group.group_name)
                with own.step(number):
                    process.wait(self.random.uniform(0.0, 0.3))
                    if number == process.raises_at:
                        process.raises_at = 0
                        raise ZeroDivisionError
                process.steps.append((number, view.group.group_name))
                self.note("commits", process.number, number)
            except (*ERRORS, ZeroDivisionError) as error:
                self.note("fails", process.number, type(error).__name__)
        self._again(own.finish)

    def _compare(self, process: Process, label: str) -> None:
        """All members begin an epoch with the same state."""
        if label != process.epoch:
            process.epoch = label
            expected = self.states.setdefault(label, list(process.steps))
            if process.steps != expected:
                raise Wrong(f"{process.steps} and {expected} begin epoch {label}")

    def _again(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except distlite.DistNetworkError:
                self.me().wait(0.1)
            else:
                return

    def _load(self, process: Process, state: dict[str, Any]) -> None:
        process.steps = list(state["steps"])

    def _next(self, own: member.Member) -> member.View:
        while True:
            began = self.now
            try:
                return own.next(self.call)
            except ERRORS as error:
                self.note("next", type(error).__name__)
                me = self.me()
                end = max(began + self.call, me.stopped_until, self.outage[1])
                if self.now > end + LATE:
                    raise Wrong(f"next() ended late: {error}") from None
                # The new store may not know that the others are done, and what is left
                # may be too few of the last members.
                if self.is_replaced and self.now > 1000.0 + PATIENCE:
                    me.die()
                me.wait(0.1)
                if self.is_replaced and not me.is_moved and self.random.random() < 0.5:
                    me.is_moved = True
                    own.replace_store(self.store)

    # The store.

    def request(self, name: str, change: Callable[[], Any]) -> Any:
        """A process may end before its request, or before it has the answer."""
        process = self.me()
        process.requests += 1
        is_last = process.requests == process.kill_at
        is_slow = self.random.random() < 0.01
        process.wait(self.random.uniform(1e-4, 0.4 if is_slow else 5e-3))
        if is_last and self.random.random() < 0.5:
            process.die()
        if self.now >= self.replaced_at:
            self.values, self.replaced_at, self.is_replaced = {}, math.inf, True
        if self.outage[0] <= self.now < self.outage[1]:
            process.wait(0.01)
            raise distlite.DistNetworkError("the store is away")
        found = change()
        self.note(name, process.number, found)
        if is_last:
            process.die()
        process.wait(self.random.uniform(1e-4, 5e-3))
        return found

    @property
    def store(self) -> SimulatedStore:
        return SimulatedStore(self)

    # Guarantees.

    def check_record(self, raw: bytes) -> None:
        """One list for each epoch; those that stay keep their order or their ranks."""
        new = json.loads(raw)
        if new["epoch"] == 0:  # the store was empty
            return
        earlier = [r for r in self.records if self._counts_for(r, new)]
        self.records.append(new)
        if len({*new["members"]}) != len(new["members"]) or not new["members"]:
            raise Wrong(f"members of {new}")
        if self.max_size is not None and len(new["members"]) > self.max_size:
            raise Wrong(f"more than {self.max_size} members: {new}")
        if new["lost"] and not self.faults:
            raise Wrong(f"members are lost without a fault: {new}")
        if not earlier:
            return
        # Who is lost before it knows that it was a member is a newcomer.
        begun = {process.name for process in self.processes if process.epoch}
        for record in earlier:
            if {*record["lost"]} & {*new["members"]} & begun:
                raise Wrong(f"who was lost is in {new}")
        if new["epoch"] <= max(r["epoch"] for r in earlier):
            raise Wrong(f"{new} after {earlier[-1]}")
        # Of two stores, either may have the record before.
        before = [r for r in self.records if r["epoch"] == new["epoch"] - 1]
        if not any(self._follows(new, last) for last in before):
            raise Wrong(f"{new} does not follow {before}")

    def _counts_for(self, record: dict[str, Any], new: dict[str, Any]) -> bool:
        """An epoch counts in its store, and in the next one if its group was made."""
        group = self.groups.get(_label(record))
        is_made = group is not None and group.is_made
        return record["identity"] == new["identity"] or is_made

    def _follows(self, new: dict[str, Any], last: dict[str, Any]) -> bool:
        stays = [each for each in last["members"] if each in new["members"]]
        majority = len(last["members"]) // 2 + 1
        if new["identity"] != last["identity"] and len(stays) < majority:
            return False
        if stays != [each for each in new["members"] if each in last["members"]]:
            return False
        rank_in = [
            dict(zip(r["members"], r["ranks"], strict=True)) for r in (last, new)
        ]
        if self.is_stable and any(rank_in[0][m] != rank_in[1][m] for m in stays):
            return False
        gone = {*last["members"]} - {*new["members"]}
        return gone == {*new["lost"]} | ({*new["left"]} & {*last["members"]})

    def check_end(self) -> None:
        for each in self.processes:
            if each.error is not None:
                raise each.error
            is_whole = [step for step, _ in each.steps] == list(range(1, STEPS + 1))
            if each.end == "finished" and not is_whole:
                raise Wrong(f"process {each.number} has finished with {each.steps}")
        slow = {"stop", "outage", "replacement"} & {fault[0] for fault in self.faults}
        if not slow and any(each.end == "evicted" for each in self.processes):
            raise Wrong("who was never late is evicted")
        is_hopeless = self.is_replaced and any(f[0] in GONE for f in self.faults)
        has_finished = any(each.end == "finished" for each in self.processes)
        if not has_finished and not is_hopeless:
            raise Wrong(f"nobody has finished: {[p.end for p in self.processes]}")


class SimulatedStore:
    """What `Ledger` uses of a store."""

    def __init__(self, world: World) -> None:
        self._world = world

    def limit(self, seconds: float) -> None:
        pass

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        def change() -> bytes:
            values, wanted = self._world.values, expected.encode()
            found = values.get(key)
            if found is None and wanted:
                return wanted
            if found in (None, wanted):
                values[key] = desired.encode()
                if key == "epoch" and desired:
                    self._world.check_record(values[key])
                return values[key]
            assert found is not None
            return found

        found = self._world.request("compare_set", change)
        assert isinstance(found, bytes)
        return found

    def append(self, key: str, value: str) -> None:
        def change() -> None:
            before = self._world.values.get(key, b"")
            self._world.values[key] = before + value.encode()

        self._world.request("append", change)

    def set(self, key: str, value: str) -> None:
        self._world.request(
            "set", lambda: self._world.values.__setitem__(key, value.encode())
        )

    def add(self, key: str, amount: int) -> int:
        def change() -> int:
            value = int(self._world.values.get(key, b"0")) + amount
            self._world.values[key] = str(value).encode()
            return value

        return int(self._world.request("add", change))

    def check(self, keys: list[str]) -> bool:
        has = self._world.values.__contains__
        return bool(self._world.request("check", lambda: all(map(has, keys))))

    def wait(self, keys: list[str], seconds: float) -> None:
        def are_there() -> bool:
            return all(key in self._world.values for key in keys)

        self._world.request("wait", are_there)
        if not self._world.me().wait(seconds, are_there):
            raise distlite.DistStoreError("wait timeout")

    def list_keys(self) -> list[str]:
        def change() -> list[str]:
            return [f"elastic/world/{key}" for key in sorted(self._world.values)]

        return list(self._world.request("list_keys", change))

    def delete_key(self, key: str) -> bool:
        def change() -> bool:
            return self._world.values.pop(key, None) is not None

        return bool(self._world.request("delete_key", change))


class Group:
    """A group of one epoch: an operation succeeds on all of its ranks or fails on all,
    but for those that have ended it already when another one fails."""

    def __init__(
        self, world: World, label: str, members: list[str], parent: str | None
    ) -> None:
        self.world, self.label, self.members = world, label, members
        self.parent = parent
        self.is_made, self.is_broken = False, False
        self.operations: dict[int, dict[int, Any]] = {}

    def has_lost(self) -> bool:
        names = {p.name: p for p in self.world.processes}
        self.is_broken |= any(names[each].is_dead for each in self.members)
        return self.is_broken

    def meet(self, rank: int, number: int, value: Any, limit: float) -> dict[int, Any]:
        world, said = self.world, self.operations.setdefault(number, {})
        said[rank] = value
        is_whole = world.me().wait(
            limit, lambda: len(said) == len(self.members) or self.has_lost()
        )
        if len(said) < len(self.members) or not is_whole:
            self.is_broken = True
            raise distlite.DistBackendError("a rank is missing")
        world.me().wait(world.random.uniform(1e-5, 3e-3))
        if self.has_lost() and world.random.random() < 0.5:
            raise distlite.DistBackendError("a rank was lost meanwhile")
        return said


class OwnGroup:
    """The group as one of its ranks sees it."""

    def __init__(self, group: Group, process: Process, rank: int) -> None:
        self._group, self._process, self._rank = group, process, rank
        self._number, self.group_name = 0, group.label

    def rank(self) -> int:
        return self._rank

    def set_timeout(self, limit: timedelta) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _abort(self, reason: str) -> None:
        self._group.is_broken |= not self._process.is_dead

    def _drain(self) -> bool:
        return True

    def _has_ended(self, rank: int) -> bool:
        """Of a process elsewhere, a group may know it late."""
        world, name = self._group.world, self._group.members[rank]
        is_dead = any(p.is_dead for p in world.processes if p.name == name)
        return is_dead and world.random.random() < 0.5

    def meet(self, value: Any, limit: float | None = None) -> dict[int, Any]:
        if self._group.is_broken:
            raise distlite.DistBackendError("the group is broken")
        self._number += 1
        limit = limit or self._group.world.operation
        return self._group.meet(self._rank, self._number, value, limit)


def _label(record: dict[str, Any]) -> str:
    return f"world.{record['epoch']}.{record['identity']}"


def _make_of_members(
    world: World, request: Any, members: list[str], keys: Any, until: float, _: Any
) -> OwnGroup:
    label = request.label
    parent = request.parent and request.parent.group_name
    shared = world.groups.setdefault(label, Group(world, label, members, parent))
    if shared.members != members:
        raise Wrong(f"{members} and {shared.members} are in one epoch")
    if shared.parent != parent:
        raise Wrong(f"{label} is made of {parent} and of {shared.parent}")
    made = OwnGroup(shared, world.me(), request.rank)
    try:
        made.meet(None, until - world.now)
    except distlite.DistBackendError:
        shared.is_broken = True
        raise
    shared.is_made = True
    for other in world.groups.values():
        if other is not shared and other.is_made and not other.has_lost():
            raise Wrong(f"the epochs {other.label} and {label} are alive at a time")
    return made


def _all_reduce(flags: Any, op: Any, group: OwnGroup) -> None:
    said = group.meet(flags.copy())
    for each in said.values():
        flags[:] = [max(pair) for pair in zip(flags, each, strict=True)]


def _send_state(
    view: Any, state: dict[str, Any] | None, deadline: float
) -> dict[str, Any]:
    said = view.group.meet(state)
    states = [said[rank] for rank in view.sources]
    if any(each != states[0] for each in states):
        raise Wrong(f"members with a state have other states: {states}")
    found = states[0]
    assert isinstance(found, dict)
    return found


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Puts the world in the place of what the code under test uses."""

    def is_known_dead(name: str, own: str) -> bool:
        place = name.split(":")[2]
        names = {p.name: p for p in world.processes}
        return place != "-" and place == own.split(":")[2] and names[name].is_dead

    clock = SimpleNamespace(
        monotonic=lambda: world.now, sleep=lambda seconds: world.me().wait(seconds)
    )
    changes = {
        ledger: {
            "time": clock,
            "urandom": world.random.randbytes,
            "is_known_dead": is_known_dead,
            "OwnConnection": lambda prefix, store, seconds: SimpleNamespace(
                store=store, limit=store.limit, is_own=False
            ),
        },
        member: {
            "time": clock,
            "is_known_dead": is_known_dead,
            "MemberId": lambda: SimpleNamespace(
                text=world.me().name, close=lambda: None
            ),
            "PrefixStore": lambda prefix, store: store,
            "GroupInfo": lambda backends, ranks: None,
            "backends_of": lambda backend: None,
            "GroupRequest": lambda info, keys, rank, limit: SimpleNamespace(
                rank=rank, parent=None
            ),
            "is_initialized": lambda: True,
            "make_of_members": lambda *rest: _make_of_members(world, *rest),
            "all_reduce": _all_reduce,
            "send_state": _send_state,
        },
    }
    with ExitStack() as stack:
        for module, names in changes.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(module, name, value))
        yield


def run_seed(seed: int) -> str:
    """Runs a seed, and returns the hash of what has happened."""
    world = World(seed)
    try:
        with simulated(world):
            world.run()
        world.check_end()
    except BaseException as error:
        ends = [(p.number, p.name, p.end, p.steps) for p in world.processes]
        raise Wrong(f"seed {seed}: {error}\n{world.faults}\n{ends}") from error
    return world.hash.hexdigest()


def main() -> None:
    first, last = map(int, sys.argv[1:])
    began, failed = time.monotonic(), 0
    for seed in range(first, last):
        try:
            run_seed(seed)
        except Wrong as error:
            failed += 1
            print(error, flush=True)
    took = time.monotonic() - began
    print(f"{last - first} seeds, {failed} failed in {took:.1f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
