# SPDX-License-Identifier: BSD-3-Clause
"""Tries a wheel in a clean environment of the interpreter that runs this:

    python3.12 packaging/smoke.py dist [--numpy oldest]

pip chooses the wheel that fits out of the folder, and takes NumPy from PyPI.  Then the
package is imported, `distlite --version` is called, a store keeps a value, and two
ranks sum an array.  Nothing but the standard library is needed, nor any compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "5"]
# The first ones that PyPI has wheels of for that Python, and that distlite runs with.
OLDEST_NUMPY = {
    (3, 10): "1.23.0",
    (3, 11): "1.23.2",
    (3, 12): "1.26.0",
    (3, 13): "2.1.0",
    (3, 14): "2.3.2",
    (3, 15): "2.5.2",
}
# Of one step.  Emulated processors are slow.
LIMIT_SECONDS = 600

FIRST_STEPS = """
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from sysconfig import get_config_var

import distlite

if get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled(), "the import has turned the GIL on"

here = Path(distlite._C.__file__)
assert Path(sys.prefix) in here.parents, f"{here} is not that of {sys.prefix}"
assert distlite.__version__ == version("distlite"), version("distlite")
with distlite.TCPStore(
    "127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60)
) as store:
    store.set("colour", "blue")
    assert store.get("colour") == b"blue"
    assert store.add("count", 2) == 2
print(here)
"""

RANKS = """
import distlite as dist
import numpy as np

with dist.process_group("gloo"):
    rank = dist.get_rank()
    for dtype in (np.float32, np.float64, np.int64):
        x = np.arange(1000, dtype=dtype) + 7 * rank
        dist.all_reduce(x)
        expected = 2 * np.arange(1000, dtype=dtype) + 7
        assert np.array_equal(x, expected), (rank, dtype, x)
    everyone = [None, None]
    dist.all_gather_object(everyone, f"rank {rank}")
    assert everyone == ["rank 0", "rank 1"], everyone
    print(f"rank {rank} has the sums")
"""


def call(folder: Path, *command: str | Path) -> str:
    """Its output; ends this program where the command fails."""
    words = [str(word) for word in command]
    # Neither this checkout nor what its developers have set may help.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DISTLITE_", "PYTHON"))
    }
    done = subprocess.run(
        words,
        cwd=folder,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def install(folder: Path, wheels: Path, numpy: str) -> Path:
    """Into a new environment, whose interpreter is returned."""
    call(folder, sys.executable, "-m", "venv", "--clear", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    call(folder, python, *PIP, "install", "--only-binary=:all:", numpy)
    # No dependencies either: what is not NumPy must not be needed.
    places = ["--no-index", "--find-links", wheels, "--only-binary=:all:", "--no-deps"]
    call(folder, python, *PIP, "install", *places, "distlite")
    call(folder, python, *PIP, "check")
    return python


def try_wheel(folder: Path, wheels: Path, numpy: str) -> str:
    """What was tried, in words."""
    python = install(folder, wheels, numpy)
    distlite = python.with_name("distlite")
    loaded = Path(call(folder, python, "-c", FIRST_STEPS).strip()).name
    version = call(folder, distlite, "--version").strip()
    program = folder / "ranks.py"
    program.write_text(RANKS)
    said = call(folder, distlite, "run", "-n", "2", program)
    for rank in range(2):
        if f"rank {rank} has the sums" not in said:
            sys.exit(f"rank {rank} said nothing:\n{said}")
    about = (
        "import numpy, platform; print(platform.python_version(), numpy.__version__)"
    )
    python_version, numpy_version = call(folder, python, "-c", about).split()
    return f"{version}: {loaded}, Python {python_version}, NumPy {numpy_version}: ok"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheels", type=Path, help="a folder of wheels, such as dist")
    parser.add_argument(
        "--numpy", choices=("newest", "oldest"), default="newest", help="which NumPy"
    )
    options = parser.parse_args(words)
    numpy = "numpy"
    if options.numpy == "oldest":
        numpy += f"=={OLDEST_NUMPY[sys.version_info[:2]]}"
    with tempfile.TemporaryDirectory(prefix="distlite-smoke-") as folder:
        said = try_wheel(Path(folder).resolve(), options.wheels.resolve(), numpy)
    print(said)


if __name__ == "__main__":
    main()
