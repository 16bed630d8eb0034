# SPDX-License-Identifier: BSD-3-Clause
"""How the members of the next epoch are decided, in the store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import urandom
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .._C import DistError, DistNetworkError, DistStoreError, Store
from ..groups.members import describe, is_known_dead
from ..stores.own_connection import OwnConnection

__all__ = ["Arrival", "Evicted", "Finished", "Ledger", "Record", "Rules", "checked"]

_Kind = TypeVar("_Kind", "Record", "Arrival")

# Seconds between two looks: while a decision is under way, and while the members do not
# know yet that there are newcomers.
SHORT, LONG = 0.02, 0.3
# With more members than these, each looks less often.
CROWD = 8
# Seconds that a request may take, at most.
REQUEST = 60.0
# Seconds in which the store answers first, or another connection is tried.
ANSWER = 5.0
# Seconds that a wait may take longer before the store is taken for one that is silent.
SILENCE = 2.0
# Seconds after which a process elsewhere that waits and does not beat is not counted.
_STALE = 1.0
_OF_EPOCHS = ("arrivals", "called", "decided", "asked", "group")


class Evicted(DistError):
    """The members have gone on without this process.

    Its operations in the old group fail, and do not affect the members. It may join
    again, as a newcomer without state.

    Example:
        >>> issubclass(dist.elastic.Evicted, dist.DistError)
        True
    """


class Finished(DistError):
    """The work of the world is done: a member has called `finish`.

    `next` raises it for newcomers and spares. A member's with statement ends without an
    error by it.

    Example:
        >>> dist.elastic.join(store, "short").finish()
        >>> with dist.elastic.join(store, "short") as member:
        ...     member.next()
        >>> member
        <Member ... of 'short', left>
    """


class ForeignValue(DistStoreError):
    """A key holds what this version does not write."""


@dataclass(frozen=True)
class Record:
    """The record of an epoch, which all members read."""

    epoch: int = 0
    identity: str = ""  # of the store
    members: list[str] = field(default_factory=list)  # in the order of the group
    ranks: list[int] = field(default_factory=list)  # of the members, ascending
    joined: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)  # the members that have the state
    done: int | None = None  # the step that was committed last
    places: int = 0  # up to which spares are taken
    # The group that all members have been in, whose connections the next one uses.
    parent: str = ""


@dataclass(frozen=True)
class Arrival:
    """What a process says of itself that wants to be in the next epoch, or leaves."""

    id: str
    after: int = 0  # the last epoch of which it was a member
    is_spare: bool = False
    is_leaving: bool = False
    is_ready: bool = False
    done: int | None = None
    # The step of which it has no result any more, and does not know whether it was
    # committed.
    dropped: int | None = None
    group: str = ""  # the last one, of which the connections are there

    def lacks(self, done: int | None) -> bool:
        """Returns whether a committed step is not in its state."""
        return self.dropped is not None and done is not None and self.dropped <= done


@dataclass(frozen=True)
class Rules:
    min_size: int
    max_size: int | None
    is_stable: bool
    needs_majority: bool
    settle: float


class _Beats:
    """What this process has seen of the beats of members elsewhere, by its own clock;
    groups/members.py knows of those on this machine."""

    def __init__(self) -> None:
        # By member: the beat, since when it is that, and whether it has ever changed.
        self._seen: dict[str, tuple[int, float, bool]] = {}

    def lives(self, member: str, beat: int) -> bool | None:
        """Returns None as long as it is open."""
        now = time.monotonic()
        last, since, has_changed = self._seen.setdefault(member, (beat, now, False))
        if beat != last:
            since, has_changed = now, True
            self._seen[member] = beat, now, True
        if now - since > _STALE:
            return False
        return has_changed or None


class Ledger:
    """The records of one world, as one process sees them."""

    def __init__(
        self,
        store: Store,
        name: str,
        own: str,
        rules: Rules,
        seconds: float = REQUEST,
    ) -> None:
        self.name, self.own, self.rules = name, own, rules
        self.last = Record()  # the latest epoch whose member this process was
        self._raw, self._found = "", Record()  # what it has read last
        self.use(store, seconds)

    def use(self, store: Store, seconds: float) -> None:
        """Goes on with another store, if it can be reached in time."""
        # A call that is repeated goes on with it.
        self._turn: _Turn | None = None
        limit = min(seconds, REQUEST)
        self._link = OwnConnection(f"elastic/{self.name}", store, limit)
        self.store = self._link.store

    @property
    def has_own_connection(self) -> bool:
        """Returns whether several threads may use the store at the same time."""
        return self._link.is_own

    def limit(self, seconds: float) -> None:
        """Bounds the requests that follow."""
        self._link.limit(seconds)

    def decide(
        self, arrival: Arrival, deadline: float, has_ended: Callable[[str], bool]
    ) -> Record:
        """Returns the record of the next epoch of which this process is a member.

        `has_ended` returns whether the process of a member is known to have ended."""
        raw, patience = "", ANSWER
        while True:
            turn = self._turn
            left = deadline - time.monotonic()
            try:
                self.limit(min(left, patience))
                # An empty store gets an identity with its first record, so that a
                # proposal for another store cannot take a place here.
                raw = raw or self._read(
                    "epoch", _text_of(Record(identity=urandom(8).hex()))
                )
                if raw != self._raw:
                    self._raw, self._found = raw, self._parsed(Record, "epoch", raw)
                found = self._found
                if self._is_mine(found):
                    self.last = found
                    return found
                if not self.last.epoch and self.is_finished():
                    raise Finished(
                        f"the work of {self.name} is done (finish() was called)"
                    )
                if turn is None or turn.key != (raw, arrival):
                    turn = self._turn = _Turn(self, arrival, raw, found)
                raw = turn.go(left, has_ended)
            except ForeignValue:
                raise
            except (DistNetworkError, DistStoreError) as error:
                raw, patience = "", min(2 * patience, REQUEST)
                # A server with a journal may come back, here or at a standby's address,
                # and one that does not answer may be slow.
                if time.monotonic() >= deadline:
                    raise
                last_error: DistError | None = error
                time.sleep(min(SHORT, max(0.0, left)))
            else:
                last_error = None
            if time.monotonic() >= deadline:
                raise last_error or DistStoreError(self._timeout_text(turn))

    def _is_mine(self, found: Record) -> bool:
        """Returns whether a record is a new one of this process; raises Evicted if it
        has gone on without it."""
        is_newer = (found.epoch, found.identity) != (
            self.last.epoch,
            self.last.identity,
        )
        if self.own in found.members:
            return is_newer and found.epoch > self.last.epoch
        is_other = found.identity != self.last.identity
        if (
            self.last.epoch
            and found.epoch
            and (is_other or found.epoch > self.last.epoch)
        ):
            raise Evicted(
                f"epoch {found.epoch} of {self.name} has no place for this process, "
                f"which was a member of epoch {self.last.epoch} and is taken for lost: "
                "end, or join again as a newcomer"
            )
        return False

    def _timeout_text(self, turn: _Turn | None) -> str:
        text = f"joining the next epoch of {self.name} timed out"
        if turn is None:
            return text
        absent = ", ".join(map(describe, turn.absent)) or "more members"
        return (
            f"{text}: waiting for {absent}; {len(turn.present)} of at least "
            f"{turn.least} have come. Nobody is evicted by it: call it again, or, if "
            "the others are gone for good, start a new world under another name"
        )

    def _read(self, key: str, otherwise: str = "") -> str:
        """Returns a value, which is `otherwise` if there was none, at once."""
        return self.store.compare_set(key, "", otherwise).decode(errors="replace")

    def _parsed(self, kind: type[_Kind], key: str, raw: str) -> _Kind:
        try:
            return checked(kind(**json.loads(raw)))
        except (ValueError, TypeError, RecursionError):
            shown = raw if len(raw) <= 60 else raw[:60] + "..."
            raise ForeignValue(
                f"the key elastic/{self.name}/{key} does not hold what this version "
                f"writes there, but {shown!r}: another program uses it, or the "
                "members run different versions of distlite"
            ) from None

    def has_later(self) -> bool:
        """Returns whether the store has an epoch after that of this process."""
        raw = self._read("epoch")
        return bool(raw) and self._parsed(Record, "epoch", raw).epoch > self.last.epoch

    def is_asked_for(self, record: Record) -> bool:
        """Returns whether newcomers wait for the members of an epoch."""
        return self.store.check([f"asked/{record.epoch}"])

    def is_finished(self) -> bool:
        """Returns whether nobody joins any more."""
        return self.store.check(["finished"])

    def finish(self) -> None:
        """Lets nobody join any more."""
        self.store.set("finished", "")

    def note_leaving(self, arrival: Arrival) -> None:
        base = self.last.epoch
        self.store.append(f"arrivals/{base}", _text_of(arrival) + "\n")
        self.store.set(f"called/{base}", "")

    def clean(self, record: Record) -> None:
        """Deletes what only earlier epochs needed; the members of this one have met."""
        prefix = f"elastic/{self.name}/"
        for key in self.store.list_keys():
            kind, _, rest = key.removeprefix(prefix).partition("/")
            epoch = rest.partition("/")[0] if kind in _OF_EPOCHS else ""
            is_old = epoch.isdecimal() and int(epoch) < record.epoch
            if is_old or (kind == "beat" and rest in record.lost):
                self.store.delete_key(key.removeprefix(prefix))


def _text_of(said: Record | Arrival) -> str:
    return json.dumps(vars(said))


def _fields_of(kind: type) -> dict[str, tuple[bool, frozenset[type]]]:
    """Returns of each field whether it is a list, and the types of what it holds."""
    hints = get_type_hints(kind).items()
    return {
        name: (get_origin(hint) is list, frozenset(get_args(hint) or (hint,)))
        for name, hint in hints
    }


_FIELDS = {kind: _fields_of(kind) for kind in (Record, Arrival)}


def checked(found: _Kind) -> _Kind:
    """Raises ValueError unless all fields have the types that they are declared with,
    and each member's name its parts."""
    names: list[str] = []
    for name, (is_list, allowed) in _FIELDS[type(found)].items():
        value: Any = getattr(found, name)
        values: Any = value if is_list else [value]
        if type(values) is not list or not allowed.issuperset(map(type, values)):
            raise ValueError(f"{name} is not of its type")
        if (is_list and str in allowed) or name == "id":
            names += values
    if {name.count(":") for name in set(names)} - {3}:
        raise ValueError("a name is not that of a member")
    if isinstance(found, Record) and len(found.ranks) != len(found.members):
        raise ValueError("members and ranks differ in number")
    return found


