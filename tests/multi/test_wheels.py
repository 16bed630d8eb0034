# SPDX-License-Identifier: BSD-3-Clause
"""What `make wheels` builds, and what of it would be published."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import distlite

ROOT = Path(__file__).resolve().parents[2]
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
# What setuptools adds to an sdist.
ADDED = re.compile(r"PKG-INFO|setup\.cfg|python/distlite\.egg-info/.*")


def call(*command, limit=900):
    # What this make was called with is not for the other.
    own = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS")}
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )


def tools():
    return ROOT / ".venv-wheels" / "bin" / "python"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with a wheel for the interpreter that runs this, and the sdist."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest"]
    reached = call(*pip, folder / "reached", "build")
    if reached.returncode != 0:
        pytest.skip(f"PyPI cannot be reached: {reached.stdout.strip()[-200:]}")
    words = [
        f"PYTHON={sys.executable}",
        f"DIST={folder / 'dist'}",
    ]
    done = call("make", "--no-print-directory", "wheels", *words)
    assert done.returncode == 0, done.stdout
    # It has been tried, too.
    assert f"distlite {distlite.__version__}: _C.cpython-" in done.stdout, done.stdout
    return folder / "dist"


def only(paths):
    (path,) = paths
    return path


@pytest.mark.slow
def test_a_wheel(dist):
    wheel = only(dist.glob("*.whl"))
    arch = platform.machine()
    begin = f"distlite-{distlite.__version__}-{TAG}-{TAG}-"
    assert re.fullmatch(rf"{begin}manylinux_2_(\d\d)_{arch}.*\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    # auditwheel's copy of libuv is in distlite.libs.
    own = re.compile(
        r"distlite/|distlite\.libs/(libuv|$)|pytest_distlite\.py|distlite-[\d.]+\.dist-info/"
    )
    assert not [name for name in names if not own.match(name)]
    assert fields["Version"] == distlite.__version__
    assert fields["License-Expression"] == "BSD-3-Clause"
    assert fields["Author"] == "the distlite authors"
    classifiers = fields.get_all("Classifier")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"Programming Language :: Python :: {version}" in classifiers


@pytest.mark.slow
def test_the_sdist_has_every_file(dist):
    if not (ROOT / ".git").exists():
        pytest.skip("which files there are is asked of git")
    with tarfile.open(only(dist.glob("*.tar.gz"))) as archive:
        paths = [each.name for each in archive.getmembers() if each.isfile()]
    names = {path.split("/", 1)[1] for path in paths}
    tracked = set(call("git", "ls-files").stdout.splitlines())
    assert tracked - names == set()
    assert [name for name in names - tracked if not ADDED.fullmatch(name)] == []


def identifiers(*words):
    return set(call(tools(), "-m", "cibuildwheel", *words).stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_wheels_are_published_for_each_supported_python(dist, arch):
    """For glibc; musl is refused."""
    text = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)
    words = ["--print-build-identifiers", "--platform", "linux", "--archs", arch]
    expected = {f"cp3{minor}-manylinux_{arch}" for minor in named}
    assert identifiers(*words) == {*expected, f"cp314t-manylinux_{arch}"}


def test_a_tag_names_the_version_and_has_a_heading(tmp_path):
    def check(ref):
        return call(ROOT / "packaging" / "check-tag", ref)

    assert check("refs/heads/main").returncode == 0
    other = check("refs/tags/v99.0.0")
    assert other.returncode == 1
    assert f"is not refs/tags/v{distlite.__version__}" in other.stdout
    own = check(f"refs/tags/v{distlite.__version__}")
    changelog = (ROOT / "docs" / "changelog.md").read_text()
    told = f"\n## {distlite.__version__}" in changelog
    assert own.returncode == (0 if told else 1), own.stdout
