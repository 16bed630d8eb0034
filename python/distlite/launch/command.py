# SPDX-License-Identifier: BSD-3-Clause
"""The command ``distlite``: a subcommand, or, as with torchrun, a script to run."""

from __future__ import annotations

import os
import sys

from distlite.launch.options import parse
from distlite.launch.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run(arguments: Sequence[str], program: str = "distlite run") -> int:
    """Runs one job; returns the exit code of the rank that failed first, or 0."""
    return Supervisor(parse(arguments, program)).run()


def _tool(name: str) -> Callable[[Sequence[str]], int]:
    """Returns a subcommand of distlite.tools, whose module is imported when it is
    called."""

    def call(arguments: Sequence[str]) -> int:
        from importlib import import_module

        module = import_module(f"distlite.tools.{name}")
        try:
            code = int(module.main(arguments))
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader, such as head(1), has closed the pipe.  The rest is discarded;
            # else the interpreter would write it at its end and report the error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            print(f"distlite {name}: {error}", file=sys.stderr)
            return 1
        return code

    return call


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "ps": _tool("ps"),
    "trace": _tool("trace"),
    "doctor": _tool("doctor"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console command."""
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    return run(arguments, "distlite")