class _Turn:
    """The way from one record in the store to the next."""

    def __init__(
        self, ledger: Ledger, arrival: Arrival, raw: str, found: Record
    ) -> None:
        self.ledger, self.store, self.own = ledger, ledger.store, ledger.own
        self.place = ledger.own.split(":")[2]
        self.key = raw, arrival
        self.found = found
        # Of two epochs that this process knows, the later one counts, also if the store
        # has lost it.
        mine = ledger.last
        self.last = mine if mine.epoch > found.epoch else found
        self.is_replaced = mine.epoch > 0 and (
            mine.identity != found.identity or mine.epoch > found.epoch
        )
        self.base = found.epoch
        # How many members of the last epoch have to be in the next one.
        needs_majority = self.is_replaced and ledger.rules.needs_majority
        self.majority = len(self.last.members) // 2 + 1 if needs_majority else 0
        self.least = max(ledger.rules.min_size, self.majority)
        self.beats = _Beats()
        self.present: list[Arrival] = []
        self.absent: list[str] = []
        self._seen, self._since = 0, time.monotonic()
        # Where many arrive at once, all of them see it: the last one proposes at once.
        self.line, self.has_waited = _text_of(arrival) + "\n", False
        self.store.append(f"arrivals/{self.base}", self.line)
        self.is_called = mine.epoch > 0 or not found.epoch
        self.calls = mine.epoch > 0  # wakes newcomers, unless another has done so
        if not self.is_called and self._has_room() and not arrival.is_spare:
            self.store.set(f"asked/{self.base}", "")

    def _has_room(self) -> bool:
        most = self.ledger.rules.max_size
        return most is None or len(self.found.members) < most

    def go(self, left: float, has_ended: Callable[[str], bool]) -> str:
        """Looks once, proposes if everybody is there, else waits a moment, and no
        longer than `left` seconds. Returns the record that is then in the store, if it
        has read it."""
        self.has_ended = has_ended
        text = self.ledger._read(f"arrivals/{self.base}")
        if self.calls and (self.has_waited or self._is_first(text)):
            self.calls = False
            self.store.set(f"called/{self.base}", "")
        is_due = self.has_waited or text.endswith(self.line)
        # Before its end, a call finds out whom its error has to name.
        if (self._may_be_whole(text) and is_due) or left <= LONG:
            proposal = self._proposal(self._arrivals(text))
            if proposal is not None:
                before, new = self.key[0], _text_of(proposal)
                # Without effect where the store has been emptied meanwhile.
                found = self.store.compare_set("epoch", before, new)
                if found == before.encode():
                    return ""
                self.store.set(f"decided/{self.base}", "")
                return found.decode(errors="replace")
        # Who arrives last decides; all looks together are as many in any world.
        short = min(LONG, SHORT * max(1.0, len(self.found.members) / CROWD))
        key, pause = ("decided", short) if self.is_called else ("called", LONG)
        self.has_waited = True
        began = time.monotonic()
        try:
            self.store.wait([f"{key}/{self.base}"], max(0.001, min(pause, left)))
            self.is_called = True
        except DistStoreError as error:
            # A store that answers says in time that the key is not there.
            if time.monotonic() - began > pause + SILENCE:
                text = f"the store of {self.ledger.name} does not answer"
                raise DistStoreError(text) from error
        return ""

    def _is_first(self, text: str) -> bool:
        """Returns whether no other member has come before."""
        earlier = text.partition(self.own)[0]
        return not any(each in earlier for each in self.last.members)

    def _may_be_whole(self, text: str) -> bool:
        """Returns whether a close look may find everybody, and shows those elsewhere
        that this process lives.

        Most looks end here: to read what many members say, and ask which of them live,
        takes longer than all else."""
        lines = set(text.splitlines())
        if any(map(self._is_far, [*lines, *self.last.members])):
            self.store.add(f"beat/{self.own}", 1)
        # Who calls again does not make the others wait anew.
        if len(lines) != self._seen:
            self._seen, self._since = len(lines), time.monotonic()
        absent = (each for each in self.last.members if each not in text)
        return self._is_settled() or self._have_ended(absent)

    def _is_settled(self) -> bool:
        return time.monotonic() - self._since >= self.ledger.rules.settle

    def _proposal(self, arrivals: dict[str, Arrival]) -> Record | None:
        """Returns the next record, or None if somebody may still come."""
        last = set(self.last.members)
        leaving = {
            each.id: each
            for each in arrivals.values()
            if each.is_leaving and each.id in last
        }
        is_settled = self._is_settled()
        self.present = [each for each in arrivals.values() if not each.is_leaving]
        self.absent = [each for each in self.last.members if each not in arrivals]
        living = self._living(self.present)
        if living is None:
            return None
        by_id = {each.id: each for each in living}
        stays = [by_id[each] for each in self.last.members if each in by_id]
        self.absent = [
            m for m in self.last.members if m not in by_id and m not in leaving
        ]
        new = [each for each in living if each.id not in last]
        self.present = stays + new
        # Whose epoch is later than all that this process knows of has to propose.
        if any(each.after > self.last.epoch for each in living):
            return None
        if not (is_settled and stays) and not self._have_ended(self.absent):
            return None
        if len(stays) < self.majority:
            return None
        return self._record(stays, new, leaving, is_settled)

    def _have_ended(self, members: Iterable[str]) -> bool:
        return all(
            is_known_dead(each, self.own) or self.has_ended(each) for each in members
        )

    def _is_far(self, member: str) -> bool:
        """Tells whether only its beats show that a process lives, of its name or of a
        line with it."""
        return self.place == "-" or f":{self.place}:" not in member

    def _arrivals(self, text: str) -> dict[str, Arrival]:
        key = f"arrivals/{self.base}"
        said = [self.ledger._parsed(Arrival, key, line) for line in text.splitlines()]
        return {each.id: each for each in said}  # the last word of each

    def _living(self, arrivals: list[Arrival]) -> list[Arrival] | None:
        """Returns those that still wait, or None as long as it is open of one."""
        far = [each.id for each in arrivals if self._is_far(each.id)]
        beats = {member: self.store.add(f"beat/{member}", 0) for member in far}
        # Of all of them before any answer, so that they are open at the same time.
        lives = {m: m == self.own or self.beats.lives(m, beats[m]) for m in far}
        if None in lives.values():
            return None
        return [
            each
            for each in arrivals
            if lives.get(each.id, not is_known_dead(each.id, self.own))
        ]

    def _record(
        self,
        stays: list[Arrival],
        new: list[Arrival],
        leaving: dict[str, Arrival],
        is_settled: bool,
    ) -> Record | None:
        rules, last = self.ledger.rules, self.last
        # Members say so before they leave, and what they say of that has been read.
        is_finished = self.ledger.is_finished()
        places = max(last.places - len(leaving), len(stays))
        chosen = [each for each in new if not each.is_spare]
        places = max(places, rules.min_size, len(stays) + len(chosen))
        # Who found no place before is a spare like the others.
        chosen += [each for each in new if each.is_spare]
        if rules.max_size is not None:
            places = min(places, rules.max_size)
        chosen = chosen[: max(0, places - len(stays))]
        # Members of a finished world may have to learn whether its last step succeeded.
        chosen = [] if is_finished else chosen
        size = len(stays) + len(chosen)
        # The members of the first epoch are those that come within `settle`.
        is_whole = bool(stays) or is_settled or size == rules.max_size
        if size < max(1, 0 if is_finished else rules.min_size) or not is_whole:
            return None
        ranks = self._ranks(stays, size)
        by_rank = dict(zip(ranks, [*stays, *chosen], strict=True))
        members = [by_rank[rank].id for rank in sorted(by_rank)]
        done, ready = self._state(stays, leaving)
        groups = {each.group for each in [*stays, *chosen]}
        return Record(
            epoch=max(last.epoch, self.base) + 1,
            identity=self.found.identity,
            members=members,
            ranks=sorted(by_rank),
            joined=[each.id for each in chosen],
            lost=[m for m in last.members if m not in members and m not in leaving],
            left=sorted(leaving),
            ready=ready,
            done=done,
            places=places,
            parent=groups.pop() if len(groups) == 1 else "",
        )

    def _state(
        self, stays: list[Arrival], leaving: dict[str, Arrival]
    ) -> tuple[int | None, list[str]]:
        """Returns the step that was committed last, and who has the state after it."""
        ready = [each for each in stays if each.is_ready]
        # Who has left may have been the only one to see that its last step succeeded.
        # Where the state is lost with those that had it, no step has been committed.
        witnesses = [*stays, *leaving.values()] if ready else []
        done = [each.done for each in witnesses]
        done.append(self.last.done if ready else None)
        latest = max((step for step in done if step is not None), default=None)
        whole = [each for each in ready if not each.lacks(latest)]
        if ready and not whole:  # its result is lost with those that had it
            whole = ready
            latest = max((r.done for r in ready if r.done is not None), default=None)
        return latest, [each.id for each in whole]

    def _ranks(self, stays: list[Arrival], size: int) -> list[int]:
        """Returns the ranks of those that stay, and then of the newcomers."""
        if not self.ledger.rules.is_stable:
            return list(range(size))
        number_of = dict(zip(self.last.members, self.last.ranks, strict=True))
        taken = [number_of[each.id] for each in stays]
        end = max(taken, default=-1) + size + 1
        free = [rank for rank in range(end) if rank not in taken]
        return taken + free[: size - len(taken)]
