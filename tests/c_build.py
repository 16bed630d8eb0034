# SPDX-License-Identifier: BSD-3-Clause
"""Builds C programs around the core: csrc without csrc/python, without Python.h.

Objects are cached in build/c-<sanitizer> and made again when a source, a header they
read, or the flags changed.  The core becomes an archive, so a test links only what it
uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
JOBS = 2

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion"]
ALLOCATION = ("malloc", "calloc", "realloc", "strdup")

RUNTIME_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
}


class BuildError(Exception):
    """A compiler failed; the text is its output."""


def sanitizer() -> str:
    """Returns what DISTLITE_SANITIZE asks for: "address,undefined", "thread" or ""."""
    return os.environ.get("DISTLITE_SANITIZE", "")


def emulated() -> str:
    """Returns the processor that DISTLITE_EMULATE names, such as "aarch64", or "". For
    it, programs are built by its cross compiler and run by QEMU in user mode."""
    return os.environ.get("DISTLITE_EMULATE", "")


def core_sources() -> list[Path]:
    """Returns every C file of the core, without the binding."""
    return sorted(
        path
        for path in CSRC.rglob("*.c")
        if "python" not in path.relative_to(CSRC).parts
    )


def _libuv() -> tuple[list[str], list[str]]:
    """Returns the flags to compile and to link with libuv; none if it is not
    installed."""
    if emulated() or os.environ.get("DISTLITE_NO_LIBUV", "0") not in ("", "0"):
        return [], []
    command = [os.environ.get("PKG_CONFIG", "pkg-config")]
    try:
        cflags, libraries = (
            subprocess.run(
                [*command, query, "libuv"], capture_output=True, text=True, check=True
            ).stdout.split()
            for query in ("--cflags", "--libs")
        )
    except (OSError, subprocess.CalledProcessError):
        return [], []
    return ["-DDL_HAVE_LIBUV=1", *cflags], libraries


class Builder:
    """One set of flags, one folder of objects, one lock against other runs."""

    def __init__(self, sanitize: str | None = None, compiler: str = "gcc") -> None:
        self.sanitize = sanitizer() if sanitize is None else sanitize
        name = self.sanitize.replace(",", "-") or "plain"
        coverage = os.environ.get("DISTLITE_COVERAGE", "0") not in ("", "0")
        self.folder = ROOT / "build" / f"c-{name}{'-coverage' if coverage else ''}"
        self.compiler = shlex.split(os.environ.get("CC", compiler))
        self.archiver = "ar"
        self.runner: list[str] = []
        if processor := emulated():
            self.folder = ROOT / "build" / f"c-{processor}"
            self.compiler = [f"{processor}-linux-gnu-gcc"]
            self.archiver = f"{processor}-linux-gnu-ar"
            self.runner = [f"qemu-{processor}", "-L", f"/usr/{processor}-linux-gnu"]
        self.flags = ["-std=c11", "-D_GNU_SOURCE", "-g1", "-pthread", *WARNINGS]
        self.flags.append("-ffp-contract=off")
        libuv_cflags, libuv_libraries = _libuv()
        self.flags += [
            "-Icsrc",
            "-Itests/c",
            *libuv_cflags,
        ]
        self.link_flags = ["-pthread"]
        self.libraries = [*libuv_libraries, "-ldl", "-lm"]
        # The core is optimized as it is in use, and so is what runs many times; tests
        # are built in the shortest time.
        self.core_flags = ["-O0" if coverage else "-O1" if self.sanitize else "-O2"]
        self.test_flags = ["-O0"]
        # Sanitizers make gcc warn of what cannot happen.
        if not self.sanitize:
            self.flags.append("-Werror")
        if coverage:
            self.flags.append("--coverage")
            self.link_flags.append("--coverage")
        if self.sanitize:
            # libFuzzer's own main belongs to the program, not to every object.
            compiled = self.sanitize.replace("fuzzer", "fuzzer-no-link")
            self.flags += [f"-fsanitize={compiled}", "-fno-omit-frame-pointer"]
            self.flags.append("-fno-sanitize-recover=all")
            self.link_flags.append(f"-fsanitize={self.sanitize}")
        self._failures: dict[Path, str] = {}
        self._core_guard = threading.Lock()
        self._archive: Path | None = None  # guarded by _core_guard
        self._guard = threading.Lock()
        self._inside = 0  # guarded by _guard, and so is the file
        self._lock_file: IO[str] | None = None

    def environment(self) -> dict[str, str]:
        """The environment that the programs run in."""
        return {**RUNTIME_OPTIONS, **os.environ}

    def program(
        self, *sources: Path, wraps: Sequence[str] = (), named: str = ""
    ) -> Path:
        """Compiles C files and links them with the core, in this order; named like the
        first unless `named` is its path in the folder of the objects.

        Calls of the functions in `wraps` go to the program's own `__wrap_` ones:
        check.h can make an allocation fail, and the simulator is the whole system."""
        with self._alone():
            archive = self._core()
            objects = [self._object(source) for source in sources]
            binary = self.folder / named if named else objects[0].with_suffix("")
            inputs = [*objects, archive]
            newest = max(path.stat().st_mtime_ns for path in inputs)
            if not binary.exists() or binary.stat().st_mtime_ns < newest:
                self._link(binary, inputs, [f"-Wl,--wrap={name}" for name in wraps])
        return binary

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes out of the folder; threads of this one may enter."""
        with self._guard:
            if self._inside == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock_file = open(self.folder / ".lock", "w")  # noqa: SIM115
                fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            self._inside += 1
        try:
            yield
        finally:
            with self._guard:
                self._inside -= 1
                if self._inside == 0 and self._lock_file is not None:
                    self._lock_file.close()

    def _link(self, binary: Path, inputs: list[Path], options: list[str]) -> None:
        command = [*self.compiler, *self.link_flags, *options, "-o", str(binary)]
        command += [*map(str, inputs), *self.libraries]
        try:
            self._call(command)
        except BuildError as error:
            texts = [str(error), *self._failures.values()]
            raise BuildError("\n".join(texts)) from None

    def _core(self) -> Path:
        """The archive of everything in the core that compiles, made once per run."""
        with self._core_guard:
            if self._archive is None:
                self._archive = self._make_core()
            return self._archive

    def _make_core(self) -> Path:
        sources = core_sources()
        with ThreadPoolExecutor(JOBS) as pool:
            objects = list(pool.map(self._try_object, sources))
        good = [path for path in objects if path is not None]
        archive = self.folder / "libdistlite.a"
        members = self.folder / "libdistlite.members"
        listing = "\n".join(map(str, good))
        if (
            not archive.exists()
            or not members.exists()
            or members.read_text() != listing
            or archive.stat().st_mtime_ns < max(o.stat().st_mtime_ns for o in good)
        ):
            archive.unlink(missing_ok=True)
            self._call([self.archiver, "rcs", str(archive), *map(str, good)])
            members.write_text(listing)
        return archive

    def _try_object(self, source: Path) -> Path | None:
        try:
            return self._object(source)
        except BuildError as error:
            self._failures[source] = str(error)
            return None

    def _object(self, source: Path) -> Path:
        relative = source.relative_to(ROOT)
        target = self.folder / relative.with_suffix(".o")
        is_mutant = source.parent.name == "mutants"
        is_fast = CSRC in source.parents or source.parent.name == "simulate"
        own = self.core_flags if is_fast or is_mutant else self.test_flags
        if is_mutant:  # a fault may leave a variable unused
            own = [*own, "-Wno-error"]
        command = [*self.compiler, *self.flags, *own, "-MMD", "-c", str(relative)]
        command += ["-o", str(target)]
        # The name of the stamp is the flags: other flags make the object anew.
        digest = hashlib.sha1(" ".join(command).encode()).hexdigest()[:12]
        stamp = target.with_suffix(f".{digest}.flags")
        if not stamp.exists() or self._is_stale(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            for old in target.parent.glob(f"{target.stem}.*.flags"):
                old.unlink()
            target.unlink(missing_ok=True)
            self._call(command)
            stamp.touch()
        return target

    @staticmethod
    def _is_stale(target: Path) -> bool:
        if not target.exists():
            return True
        built = target.stat().st_mtime_ns
        rule = target.with_suffix(".d").read_text().replace("\\\n", " ")
        for name in rule.split(":", 1)[1].split():
            read = ROOT / name
            if not read.exists() or read.stat().st_mtime_ns >= built:
                return True
        return False

    @staticmethod
    def _call(command: list[str]) -> None:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise BuildError(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}")
