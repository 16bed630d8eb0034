# SPDX-License-Identifier: BSD-3-Clause
"""Fuzz targets as plain tests: the corpus is replayed, and mutated for a moment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_build import Builder, BuildError

HERE = Path(__file__).resolve().parent
SECONDS = 2
SEED = 1  # the same inputs on every run: `make fuzz` is for new ones

_builder = Builder()


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    if file_path.suffix == ".c" and file_path.name.startswith("fuzz_"):
        return FuzzFile.from_parent(parent, path=file_path)
    return None


class FuzzFile(pytest.File):
    """One fuzz_<what>.c with corpus/<what>/."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            program = _builder.program(self.path, HERE / "replay.c")
        except BuildError as error:
            raise self.CollectError(str(error)) from None
        folder = HERE / "corpus" / self.path.stem.removeprefix("fuzz_")
        inputs = [str(path) for path in sorted(folder.iterdir())]
        yield FuzzCase.from_parent(self, name="corpus", command=[str(program), *inputs])
        mutate = [str(program), "--mutate", str(SECONDS), str(SEED), *inputs]
        yield FuzzCase.from_parent(self, name="mutated", command=mutate)


class FuzzError(Exception):
    """What a target printed before it died."""


class FuzzCase(pytest.Item):
    def __init__(self, *, command: list[str], **arguments: object) -> None:
        super().__init__(**arguments)
        self.command = command

    def runtest(self) -> None:
        kept = Path(self.command[0] + "-input")
        done = subprocess.run(
            self.command,
            env={**_builder.environment(), "FUZZ_INPUT": str(kept)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=200,
        )
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace")
            raise FuzzError(f"exit status {done.returncode}, input {kept}\n{output}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> object:
        if isinstance(excinfo.value, FuzzError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}::{self.name}"
