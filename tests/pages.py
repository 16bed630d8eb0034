# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of a page of the manual, and compares their output with the page.

A block of Python whose first line is a comment with a file name is that file.  In a
console block a line that begins with "$ " is run in the folder with these files, and
each line below it is printed, in whatever order; three dots stand for anything.  A line
that ends with a backslash goes on in the next one.

Of a page with several hosts, "host1$ " begins a command there, and all such commands of
a block run at the same time; those after "host1# " run one after the other.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from netns import Host
from ports import reserve_port

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWS = re.compile(r"^```console\n\$ ", re.MULTILINE)
PROMPT = re.compile(r"(\w*)([$#]) (.*)")
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


@dataclass
class Command:
    host: str  # none: this one
    text: str
    is_alone: bool  # no other one of its block runs meanwhile
    lines: list[str]  # that it prints

    def check(self, output: str) -> None:
        missing = [line for line in self.lines if not is_shown(line, output)]
        assert not missing, f"{self.host}$ {self.text}\n{output}\nmisses: {missing}"


def pages() -> list[Path]:
    """Returns the pages that show commands for one host."""
    found = [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")]
    return sorted(page for page in found if SHOWS.search(page.read_text()))


def commands_of(block: str) -> list[Command]:
    found: list[Command] = []
    for line in block.replace("\\\n", " ").splitlines():
        if prompt := PROMPT.fullmatch(line):
            host, kind, text = prompt.groups()
            found.append(Command(host, text, not host or kind == "#", []))
        elif line != "...":
            found[-1].lines.append(line)
    return found


def is_shown(line: str, output: str) -> bool:
    """Whether it is among the lines of the output."""
    pattern = ".*".join(re.escape(part) for part in line.split("..."))
    return re.search(f"^{pattern}$", output, re.MULTILINE) is not None


def is_missing(command: str, folder: Path) -> str:
    """Returns what the command needs and this machine does not have: mpirun, or a
    package that a program imports."""
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


def run_page(
    page: Path, folder: Path, hosts: Mapping[str, Host] | None = None
) -> list[str]:
    """Runs its commands in `folder`; returns what could not be run, and why."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **MPIRUN, "PATH": path}
    for name in LAUNCHED:
        environment.pop(name, None)
    text = page.read_text()
    if not hosts:  # Each port of a network namespace is free, as is a reader's.
        text = text.replace("29555", str(reserve_port()))
    left_out = []
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name is not None, f"the first line names no file:\n{block}"
            compile(block, name[1], "exec")
            (folder / name[1]).write_text(block)
            continue
        running: list[tuple[Command, subprocess.Popen[str]]] = []
        for command in commands_of(block):
            if missing := is_missing(command.text, folder):
                left_out.append(f"{command.text}: there is no {missing}")
                continue
            words = ["sh", "-c", command.text]
            process = subprocess.Popen(
                hosts[command.host].command(words) if hosts else words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if command.is_alone:
                command.check(process.communicate()[0])
            else:
                running.append((command, process))
        outputs = [process.communicate()[0] for _, process in running]
        for (command, _), output in zip(running, outputs, strict=True):
            command.check(output)
    return left_out
