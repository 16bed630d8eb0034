# SPDX-License-Identifier: BSD-3-Clause
"""Debug levels, and what missing and differing ranks are told: torch's words, and ours.

torch runs in processes of its own, once; ours run the same function.
"""

from __future__ import annotations

import re

import pytest
from debug_parity_ranks import debug
from workers import run_ranks

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

# Processes that import torch take their time.
pytestmark = pytest.mark.slow

BOTH = [torch.distributed, distlite]
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


@pytest.fixture(scope="module")
def reports() -> list[list[dict[str, str]]]:
    """By library, then by rank."""
    return [
        run_ranks(debug, 2, env=DETAIL, timeout=200, library=library)
        for library in ("torch.distributed", "distlite")
    ]


def test_levels_look_the_same():
    theirs, ours = (dist.DebugLevel for dist in BOTH)
    for name in "OFF", "INFO", "DETAIL":
        assert repr(getattr(ours, name)) == repr(getattr(theirs, name))
        assert int(getattr(ours, name)) == int(getattr(theirs, name))
    assert repr(distlite.get_debug_level()) == repr(BOTH[0].get_debug_level())


@pytest.mark.parametrize("value", ["off", "Info", "DETAIL", "", "2", None])
def test_the_environment_is_read_alike(monkeypatch, value):
    results = []
    if value is None:
        monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG", raising=False)
    else:
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", value)
    for dist in BOTH:
        dist.set_debug_level(dist.DebugLevel.INFO)
        try:
            dist.set_debug_level_from_env()
            results.append("")
        except ValueError as error:
            results.append(str(error).splitlines()[0])
        results[-1] += repr(dist.get_debug_level())
        dist.set_debug_level(dist.DebugLevel.OFF)
    assert results[0] == results[1]


def test_only_levels_are_taken():
    for dist in BOTH:
        for wrong in 1, "INFO":
            with pytest.raises(TypeError):
                dist.set_debug_level(wrong)


@pytest.mark.parametrize("what", ["shape", "operation"])
def test_a_mismatch_is_told_in_the_same_frame(reports, what):
    frame = (
        r"Detected mismatch between collectives on ranks\. Rank (\d) is running "
        r"collective: .*, but Rank (\d) is running collective: .*"
        r"Collectives differ in the following aspects:"
    )
    for ranks in reports:
        for report in ranks:
            found = re.match(frame, report[what], re.DOTALL)
            assert found is not None, report[what]
            assert {found[1], found[2]} == {"0", "1"}


def test_a_missing_rank_is_told_in_the_same_words(reports):
    theirs, ours = ([report["monitored"] for report in ranks] for ranks in reports)
    assert ours[0].splitlines()[:2] == theirs[0].splitlines()[:2]
    theirs, ours = ([report["monitored all"] for report in ranks] for ranks in reports)
    assert ours[0].splitlines()[0] == theirs[0].splitlines()[0]


def test_a_missing_rank_in_a_collective_is_told_in_the_same_words(reports):
    theirs, ours = (ranks[0]["missing"].splitlines()[0] for ranks in reports)
    assert ours == theirs
