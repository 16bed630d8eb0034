# SPDX-License-Identifier: BSD-3-Clause
"""``python -m distlite.launch``: the older command, as torch.distributed.launch.

The rank is also the script's first argument, --local-rank=R, unless --use-env says that
the script takes it from LOCAL_RANK.
"""

from __future__ import annotations

import sys

from distlite.launch.options import parse
from distlite.launch.supervisor import Supervisor


def main(arguments: list[str]) -> int:
    """Runs one job; returns its exit code."""
    options = parse(arguments, "python -m distlite.launch", is_older=True)
    return Supervisor(options, owns_process=True).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
