# SPDX-License-Identifier: BSD-3-Clause
"""Runs a page of the manual: its programs, and what it says that they print.

A block of Python whose first line is a comment with a file name is that file.  In a
console block a line that begins with "$ " is run in the folder with these files, and
each line below it is printed, in whatever order; three dots stand for anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ports import reserve_port

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
# What tells a process that a launcher has started it.
LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
# For Open MPI, which else starts neither as root nor more ranks than there are cores.
MPIRUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def pages() -> list[Path]:
    """Those that show commands."""
    found = [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")]
    return sorted(page for page in found if "\n```console\n" in page.read_text())


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
    """Whether it is among the lines of the output."""
    pattern = ".*".join(re.escape(part) for part in line.split("..."))
    return re.search(f"^{pattern}$", output, re.MULTILINE) is not None


def is_missing(command: str, folder: Path) -> str:
    """What the command needs and this machine does not have: mpirun, or a package that
    a program imports."""
    if command.startswith("mpirun") and shutil.which("mpirun") is None:
        return "mpirun"
    for name in re.findall(r"[\w-]+\.py", command):
        file = folder / name
        for module in IMPORT.findall(file.read_text() if file.exists() else ""):
            if not (folder / f"{module}.py").exists() and not _is_installed(module):
                return module
    return ""


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def run_page(page: Path, folder: Path) -> list[str]:
    """Runs its commands in `folder`; returns what could not be run, and why."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **MPIRUN, "PATH": path, "PYTHONUNBUFFERED": "1"}
    for name in LAUNCHED:
        environment.pop(name, None)
    # A reader has the port to himself.
    text = page.read_text().replace("29555", str(reserve_port()))
    left_out = []
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name is not None, f"the first line names no file:\n{block}"
            (folder / name[1]).write_text(block)
            continue
        for command, lines in commands_of(block):
            if missing := is_missing(command, folder):
                left_out.append(f"{command}: there is no {missing}")
                continue
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            missing = [line for line in lines if not is_shown(line, done.stdout)]
            assert not missing, f"$ {command}\n{done.stdout}\nmisses: {missing}"
    return left_out
