# SPDX-License-Identifier: BSD-3-Clause
"""Each message that docs/errors.md explains is said somewhere in the sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = (ROOT / "docs" / "errors.md").read_text()
# What is shorter may be found anywhere.
SHORTEST = 5


def messages() -> list[str]:
    """The first columns of the tables of messages."""
    part = DOCUMENT.split("## Messages")[1].split("## Timeouts")[0]
    return re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE)


def as_said(source: str) -> str:
    """Literals joined as compilers do; formats' parts become "..."."""
    source = re.sub(r'"\s*PRI\w+\s*"', "d", source)
    source = re.sub(r'"\s*f?"', "", source)
    source = re.sub(r"%[-#0-9.*]*(?:ll|z|l)?[a-zA-Z]", "...", source)
    # Not across lines: in C, braces hold functions.
    return re.sub(r"\{[^{}\n]*\}", "...", source)


@cache
def sources() -> list[str]:
    paths = [*ROOT.glob("csrc/**/*.c"), *ROOT.glob("python/distlite/**/*.py")]
    return [as_said(path.read_text()) for path in paths]


def parts_of(message: str) -> list[str]:
    return [part for part in message.split("...") if len(part) >= SHORTEST]


def test_there_are_messages():
    assert len(messages()) > 25


@pytest.mark.parametrize("message", messages())
def test_a_message_is_said(message):
    parts = parts_of(message)
    assert parts, f"{message!r} says too little to be found"
    assert any(all(part in source for part in parts) for source in sources()), message


def test_a_message_that_nobody_says_is_found_out():
    parts = parts_of("group ... has gone fishing")
    assert not any(all(part in source for part in parts) for source in sources())


def test_literals_are_joined():
    assert as_said('"a %" PRId64\n  " ms: %s"') == '"a ... ms: ..."'
    assert as_said('f"rank {rank} "\n f"of {size}"') == 'f"rank ... of ..."'
