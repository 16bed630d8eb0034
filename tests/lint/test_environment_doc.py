# SPDX-License-Identifier: BSD-3-Clause
"""docs/environment.md has each variable that the sources read or set, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = (ROOT / "docs" / "environment.md").read_text()
# Where a variable's name stands by itself in a literal: most names have an underscore.
ANY_NAME = re.compile(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+_?|PET_)"')
# Those without one are found by what looks them up.
LOOKED_UP = re.compile(
    r"(?:getenv|switched|environment_number|environ(?:ment)?(?:\.\w+)?)"
    r'\s*[(\[]\s*"([A-Z][A-Z0-9_]*)"'
)
# What the launcher sets: keywords of a call.
SET = re.compile(r"\b([A-Z][A-Z0-9_]+)=")
# Literals of the same look that name something else; first, requests to a store.
REQUESTS = "CANCEL_WAIT COMPARE_SET DELETE_KEY LIST_KEYS MULTI_GET MULTI_SET"
NO_VARIABLES = {
    *REQUESTS.split(),
    *("QUEUE_LEN", "QUEUE_POP", "QUEUE_PUSH"),
    *("ALL_GATHER", "CS_GNU_LIBC_VERSION", "NO_BACKEND", "SC_OPEN_MAX", "TCP_TLS"),
    *("PREMUL_SUM", "SHRINK_ABORT", "SHRINK_DEFAULT"),
}


def sources() -> list[Path]:
    paths = [*ROOT.glob("csrc/**/*.[ch]"), *ROOT.glob("python/**/*.py")]
    return [*paths, ROOT / "setup.py"]


def names_in(source: str) -> set[str]:
    return {*ANY_NAME.findall(source), *LOOKED_UP.findall(source)} - NO_VARIABLES


def used() -> set[str]:
    names = {name for path in sources() for name in names_in(path.read_text())}
    launcher = ROOT / "python" / "distlite" / "launch" / "environment.py"
    return names | set(SET.findall(launcher.read_text()))


def told() -> set[str]:
    """The names in the first columns of all tables."""
    cells = re.findall(r"^\| (`.*?`) \|", DOCUMENT, re.MULTILINE)
    return {
        name.removesuffix("...")
        for cell in cells
        for name in re.findall(r"`([^`]+)`", cell)
    }


def test_every_variable_is_told():
    assert not used() - told()


def test_every_variable_that_is_told_is_used():
    assert not told() - used()


def test_names_are_found_in_both_languages():
    assert names_in('value = getenv("RANK");') == {"RANK"}
    assert names_in('os.environ.get("TMPDIR") or environment["RANK"]') == {
        "TMPDIR",
        "RANK",
    }
    assert names_in('#define VARIABLE "GLOO_SOCKET_IFNAME"') == {"GLOO_SOCKET_IFNAME"}
    assert names_in('fail("RANK is missing")') == set()
