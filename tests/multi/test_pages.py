# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the manual that show programs: each is run, and prints what is shown.

A block of Python whose first line is a comment with a file name is that file.  In a
console block a line that begins with "$ " is run in the folder with these files, and
each line below it is printed, in whatever order; three dots stand for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import reserve_port

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands_of(block: str) -> list[tuple[str, list[str]]]:
    """Each command with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line != "...":
            found[-1][1].append(line)
    return found


def is_shown(line: str, output: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in line.split("..."))
    return re.search(f"^{pattern}$", output, re.MULTILINE) is not None


@pytest.mark.limit(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        environment.pop(name, None)
    # A reader has the port to himself.
    text = page.read_text().replace("29555", str(reserve_port()))
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name is not None, f"the first line names no file:\n{block}"
            (tmp_path / name[1]).write_text(block)
            continue
        for command, lines in commands_of(block):
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            missing = [line for line in lines if not is_shown(line, done.stdout)]
            assert not missing, f"$ {command}\n{done.stdout}\nmisses: {missing}"
