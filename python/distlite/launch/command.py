# SPDX-License-Identifier: BSD-3-Clause
"""The command ``distlite``: a subcommand, or, as with torchrun, a script to run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from distlite.launch.options import parse
from distlite.launch.supervisor import Supervisor


def run(arguments: Sequence[str], program: str = "distlite run") -> int:
    """Run one job; return the exit code of the rank that failed first, or 0."""
    return Supervisor(parse(arguments, program)).run()


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"run": run}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console command."""
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    return run(arguments, "distlite")
