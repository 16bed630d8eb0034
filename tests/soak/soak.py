# SPDX-License-Identifier: BSD-3-Clause
"""Looks for what tests of a few minutes do not meet: `soak.py --minutes 60 --seed 1`.

A part is a module of this folder with a function `main(seconds, seed)`, which prints
what failed with the seed that replays it, and returns the number of failures.  Each
part runs in a process of its own with an equal share of the minutes, and leaves nothing
behind: no process, no shared memory.  `tests`, which runs `make test` over and over,
takes part where it is named, or where there are at least two hours.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path.insert(0, str(FOLDER.parent))

from own_folder import own_folder  # noqa: E402

TOKEN = "DISTLITE_SOAK_RUN"
# For the round that is under way when a part's time is up.
GRACE = 240.0
TESTS_FROM = 120  # minutes


def part_names() -> list[str]:
    modules = [path for path in FOLDER.glob("*.py") if path != Path(__file__)]
    return sorted(p.stem for p in modules if "\ndef main(" in p.read_text())


def run_part(name: str, seconds: float, seed: int) -> int:
    sys.path.insert(0, str(FOLDER))
    if name == "tests":
        return run_tests(seconds)
    return importlib.import_module(name).main(seconds, seed)


def run_tests(seconds: float) -> int:
    began = time.monotonic()
    runs = failures = 0
    while runs == 0 or time.monotonic() - began < seconds:
        done = subprocess.run(
            ["make", "test"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        runs += 1
        if done.returncode != 0:
            failures += 1
            print(f"-- tests: run {runs} failed\n{done.stdout}{done.stderr}")
    print(f"tests: {runs} runs of `make test`")
    return failures


def processes_of(token: str) -> list[int]:
    """Those that were started from here, by their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{TOKEN}={token}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def left_behind(token: str) -> list[str]:
    """What is still there after a part; processes are killed."""
    deadline = time.monotonic() + 10
    while processes_of(token) and time.monotonic() < deadline:
        time.sleep(0.1)
    texts = []
    for pid in processes_of(token):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            texts.append(f"process {pid}: {command.decode(errors='replace')[:200]}")
            os.kill(pid, signal.SIGKILL)
    return texts


def watch_part(name: str, seconds: float, seed: int) -> list[str]:
    """Runs a part in a process; what went wrong."""
    token = f"{os.getpid()}-{name}"
    arguments = ["--part", name, "--seconds", str(seconds), "--seed", str(seed)]
    with own_folder("soak-") as folder:
        folders = {"DISTLITE_RUNTIME_DIR": folder, "TMPDIR": folder}
        environment = {**os.environ, TOKEN: token, **folders}
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", __file__, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        wrong = []
        try:
            status = process.wait(None if name == "tests" else seconds + GRACE)
            if status != 0:
                wrong.append(f"exit status {status}")
        except subprocess.TimeoutExpired:
            wrong.append(f"hangs: not over after {seconds + GRACE:.0f} s")
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            process.kill()
            process.wait()
            wrong += left_behind(token)
    return wrong


def main() -> int:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and so would the ranks that a part
        # interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    names = part_names()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="for all parts")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--what", default="", help=",".join([*names, "tests"]))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return int(run_part(options.part, options.seconds, options.seed) != 0)
    seed = int(time.time()) if options.seed is None else options.seed
    chosen = [name for name in options.what.split(",") if name] or names
    if not options.what and options.minutes >= TESTS_FROM:
        chosen.append("tests")
    unknown = set(chosen) - {*names, "tests"}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}: {', '.join(names)}, tests")
    began = time.monotonic()
    failed = 0
    for name in chosen:
        seconds = options.minutes * 60 / len(chosen)
        print(f"-- {name}: seed {seed}, {seconds:.0f} s", flush=True)
        wrong = watch_part(name, seconds, seed)
        failed += bool(wrong)
        for text in wrong:
            print(f"-- {name}: {text}", flush=True)
    counts = f"{failed} failed, " if failed else ""
    spent = time.monotonic() - began
    print(f"==== {counts}{len(chosen) - failed} passed in {spent:.2f}s ====")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
