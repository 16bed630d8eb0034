# SPDX-License-Identifier: BSD-3-Clause
"""What mypy and pyright say of programs that use distlite: right ones and wrong ones.

pyright is basedpyright, its edition that PyPI has whole, in pyright's own mode.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from c_source import ROOT
from test_stub import tool

TYPED = ROOT / "tests" / "lint" / "typed"


def marked(path: Path) -> set[int]:
    lines = path.read_text().splitlines()
    return {i for i, line in enumerate(lines, 1) if "# error" in line}


def output_of(*command: str | Path) -> str:
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


Found = dict[str, dict[int, str]]  # messages by file name and line


@pytest.fixture(scope="module")
def mypy() -> Found:
    tool("mypy")
    found: Found = {}
    paths = sorted(TYPED.glob("*.py"))
    text = output_of(sys.executable, "-m", "mypy", "--strict", *paths)
    for line in text.splitlines():
        if match := re.match(r"tests/lint/typed/(\w+\.py):(\d+): error: (.*)", line):
            found.setdefault(match[1], {})[int(match[2])] = match[3]
        else:
            assert line.startswith(("Found ", "Success")) or ": note: " in line, line
    return found


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Found:
    command = tool("basedpyright")
    settings = {
        "typeCheckingMode": "standard",
        "include": [str(TYPED), str(ROOT / "examples")],
        "extraPaths": [str(ROOT / "python")],
        "pythonVersion": "3.10",
        # Of what the examples use where it is installed.
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
        # It cannot follow that one condition implies another.
        "reportPossiblyUnboundVariable": False,
    }
    config = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    text = output_of(
        command, "--outputjson", "--pythonpath", sys.executable, "-p", config
    )
    found: Found = {}
    for each in json.loads(text)["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found.setdefault(Path(each["file"]).name, {})[line] = each["message"]
    return found


@pytest.mark.limit(240)
@pytest.mark.parametrize("name", ["correct.py", "mistakes.py"])
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_programs(name: str, checker: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(checker).get(name, {})
    assert set(found) == marked(TYPED / name), found


@pytest.mark.limit(240)
def test_pyright_accepts_the_examples(pyright: Found) -> None:
    names = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert not {name: pyright[name] for name in names & set(pyright)}
