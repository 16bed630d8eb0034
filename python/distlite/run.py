# SPDX-License-Identifier: BSD-3-Clause
"""``python -m distlite.run``: the launcher, under the module path that torch uses."""

from __future__ import annotations

import sys

from distlite.launch.command import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


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
    return run(sys.argv[1:] if args is None else args, "python -m distlite.run")


def __dir__() -> list[str]:
    return __all__


if __name__ == "__main__":
    sys.exit(main())
