# SPDX-License-Identifier: BSD-3-Clause
"""Runs every fuzz target for a while: `fuzz.py --seconds 60`.

With clang at hand libFuzzer looks for new paths; otherwise, and with --plain,
replay.c mutates the corpus.  Both under the address and undefined-behaviour sanitizers.
Last comes safe_codec.py, with the extension that is built.
An input that fails is left in build/fuzz: put it into the corpus with the mending.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from c_build import ROOT, Builder, BuildError  # noqa: E402
from own_folder import own_folder  # noqa: E402

FOUND = ROOT / "build" / "fuzz"


def targets() -> list[Path]:
    """One C file per target."""
    return sorted(FOLDER.glob("fuzz_*.c"))


def corpus(target: Path) -> list[Path]:
    """The inputs of a target: corpus/<what>/*, for fuzz_<what>.c."""
    return sorted((FOLDER / "corpus" / target.stem.removeprefix("fuzz_")).iterdir())


def plain(target: Path, seconds: int, seed: int) -> list[str]:
    builder = Builder("address,undefined")
    program = builder.program(target, FOLDER / "replay.c")
    inputs = [str(path) for path in corpus(target)]
    return [str(program), "--mutate", str(seconds), str(seed), *inputs]


def with_libfuzzer(target: Path, seconds: int, seed: int) -> list[str]:
    program = Builder("fuzzer,address,undefined", "clang").program(target)
    learned = FOUND / target.stem
    learned.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20"]
    options += ["-print_final_stats=0", "-verbosity=0", f"-artifact_prefix={FOUND}/"]
    return [str(program), *options, str(learned), str(corpus(target)[0].parent)]


def safe_codec(seconds: int, seed: int) -> int:
    """Returns its exit status."""
    command = [sys.executable, str(FOLDER / "safe_codec.py")]
    command += [f"--seconds={seconds}", f"--seed={seed}"]
    kept = FOUND / "safe_codec-input"
    print(f"safe_codec.py: {seconds} s, seed {seed}", flush=True)
    done = subprocess.run(command, env={**os.environ, "FUZZ_INPUT": str(kept)})
    if done.returncode != 0:
        print(f"safe_codec.py failed; its input is in {FOUND}", flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--plain", action="store_true", help="no libFuzzer")
    options = parser.parse_args()
    with own_folder("distlite-fuzz-") as folder:
        os.environ["TMPDIR"] = folder
        return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    FOUND.mkdir(parents=True, exist_ok=True)
    make = plain if options.plain or shutil.which("clang") is None else with_libfuzzer
    failed = 0
    for target in targets():
        seconds = max(1, options.seconds // (len(targets()) + 1))
        try:
            command = make(target, seconds, options.seed)
        except BuildError as error:
            if make is plain:
                raise
            print(f"without libFuzzer: {str(error).splitlines()[-1]}", flush=True)
            make = plain
            command = make(target, seconds, options.seed)
        print(f"{target.name}: {seconds} s, seed {options.seed}", flush=True)
        kept = FOUND / f"{target.stem}-input"
        environment = {**Builder("").environment(), "FUZZ_INPUT": str(kept)}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"{target.name} failed; its input is in {FOUND}", flush=True)
            failed += 1
    failed += safe_codec(seconds, options.seed) != 0
    return 1 if failed else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
