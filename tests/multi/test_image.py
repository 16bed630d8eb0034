# SPDX-License-Identifier: BSD-3-Clause
"""packaging/Dockerfile, built and run by buildah on a base image that debootstrap
makes: neither needs a daemon or a registry of images."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What the base of the Dockerfile has, of the same release of Debian.
SUITE = "bookworm"
INCLUDED = "python3,python3-dev,python3-pip,ca-certificates"
LIMIT_SECONDS = 600

MEAN = """
import os

import numpy as np

import distlite as dist

with dist.process_group("gloo"):
    assert os.getuid() != 0
    # More than a container's /dev/shm of 64 MiB holds.
    x = np.full(24 << 20, dist.get_rank(), np.float32)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    print(f"mean {x[-1]}")
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0
        or shutil.which("buildah") is None
        or shutil.which("debootstrap") is None,
        reason="needs root, buildah and debootstrap (apt install buildah debootstrap)",
    ),
]


def call(*command):
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, (
        f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done.stdout


def make_base(buildah, folder):
    """An image with Debian's Python, into which pip may install."""
    root = folder / "root"
    call("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, root)
    for file in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        file.unlink()
    if CERTIFICATES.exists():
        # Those of this machine, which may have added a proxy's.
        shutil.copy(CERTIFICATES, root / str(CERTIFICATES).lstrip("/"))
    container = call(*buildah, "from", "scratch").strip()
    call(*buildah, "add", "--quiet", container, root, "/")
    call(*buildah, "config", "--env", f"PIP_CERT={CERTIFICATES}", container)
    call(*buildah, "commit", "--quiet", "--rm", container, "localhost/base")
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a command in a container of the image, with a folder of the host."""
    folder = tmp_path_factory.mktemp("image")
    buildah = ["buildah", "--storage-driver", "vfs", "--root", folder / "storage"]
    buildah += ["--runroot", folder / "running"]
    make_base(buildah, folder)
    build = [*buildah, "build", "--isolation", "chroot", "--pull-never"]
    build += ["--build-arg", "BASE=localhost/base", "--tag", "localhost/distlite"]
    call(*build, "--file", ROOT / "packaging" / "Dockerfile", ROOT)
    container = call(*buildah, "from", "--pull-never", "localhost/distlite").strip()
    work = folder / "work"
    work.mkdir()
    (work / "mean.py").write_text(MEAN)
    inside = [*buildah, "run", "--isolation", "chroot", "--volume", f"{work}:/work"]
    yield lambda *command: call(*inside, container, "--", *command)
    call(*buildah, "rm", "--all")
    shutil.rmtree(folder / "storage")


def test_its_user_has_no_privileges(run):
    assert run("id", "--user", "--name").strip() == "ranks"
    assert run("sh", "-c", "command -v gcc || echo none").strip() == "none"


def test_four_ranks_share_large_arrays(run):
    assert run("distlite", "run", "-n", "4", "mean.py").count("mean 1.5") == 4


def test_the_doctor_finds_no_problems(run):
    assert "No problems were found" in run("distlite", "doctor")
    where = "import distlite._C as module; print(module.__file__)"
    assert "libuv" in run("sh", "-c", f"ldd $(python3 -c '{where}')")
