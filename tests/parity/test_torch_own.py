# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tests, those that its package installs, over the backend "distlite", and
with distlite in the place of torch.distributed.

Each that gloo passes on the CPU has to pass, and so have some that torch does not run
over gloo.  What is left out stands in LEFT_OUT with
its reason, and is run as well: one that passes after all has to leave the list.
torch's test files of FSDP2, DTensor and checkpoints are not installed; the programs of
torch_backend_ranks.py take their place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's tests need expecttest")

pytestmark = [pytest.mark.slow, pytest.mark.limit(600)]

RUNNER = Path(__file__).with_name("torch_own_ranks.py")
# Test, and why the backend, or distlite alone, does not pass it.
LEFT_OUT: dict[str, str] = {
    "alone.test_all_reduce_complex_unsupported_ops": "the PRODUCT of complex numbers "
    "is supported",
    "alone.test_sparse_all_reduce_sum": "sparse tensors are refused",
}


def list_tests() -> dict[str, str]:
    """Each test, and why torch itself leaves it out for gloo on the CPU."""
    words = [sys.executable, str(RUNNER), "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


class Runner:
    """The process that runs tests, in the order in which they are asked for."""

    def __init__(self, folder: Path, backend: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(RUNNER), backend],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, test: str) -> tuple[str, str]:
        """passed, skipped or failed, and why."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(test, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, "the runner has ended:\n" + self.log.read_text()[-4000:]
        outcome, why = json.loads(line)
        return outcome, why

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


def run(backend: str) -> Iterator[Runner]:
    # A short path: ranks make sockets in it.
    with tempfile.TemporaryDirectory(prefix="torch-own-") as folder:
        started = Runner(Path(folder), backend)
        yield started
        started.end()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    yield from run("distlite")


@pytest.fixture(scope="module")
def runner_alone() -> Iterator[Runner]:
    yield from run("distlite alone")


TESTS = list_tests()
APPLICABLE = [name for name, reason in TESTS.items() if not reason]
ALONE = [name for name in APPLICABLE if name.startswith("alone.")]


@pytest.mark.parametrize("name", [each for each in APPLICABLE if each not in ALONE])
def test_of_torch(runner: Runner, name: str):
    check(runner, name)


@pytest.mark.parametrize("name", ALONE)
def test_of_torch_with_distlite_alone(runner_alone: Runner, name: str):
    check(runner_alone, name)


def check(runner: Runner, name: str) -> None:
    outcome, why = runner.run(name)
    if name in LEFT_OUT:
        assert outcome == "failed", f"passes now: {LEFT_OUT[name]}"
        pytest.xfail(LEFT_OUT[name])
    if outcome == "skipped":
        pytest.skip(why)
    assert outcome == "passed", why


def test_what_is_left_out_exists():
    assert set(LEFT_OUT) <= set(APPLICABLE)


def test_most_of_torch_s_tests_on_the_cpu_apply():
    """An update of torch may not leave tests out unnoticed."""
    assert len(ALONE) >= 100
    assert len(APPLICABLE) - len(ALONE) >= 125
