# SPDX-License-Identifier: BSD-3-Clause
"""What the members of a world read in the store has the types of its fields."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

import distlite
from distlite.elastic.ledger import Arrival, Ledger, Record, Rules

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
