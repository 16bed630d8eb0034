# SPDX-License-Identifier: BSD-3-Clause
"""What pip installs from a checkout, with and without libuv."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["csrc", "python", "setup.py", "pyproject.toml", "README.md", "LICENSE"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OFFLINE = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]

USE = """
import distlite
from datetime import timedelta
here = distlite.__file__
assert here.startswith({target!r}), here
store = distlite.TCPStore(
    "127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=10)
)
store.set("key", "value")
assert store.get("key") == b"value"
# As torch's programs ask; what serves it is not worth a line.
distlite.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=True)
print("libuv" if store.libuvBackend else "epoll")
"""


def call(*command, cwd, **environment):
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def checkout(tmp_path):
    """A copy without anything that was built."""
    pytest.importorskip("setuptools")
    target = tmp_path / "checkout"
    target.mkdir()
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=ignore)
        else:
            shutil.copy(ROOT / part, target / part)
    return target


def size_of(folder: Path) -> int:
    """Bytes, without what Python compiles."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc")


def installed_server(checkout, tmp_path, **environment):
    """Installs the checkout and says which server its TCPStore has."""
    target = tmp_path / "installed"
    command = [*PIP, "install", *OFFLINE, "--target", str(target), str(checkout)]
    call(*command, cwd=tmp_path, **environment)
    assert size_of(target) < 3e6, "the installed package has grown"
    code = USE.format(target=str(target))
    # Without the site's .pth files, which may lead to the checkout under test.
    path = os.pathsep.join([str(target), *(p for p in sys.path if "site-pack" in p)])
    return call(sys.executable, "-S", "-c", code, cwd=tmp_path, PYTHONPATH=path).strip()


@pytest.mark.slow
def test_pip_install(checkout, tmp_path):
    has_libuv = subprocess.run(["pkg-config", "--exists", "libuv"]).returncode == 0
    expected = "libuv" if has_libuv else "epoll"
    assert installed_server(checkout, tmp_path) == expected


@pytest.mark.slow
def test_pip_install_without_libuv(checkout, tmp_path):
    assert installed_server(checkout, tmp_path, DISTLITE_NO_LIBUV="1") == "epoll"


def check_links(metadata: str) -> None:
    """PyPI shows the description, and resolves no relative links."""
    assert "Project-URL: Source, https://example.org/owner/name\n" in metadata
    assert "Description-Content-Type: text/markdown\n" in metadata
    links = re.findall(r'\]\(([^)]+)\)|\bsrc(?:set)?="([^"]+)"', metadata)
    found = [markdown or html for markdown, html in links]
    version = re.search(r"^Version: (.*)$", metadata, re.MULTILINE)[1]
    place = "https://example.org/owner/name"
    assert f"{place}/raw/v{version}/docs/images/latency-dark.svg" in found
    assert f"{place}/blob/v{version}/CONTRIBUTING.md" in found
    assert f"{place}/actions/workflows/quick.yml/badge.svg" in found
    assert all(link.startswith("https://") for link in found), found


@pytest.mark.slow
def test_the_sdist_is_enough_to_build_the_wheel(checkout, tmp_path):
    build = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    call(sys.executable, "-c", build, cwd=checkout)
    (archive,) = tmp_path.glob("distlite-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    place = {"DISTLITE_REPOSITORY": "https://example.org/owner/name"}
    command = [*PIP, "wheel", *OFFLINE, "-w", str(tmp_path), str(unpacked)]
    call(*command, cwd=tmp_path, **place)
    (wheel,) = tmp_path.glob("distlite-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    check_links(zipfile.ZipFile(wheel).read(metadata).decode())
    assert {"distlite/py.typed", "distlite/_C.pyi", "distlite/run.py"} <= set(names)
    assert not [name for name in names if name.startswith(("csrc", "tests"))]


WITHOUT_GLIBC = """
import os, runpy, sys
os.confstr = lambda name: None
sys.argv = ["setup.py", "--quiet", "build_ext"]
runpy.run_path("setup.py", run_name="__main__")
"""


def test_other_c_libraries_are_refused_in_words(checkout):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GLIBC],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "distlite supports Linux with glibc, and not musl (Alpine)" in done.stderr
    assert not list(checkout.glob("build/**/*.o"))
