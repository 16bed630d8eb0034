# SPDX-License-Identifier: BSD-3-Clause
"""Builds the simulator: the core, and the files of this folder, to which the linker
sends the core's calls to the system."""

from __future__ import annotations

from pathlib import Path

from c_build import Builder

HERE = Path(__file__).resolve().parent

WRAPPED = [
    "accept4",
    "bind",
    "calloc",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "eventfd",
    "eventfd_write",
    "fcntl",
    "fdatasync",
    "flock",
    "free",
    "fstat",
    "fsync",
    "ftruncate",
    "getpeername",
    "getrandom",
    "getsockname",
    "getsockopt",
    "listen",
    "lstat",
    "malloc",
    "mmap",
    "munmap",
    "open",
    "poll",
    "pthread_cond_broadcast",
    "pthread_cond_destroy",
    "pthread_cond_init",
    "pthread_cond_signal",
    "pthread_cond_timedwait",
    "pthread_create",
    "pthread_detach",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pwrite",
    "realloc",
    "recv",
    "recvmsg",
    "rename",
    "send",
    "sendfile",
    "sendmsg",
    "setsockopt",
    "shutdown",
    "socket",
    "strdup",
    "unlink",
]


def simulator(builder: Builder, in_front: Path | None = None) -> Path:
    """Returns the program.  `in_front` takes the place of a file of the core."""
    sources = sorted(HERE.glob("*.c"), key=lambda path: path.name != "main.c")
    first = [] if in_front is None else [in_front]
    return builder.program(*first, *sources, wraps=WRAPPED)
