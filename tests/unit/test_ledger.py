# SPDX-License-Identifier: BSD-3-Clause
"""What the members of a world read in the store has the types of its fields."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import pytest

import distlite
from distlite.elastic.ledger import Arrival, Ledger, Record, Rules, _Turn

NAME = "host:1:-:ab"
GOOD = asdict(Record(1, "x", [NAME], [0], joined=[NAME], ready=[NAME], done=3))


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
    found = ledger.decide(arrival, time.monotonic() + 60)
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
    turn.go(0.01)
    assert store.get("elastic/world/epoch").decode() == raw
