# SPDX-License-Identifier: BSD-3-Clause
"""What the members of a world read in the store has the types of its fields."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any
from unittest import mock

import pytest

import distlite
from distlite.elastic.ledger import Arrival, Ledger, Record, Rules, _Turn

NAME = "host:1:-:ab"
GOOD = asdict(Record(1, "x", [NAME], [0], joined=[NAME], ready=[NAME], done=3))


def never(_member: str) -> bool:
    """Tells of no process that it has ended."""
    return False


@pytest.fixture
def ledger() -> Ledger:
    rules = Rules(1, None, False, True, 0.0)
    return Ledger(distlite.HashStore(), "world", NAME, rules)


def test_what_was_written_is_read(ledger):
    assert asdict(ledger._parsed(Record, "epoch", json.dumps(GOOD))) == GOOD
    assert ledger._parsed(Record, "epoch", "{}") == Record()
    arrival = Arrival(NAME, 2, is_ready=True)
    raw = json.dumps(asdict(arrival))
    assert ledger._parsed(Arrival, "arrivals/0", raw) == arrival


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": "1"},
        {"epoch": True},
        {"epoch": 1.0},
        {"members": NAME},
        {"members": [1]},
        {"members": ["host"]},
        {"members": [NAME, NAME]},
        {"ranks": ["0"]},
        {"lost": None},
        {"left": ["a:b:c"]},
        {"done": "3"},
        {"identity": None},
    ],
    ids=str,
)
def test_wrong_types_are_told_with_the_key(ledger, changed: dict[str, Any]):
    raw = json.dumps({**GOOD, **changed})
    with pytest.raises(distlite.DistStoreError, match="the key elastic/world/epoch do"):
        ledger._parsed(Record, "epoch", raw)


@pytest.mark.parametrize(
    "fields", [{"id": 1}, {"id": "host"}, {"id": NAME, "is_spare": 0}, {}], ids=str
)
def test_wrong_types_of_an_arrival(ledger, fields: dict[str, Any]):
    with pytest.raises(distlite.DistStoreError, match="another program uses it"):
        ledger._parsed(Arrival, "arrivals/0", json.dumps(fields))


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_step_counts_as_long_as_somebody_has_its_state(is_ready: bool):
    """The one of two members that has the state is lost; the other may have it, too."""
    lost = "host:2:-:cd"
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 0.0))
    record = Record(1, "x", [lost, NAME], [0, 1], joined=[NAME], ready=[lost], done=3)
    store.set("elastic/world/epoch", json.dumps(asdict(record)))
    ledger.last = record
    arrival = Arrival(NAME, 1, is_ready=is_ready, done=3)
    found = ledger.decide(arrival, time.monotonic() + 60, never)
    assert (found.epoch, found.members, found.lost) == (2, [NAME], [lost])
    assert found.ready == ([NAME] if is_ready else [])
    assert found.done == (3 if is_ready else None)


def test_a_spare_does_not_go_on_when_the_last_member_has_finished():
    """It looked whether the work is done before that was so."""
    first = "host:2:-:cd"
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 0.0))
    record = Record(1, "x", [first], [0], ready=[first], done=3)
    raw = json.dumps(asdict(record))
    store.set("elastic/world/epoch", raw)
    turn = _Turn(ledger, Arrival(NAME, is_spare=True), raw, record)
    store.set("elastic/world/finished", "")
    leaving = Arrival(first, 1, is_leaving=True, done=3)
    store.append("elastic/world/arrivals/1", json.dumps(asdict(leaving)) + "\n")
    turn.go(0.01, never)
    assert store.get("elastic/world/epoch").decode() == raw


OTHER, GONE, SPARE = "host:2:-:cd", "host:3:-:ef", "host:4:-:12"


@pytest.mark.parametrize("members", [[OTHER], []], ids=["majority", "minority"])
def test_in_another_store_a_majority_of_the_members_comes(members: list[str]):
    """The spare counts for the size, and not for the majority."""
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(3, None, False, True, 0.0))
    ledger.last = Record(4, "old", [NAME, OTHER, GONE], [0, 1, 2])
    arrivals = [Arrival(each, 4) for each in members]
    arrivals += [Arrival(SPARE, is_spare=True), Arrival(GONE + "0", is_spare=True)]
    for each in arrivals:
        store.append("elastic/world/arrivals/0", json.dumps(asdict(each)) + "\n")
    with mock.patch.object(_Turn, "_living", lambda turn, present: present):
        if members:
            found = ledger.decide(Arrival(NAME, 4), time.monotonic() + 60, never)
            assert found.epoch == 5 and found.members[:2] == [NAME, OTHER]
        else:
            with pytest.raises(distlite.DistStoreError, match="Nobody is evicted"):
                ledger.decide(Arrival(NAME, 4), time.monotonic() + 0.2, never)


@pytest.mark.parametrize(
    ("dropped", "witness", "ready", "done"),
    [
        ((None, None), 7, [NAME, OTHER], 7),  # both kept their results
        ((7, None), 7, [OTHER], 7),
        ((7, 7), 7, [NAME, OTHER], 6),  # who saw the success is gone with its result
        ((7, 7), 6, [NAME, OTHER], 6),  # nobody saw it
    ],
)
def test_a_member_without_the_result_of_a_committed_step_is_behind(
    dropped: tuple[int | None, int | None],
    witness: int,
    ready: list[str],
    done: int,
):
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 0.0))
    last = Record(1, "x", [NAME, OTHER, GONE], [0, 1, 2], ready=[NAME, OTHER], done=5)
    raw = json.dumps(asdict(last))
    store.set("elastic/world/epoch", raw)
    ledger.last = last
    own = Arrival(NAME, 1, is_ready=True, done=6, dropped=dropped[0])
    for each in (
        Arrival(OTHER, 1, is_ready=True, done=6, dropped=dropped[1]),
        Arrival(GONE, 1, is_leaving=True, is_ready=True, done=witness),
    ):
        store.append("elastic/world/arrivals/1", json.dumps(asdict(each)) + "\n")
    with mock.patch.object(_Turn, "_living", lambda turn, present: present):
        found = ledger.decide(own, time.monotonic() + 60, never)
    assert (found.ready, found.done) == (ready, done)


def test_members_elsewhere_are_looked_at_together():
    """Of each of them it takes a second look to see that it lives."""
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 60.0))
    others = [f"host:{number}:-:{number}" for number in range(5)]
    last = Record(1, "x", [NAME, *others], list(range(6)))
    ledger.last = last
    raw = json.dumps(asdict(last))
    store.set("elastic/world/epoch", raw)
    for each in others:
        line = json.dumps(asdict(Arrival(each, 1))) + "\n"
        store.append("elastic/world/arrivals/1", line)
    turn = _Turn(ledger, Arrival(NAME, 1), raw, last)
    for _ in range(2):
        assert store.get("elastic/world/epoch").decode() == raw
        for each in others:
            store.add(f"elastic/world/beat/{each}", 1)
        turn.go(60.0, never)
    assert json.loads(store.get("elastic/world/epoch"))["epoch"] == 2


def test_the_first_member_to_come_calls_those_that_wait():
    """A member that is about to call may end: then others call after a moment."""
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 60.0))
    ledger.last = last = Record(1, "x", [NAME, OTHER], [0, 1])
    raw, called = json.dumps(asdict(last)), "elastic/world/called/1"
    store.set("elastic/world/epoch", raw)
    turn = _Turn(ledger, Arrival(NAME, 1), raw, last)
    turn.go(1.0, never)
    assert store.delete_key(called)
    store.set("elastic/world/arrivals/1", json.dumps(asdict(Arrival(OTHER, 1))) + "\n")
    turn = _Turn(ledger, Arrival(NAME, 1), raw, last)
    for is_there in (False, True):
        turn.go(1.0, never)
        assert store.check([called]) == is_there


def test_a_proposal_does_not_come_into_another_store():
    """The store is empty again between reading the record and proposing the next."""
    store = distlite.HashStore()
    ledger = Ledger(store, "world", NAME, Rules(1, None, False, True, 0.0))
    raw = json.dumps(asdict(Record(identity="old")))
    turn = _Turn(ledger, Arrival(NAME), raw, Record(identity="old"))
    turn.go(0.01, never)
    assert not store.check(["elastic/world/epoch"])


def test_a_member_that_counts_as_a_source_without_the_result_ends_the_epoch():
    """The others had read what it said before it dropped the result."""
    member = distlite.elastic.join(distlite.HashStore(), "world", min_size=1)
    member._begun = 3
    first = Record(2, "x", [member.id], [0], ready=[member.id], done=3)
    second = Record(3, "x", [member.id], [0], done=3)
    said, ended = [], []

    def decide(arrival: Arrival, *_: object) -> Record:
        said.append(arrival.dropped)
        return [first, second][len(said) - 1]

    with (
        mock.patch.object(member._ledger, "decide", decide),
        mock.patch.object(member, "_enter", lambda record, deadline: record.epoch),
        mock.patch.object(member, "_end", ended.append),
    ):
        assert member.next() == 3
    assert said == [3, 3]
    assert ended[-1] == "a member has no result of step 3 any more"
    assert member.done == 3 and member._begun is None
    member._view = None
    member.leave()


def test_a_member_has_room_for_the_descriptors_of_two_epochs():
    """To make room later takes time for which the other members wait."""
    program = """
import resource, distlite, distlite.elastic
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
with distlite.elastic.join(distlite.HashStore()):
    print(open("/proc/self/status").read())
"""
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "\nFDSize:\t1024\n" in shown
