# SPDX-License-Identifier: BSD-3-Clause
"""Collects test_*.c: every CHECK_CASE is one pytest item, run in a process of its own.

DISTLITE_SANITIZE=address,undefined|thread builds under a sanitizer, DISTLITE_VALGRIND=1
runs each case under memcheck, DISTLITE_EMULATE=aarch64 on an emulated processor.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import pytest
from c_build import ALLOCATION, JOBS, Builder, BuildError
from doubles_build import OVER_MPI, build, nccl_doubles, ucc_double

# Leaks are LeakSanitizer's: to valgrind all memory of a forked child's parent is lost,
# and the stack of each thread that outlives its case.
VALGRIND = ["valgrind", "--quiet", "--leak-check=no", "--error-exitcode=99"]
# A case's own alarm comes first; this is for a harness that hangs.
HARNESS_GRACE = 15
CASE_SECONDS = 60
SLOW_FACTOR = 5  # as in check.h
TOOL_FACTOR = 4  # sanitizers and valgrind slow everything down
# What QEMU's user mode does otherwise than a kernel.
ITS_FORK = "QEMU ends a child that starts a thread, if its parent had several"
ITS_ROOT = "the paths of QEMU's libraries are not those of the files"
NO_CRYPTO = "the cross compiler's C library comes without OpenSSL"
# By the patterns of fnmatch.
NOT_EMULATED = {
    "test_library.c::a_home_is_looked_into": ITS_ROOT,
    "test_library.c::a_package_below_a_root_is_found": ITS_ROOT,
    "test_listen.c::the_queue_is_as_long_as_the_kernel_allows": "it lacks TCP_INFO",
    "test_process_table.c::a_forked_child_begins_anew": ITS_FORK,
    "test_dial.c::*": NO_CRYPTO,
    "test_proof.c::*": NO_CRYPTO,
    "test_seal.c::*": NO_CRYPTO,
    "test_secret.c::*": NO_CRYPTO,
    "test_segment.c::a_child_neither_inherits_nor_unmaps": "it ignores MADV_DONTFORK",
    "test_tcp_store.c::clients_prove_the_token_at_once": NO_CRYPTO,
    "test_tcp_store.c::*_tls*": NO_CRYPTO,
    "test_tcp_store_suite.c::tcp_tls_*": NO_CRYPTO,
    "test_tls.c::*": NO_CRYPTO,
    "test_tls_socket.c::*": NO_CRYPTO,
    "test_transport.c::*tls*": NO_CRYPTO,
    "test_tcp_store.c::a_forked_child_gets_an_error_and_disturbs_no_rank": ITS_FORK,
}
# And valgrind.
NOT_IN_VALGRIND = {
    "test_process_table.c::a_child_by_raw_clone_does_not_hide_an_end": (
        "it lacks pidfd_open"
    ),
    "test_segment.c::a_child_neither_inherits_nor_unmaps": "it keeps addresses mapped",
    "test_traffic.c::a_wait_without_descriptors_sleeps": (
        "it does not lower the hard limit of descriptors"
    ),
}

_builder = Builder()
# All files of a folder are met before the first is asked for its cases: by then the
# others are being built.
_builders = ThreadPoolExecutor(JOBS)
_programs: dict[Path, Future[Path]] = {}
# Most cases wait rather than compute, and none shares anything with another: a few run
# at a time, ahead of pytest, which then only asks how they ended.
_runners = ThreadPoolExecutor(4)


def _uses_valgrind() -> bool:
    return os.environ.get("DISTLITE_VALGRIND", "0") not in ("", "0")


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    if file_path.suffix == ".c" and file_path.name.startswith("test_"):
        file: CFile = CFile.from_parent(parent, path=file_path)
        # Met once for each argument that it lies under.
        if file_path not in _programs:
            _programs[file_path] = _builders.submit(
                _builder.program, file_path, wraps=ALLOCATION
            )
        file.program = _programs[file_path]
        return file
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    # Whole folders are met even when one file was asked for.
    _builders.shutdown(cancel_futures=True)
    if not session.config.option.collectonly:
        for item in session.items:
            if isinstance(item, CCase):
                item.done = _runners.submit(item.run)


def pytest_sessionfinish() -> None:
    _runners.shutdown(cancel_futures=True)


def _run(
    command: list[str], timeout: float, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, but nothing that the program started outlives a timeout."""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output)


class CFile(pytest.File):
    """One test_<file>.c, built when it is collected."""

    program: Future[Path]

    def collect(self) -> Iterator[pytest.Item]:
        try:
            program = self.program.result()
        except BuildError as error:
            raise self.CollectError(str(error)) from None
        command = [*_builder.runner, str(program)]
        environment = _builder.environment()
        listing = _run([*command, "--list"], CASE_SECONDS, environment)
        if "unexpected memory mapping" in listing.stdout:
            # An old thread sanitizer on a kernel with much address randomisation.
            command = ["setarch", platform.machine(), "-R", *command]
            listing = _run([*command, "--list"], CASE_SECONDS, environment)
        if listing.returncode != 0:
            raise self.CollectError(listing.stdout)
        if _uses_valgrind():
            command = [*VALGRIND, *command]
        for line in listing.stdout.splitlines():
            name, *marks = line.split()
            item = CCase.from_parent(self, name=name, command=[*command, name])
            for mark in marks:
                item.add_marker(mark)
            yield item


class CCaseError(Exception):
    """What a failed case printed."""


class CCase(pytest.Item):
    """One CHECK_CASE."""

    # How it ended ahead of pytest; for the first time that it is asked.
    done: Future[subprocess.CompletedProcess[str]] | None = None

    def __init__(self, *, command: list[str], **arguments: object) -> None:
        super().__init__(**arguments)
        self.command = command
        # Taken now: while cases run on other threads, pytest changes its own.
        self.environment = _builder.environment()

    def run(self) -> subprocess.CompletedProcess[str]:
        has_tool = bool(_builder.sanitize or _builder.runner) or _uses_valgrind()
        seconds = CASE_SECONDS * (TOOL_FACTOR if has_tool else 1)
        is_slow = self.get_closest_marker("slow") is not None
        timeout = seconds * (SLOW_FACTOR if is_slow else 1) + HARNESS_GRACE
        environment = {**self.environment, "DL_CHECK_TIMEOUT": str(seconds)}
        if self.path.name.startswith(("test_nccl", "test_staging")):
            environment.update(nccl_doubles())
            # Streams of the doubles are threads that may be ending as leaks are sought.
            environment["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
        if self.path.name.startswith("test_ucc"):
            environment.update(ucc_double())
        if self.path.name.startswith("test_mpi"):
            environment["DISTLITE_MPI_LIBRARY"] = str(build("mpi_double"))
            environment |= OVER_MPI
            environment["TEST_MPICH"] = str(build("mpi_double", "-DMPICH"))
        return _run(self.command, timeout, environment)

    def runtest(self) -> None:
        without = NOT_EMULATED if _builder.runner else {}
        if _uses_valgrind():
            without = without | NOT_IN_VALGRIND
        for pattern, reason in without.items():
            if fnmatch(f"{self.path.name}::{self.name}", pattern):
                pytest.skip(reason)
        ahead, self.done = self.done, None
        done = self.run() if ahead is None else ahead.result()
        if done.returncode != 0:
            raise CCaseError(f"$ {' '.join(self.command)}\n{done.stdout}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> object:
        if isinstance(excinfo.value, CCaseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}::{self.name}"
