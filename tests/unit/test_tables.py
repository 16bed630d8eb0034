# SPDX-License-Identifier: BSD-3-Clause
"""Tables of `distlite ps` and its like are whole, however wide the terminal is."""

from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from distlite.tools.text import show

HEADERS = ("rank", "in", "called at")
OPERATION = "all_gather_into_tensor(1048576 x bfloat16 on device cuda:3) #12345"
SITE = "some_long_module_name.py:1234 in a_function_with_a_long_name"
ROW = ("0", OPERATION, SITE)
LINE = f"0     {OPERATION}  {SITE}"


def test_without_a_terminal():
    file = io.StringIO()
    show("job", HEADERS, [ROW], file)
    assert file.getvalue().splitlines()[2] == LINE


class Terminal:
    """One that is written to, and what has been written."""

    def __init__(self) -> None:
        self.outer, inner = pty.openpty()
        self.file = os.fdopen(inner, "w")

    def text(self) -> str:
        self.file.flush()
        return os.read(self.outer, 65536).decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    # A line feed stays one.
    fd = made.file.fileno()
    mode = termios.tcgetattr(fd)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    yield made
    made.file.close()
    os.close(made.outer)


@pytest.mark.parametrize("columns", ["40", "80", "130", "0"])
def test_what_a_terminal_has_no_room_for_is_not_cut(terminal, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")  # of which rich believes that it has 80
    show("job", HEADERS, [ROW], terminal.file)
    assert LINE in terminal.text().splitlines()


def test_a_table_that_fits_is_drawn(terminal, monkeypatch):
    pytest.importorskip("rich", reason="rich, which draws it, is not installed")
    monkeypatch.setenv("COLUMNS", "180")
    monkeypatch.setenv("TERM", "dumb")
    show("job [a]", HEADERS, [ROW], terminal.file)
    text = terminal.text()
    assert text.startswith("job [a]")
    assert f"│ 0    │ {OPERATION} │ {SITE} │" in text
