# SPDX-License-Identifier: BSD-3-Clause
"""tests/parts.py: how the tests are divided into runs of about the same length."""

from __future__ import annotations

import json
from pathlib import Path

import parts


def test_every_file_of_tests_is_in_one_part():
    dealt = [
        name for part in parts.divide(parts.units(), parts.known(), 7) for name in part
    ]
    assert sorted(dealt) == sorted(set(dealt)) == sorted(parts.units())
    # A folder that is not divided would be left out in silence.
    folders = {str(file.parent.relative_to(parts.ROOT)) for file in find_tests()}
    divided = {*parts.FOLDERS, *parts.FILES}
    assert folders - divided <= {"tests/lint", "tests/hostile"}


def find_tests() -> list[Path]:
    tests = parts.ROOT / "tests"
    return [*tests.rglob("test_*.py"), *(tests / "c").glob("test_*.c")]


def test_parts_are_about_equal():
    seconds = {"a": 9.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 3.0, "f": 2.0}
    divided = parts.divide(seconds, seconds, 3)
    assert sorted(sum(seconds[name] for name in part) for part in divided) == [8, 9, 9]


def test_a_new_file_counts_as_the_one_in_the_middle():
    known = {"short": 1.0, "middle": 2.0, "long": 30.0}
    assert parts.divide([*known, "new"], known, 2) == [
        ["long"],
        ["middle", "new", "short"],
    ]
    assert parts.divide(["new"], {}, 2) == [["new"], []]


def test_what_runs_measured_is_added_up(tmp_path, monkeypatch):
    (tmp_path / "1.json").write_text(
        json.dumps({"tests/c/test_a.c": 1.25, "gone.py": 3})
    )
    (tmp_path / "2.json").write_text(json.dumps({"tests/c/test_b.c": 2.0}))
    monkeypatch.setattr(parts, "DURATIONS", tmp_path / "durations.json")
    parts.record(tmp_path)
    assert parts.known().keys() == set(parts.units())
    assert parts.known()["tests/c"] == 3.2
