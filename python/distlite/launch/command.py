# SPDX-License-Identifier: BSD-3-Clause
"""The command ``distlite``: a subcommand, or, as with torchrun, a script to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from distlite.launch.arguments import COMMANDS
from distlite.launch.options import parse
from distlite.launch.supervisor import Supervisor


def run(arguments: Sequence[str], program: str, owns_process: bool) -> int:
    """Runs one job; returns the exit code of the rank that failed first, or 0."""
    return Supervisor(parse(arguments, program), owns_process).run()


def _call_tool(name: str, arguments: Sequence[str]) -> int:
    """Runs a subcommand of distlite.tools, whose module is imported only then."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console command; without arguments it takes those of its
    process, which then belongs to the job."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_named = bool(words) and words[0] in COMMANDS
    name = words.pop(0) if is_named else "run"
    if name != "run":
        return _call_tool(name, words)
    program = "distlite run" if is_named else "distlite"
    return run(words, program, owns_process=arguments is None)
