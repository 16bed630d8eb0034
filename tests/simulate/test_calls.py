# SPDX-License-Identifier: BSD-3-Clause
"""No call to the system leaves the simulated world unnoticed: each function outside of
the core that the simulator's core calls is simulated, computes, or is named here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from c_build import ROOT, Builder, emulated
from simulate_build import WRAPPED, simulator

pytestmark = [
    pytest.mark.skipif(bool(emulated()), reason="the natively built core is enough"),
    pytest.mark.limit(600),
]

# Results follow from arguments and from memory.
COMPUTES = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|__assert_fail|__cpu_model|__ctype_\w+|__errno_location"
    r"|__popcountdi2|__sched_cpucount|explicit_bzero"
    r"|(__isoc99_)?sscanf|inet_(ntop|pton)|mem(chr|cmp|cpy|move|set)|v?snprintf|sprintf|str(?!n?dup)\w+"
)

REAL = {
    "atexit": "of MPI, which is not loaded",
    "dlerror": "follows dlopen(), which is not called",
    "dlinfo": "follows dlopen(), which is not called",
    "dlsym": "follows dlopen(), which is not called",
    "freeaddrinfo": "follows getaddrinfo()",
    "gai_strerror": "follows getaddrinfo()",
    "getaddrinfo": "of an address in digits, which asks nobody",
    "getenv": "what stage_store.c sets; nothing else of it is random",
    "geteuid": "compared with itself",
    "getrlimit": "a limit of descriptors that no run reaches",
    "localtime_r": "before the text of a line of the log, which is left out",
    "pthread_atfork": "nobody forks",
    "pthread_condattr_destroy": "conditions have no attributes",
    "pthread_condattr_init": "conditions have no attributes",
    "pthread_condattr_setclock": "conditions have no attributes",
    "pthread_key_create": "of a thread whose end nobody sees",
    "pthread_mutex_destroy": "a mutex holds nothing",
    "pthread_mutex_init": "leaves zeros: the mutex is free",
    "pthread_once": "coroutines share a thread, and the functions do not hand over",
    "pthread_rwlock_destroy": "of UCC, which is not loaded",
    "pthread_rwlock_init": "of UCC, which is not loaded",
    "pthread_rwlock_rdlock": "of UCC, which is not loaded",
    "pthread_rwlock_unlock": "of UCC, which is not loaded",
    "pthread_rwlock_wrlock": "of UCC, which is not loaded",
    "pthread_setname_np": "of NCCL, which is not loaded",
    "pthread_setspecific": "follows pthread_key_create()",
    "sigaction": "of MPI, which is not loaded",
    "sigdelset": "runs have no signals",
    "sigfillset": "runs have no signals",
    "sysconf": "a limit of memory that no run reaches",
}


def names(file: Path, *options: str) -> set[str]:
    done = subprocess.run(
        ["nm", "-P", *options, file], capture_output=True, text=True, check=True
    )
    return {line.split()[0].split("@")[0] for line in done.stdout.splitlines() if line}


def imports() -> set[str]:
    """Returns what the objects of the core that are linked into the simulator call and
    do not contain."""
    builder = Builder(sanitize="")
    linked = names(simulator(builder), "--defined-only", "-g")
    called: set[str] = set()
    defined: set[str] = set()
    for path in builder.folder.glob("csrc/**/*.o"):
        source = ROOT / path.relative_to(builder.folder).with_suffix(".c")
        if not source.exists():
            continue  # the object of a file that has been removed since
        own = names(path, "--defined-only", "-g")
        if own & linked:
            defined |= own
            called |= names(path, "-u")
    assert "dl_replies_open" in defined
    return called - defined


def test_every_call_is_accounted_for() -> None:
    called = imports()
    left = {name for name in called - set(WRAPPED) if not COMPUTES.fullmatch(name)}
    # libuv's functions need a loop, and making one fails the run.
    left = {name for name in left if not name.startswith(("uv_", "__gcov"))}
    assert sorted(left - set(REAL)) == []
    assert sorted(set(REAL) - left) == []
    unused = set(WRAPPED) - called - {"pthread_cond_broadcast", "uv_loop_init"}
    assert sorted(unused) == []
