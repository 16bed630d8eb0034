# SPDX-License-Identifier: BSD-3-Clause
"""``python -m distlite.run``: the launcher, under the module path that torch uses."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from distlite.launch.command import run as _run_command

__all__ = ["get_args_parser", "main", "parse_args", "run"]


def get_args_parser() -> ArgumentParser:
    """Returns the launcher's options as a parser of argparse.

    The values have torchrun's names, types and defaults, and programs may add options
    of their own. `run` takes the values.

    Returns:
        A new parser. The default of an option is the value of its variable, such as
        `PET_NNODES` for `--nnodes`, when the parser was made.

    Example:
        >>> from distlite import run
        >>> run.get_args_parser().parse_args(["--nnodes=2", "train.py", "-x"]).nnodes
        '2'
    """
    from distlite.launch.arguments import make_parser

    return make_parser()


def parse_args(args: Sequence[str] | None = None) -> Namespace:
    """Parses a command line of the launcher, and does not run it.

    Args:
        args: The words of the command line, without the command itself; None is those
            of this process.

    Returns:
        The values, by torchrun's names.

    Example:
        >>> from distlite import run
        >>> run.parse_args(["-n", "4", "train.py"]).nproc_per_node
        '4'
    """
    return get_args_parser().parse_args(args)


def run(args: Namespace) -> None:
    """Runs the job that the values of a command line describe.

    Call it on the main thread, which handles signals until the job ends.

    Args:
        args: The values from the parser of `get_args_parser`, or from torch's.

    Raises:
        ValueError: The values do not fit together.
        SystemExit: The job has failed; a report was written to stderr. It has the exit
            status of the rank that failed first.

    Example:
        >>> from distlite import run
        >>> args = run.parse_args(["--standalone", "--nnodes=2", "train.py"])
        >>> run.run(args)
        Traceback (most recent call last):
        ValueError: --standalone is for one node
    """
    from distlite.launch.options import options_of
    from distlite.launch.supervisor import Supervisor

    status = Supervisor(options_of(args)).run()
    if status != 0:
        raise SystemExit(status)


def main(args: Sequence[str] | None = None) -> int:
    """Runs one job, as `distlite run` does.

    Args:
        args: The words of the command line, without the command itself; None is those
            of this process.

    Returns:
        The exit status: 0, or that of the rank that failed first.

    Example:
        >>> from distlite import run
        >>> try:
        ...     run.main(["--version"])
        ... except SystemExit as end:
        ...     print(end.code)
        0
    """
    words = sys.argv[1:] if args is None else args
    return _run_command(words, "python -m distlite.run", owns_process=args is None)


if __name__ == "__main__":
    sys.exit(main())
