# SPDX-License-Identifier: BSD-3-Clause
"""The stub equals the module, and the tools agree with the sources."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from c_source import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import package_stub

TOOLS = ("ruff", "mypy", "basedpyright", "clang-format")


def pinned() -> dict[str, str]:
    """The versions of the `lint` extra."""
    text = (ROOT / "pyproject.toml").read_text()
    line = re.search(r"^lint = \[(.*)\]$", text, re.MULTILINE)
    assert line is not None
    return dict(re.findall(r'"([\w-]+)==([^"]+)"', line[1]))


def tool(name: str) -> str:
    """Path of the pinned tool; another version would want another text."""
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed: `make lint` installs it")
    assert installed == pinned()[name], f"{name} {installed} is not the pinned version"
    path = shutil.which(name, path=sysconfig.get_path("scripts"))
    assert path is not None
    return path


def check(*command: str | Path) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "python")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def tracked(*patterns: str) -> list[Path]:
    paths = [p for pattern in patterns for p in ROOT.glob(pattern)]
    return sorted(p for p in paths if "build" not in p.relative_to(ROOT).parts)


def test_the_tools_are_pinned():
    assert set(pinned()) == set(TOOLS)


def test_the_stub_of_the_package_has_the_names_of_its_tables():
    package = ROOT / "python" / "distlite"
    made = package_stub.stub((package / "__init__.py").read_text())
    assert (package / "__init__.pyi").read_text() == made, "run `make format`"


def test_ruff_check():
    check(tool("ruff"), "check", "--no-cache", ".")


def test_ruff_format():
    check(tool("ruff"), "format", "--no-cache", "--check", "--diff", ".")


def test_clang_format():
    files = tracked("csrc/**/*.[ch]", "tests/**/*.[ch]", "examples/**/*.[ch]")
    assert files
    check(tool("clang-format"), "--dry-run", "-Werror", *files)


@pytest.mark.limit(240)
def test_mypy_strict():
    tool("mypy")
    check(sys.executable, "-m", "mypy", "--strict", "python/distlite")


@pytest.mark.limit(240)
def test_mypy_strict_of_examples():
    tool("mypy")
    check(sys.executable, "-m", "mypy", "--strict", *tracked("examples/*.py"))


@pytest.mark.limit(240)
def test_the_stub_equals_the_module():
    tool("mypy")
    pytest.importorskip("distlite._C")
    config = ROOT / "pyproject.toml"
    check(
        sys.executable,
        "-m",
        "mypy.stubtest",
        "distlite._C",
        "--mypy-config-file",
        config,
    )
