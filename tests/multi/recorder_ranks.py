# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_ps.py."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import json
import os
import signal
import struct
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from group_ranks import init

import distlite as dist


def _ps(*arguments: str) -> str:
    from distlite.tools import ps

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert ps.main(arguments) == 0
    return output.getvalue()


def _own_job() -> str:
    from distlite.tools.recording import own

    mine = own()
    assert mine is not None and mine.job
    return mine.job


def _facts() -> dict[str, Any]:
    """Of this process's job; tests may run beside each other."""
    jobs = json.loads(_ps("--json", "--job", _own_job()))["jobs"]
    assert len(jobs) == 1
    return jobs[0]


def _wait_until(ready: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not ready(facts := _facts()):
        assert time.monotonic() < deadline, facts
        time.sleep(0.01)
    return facts


def look_at_a_stopped_rank(
    rank: int, world_size: int, init_method: str, folder: str
) -> Any:
    """Rank 2 is stopped; rank 1 looks, and lets it go on."""
    init(rank, world_size, init_method)
    array = np.full(10, rank, np.float32)
    dist.all_reduce(array)
    pids: list[Any] = [np.empty(1, np.int64) for _ in range(world_size)]
    dist.all_gather(pids, np.array([os.getpid()]))
    looked = None
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1:
        facts = _wait_until(
            lambda facts: (
                facts["ranks"][0]["current"] and facts["ranks"][2]["state"] == "stopped"
            )
        )
        looked = (
            facts,
            _ps("--job", facts["job"]),
            _ps("--job", facts["job"], "--dump", f"{folder}/dump-"),
        )
        os.kill(int(pids[2][0]), signal.SIGCONT)
    dist.all_reduce(array)
    answer = dist.irecv(array, src=(rank + 1) % world_size, tag=5)
    dist.send(array, dst=(rank - 1) % world_size, tag=5)
    answer.wait()
    dist.barrier()
    dist.destroy_process_group()
    return looked


def look_from_another_host(
    rank: int, world_size: int, init_method: str, folder: str
) -> Any:
    """The last rank looks at the others, who wait for it in their second call."""
    init(rank, world_size, init_method)
    array = np.full(10, rank, np.float32)
    dist.all_reduce(array)
    looked = None
    if rank == world_size - 1:
        facts = _wait_until(
            lambda facts: all(rank["current"] for rank in facts["ranks"][:-1])
        )
        looked = facts, _ps("--job", facts["job"])
        _ps("--job", facts["job"], "--dump", f"{folder}/dump-")
    dist.all_reduce(array)
    dist.barrier()
    dist.destroy_process_group()
    return looked


def lose_a_rank(rank: int, world_size: int, init_method: str) -> str:
    """Rank 2 dies; what the others raise."""
    init(rank, world_size, init_method)
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        try:
            dist.all_reduce(np.zeros(3))
        except dist.DistBackendError as error:
            text = str(error)
    return text


def miss_a_message(rank: int, world_size: int, init_method: str) -> None:
    """Rank 0 waits in vain, twice."""
    init(rank, world_size, init_method)
    group = dist.new_group([0, 1])
    group.set_timeout(timedelta(milliseconds=200))
    if rank == 0:
        for _ in range(2):
            with contextlib.suppress(dist.DistBackendError):
                dist.recv(np.zeros(3), src=1, group=group)
    dist.barrier()


def _lose_last(rank: int, world_size: int, init_method: str) -> None:
    init(rank, world_size, init_method)
    dist.barrier()
    if rank == world_size - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def raise_before_the_table(rank: int, world_size: int, init_method: str) -> str:
    """Standard error of rank 0 is a full pipe while it fails; what came out of it."""
    kept = os.dup(2)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    os.dup2(writer, 2)
    os.close(writer)
    _lose_last(rank, world_size, init_method)
    with contextlib.suppress(dist.DistBackendError):
        dist.all_reduce(np.zeros(3))
    # The exception is here, and nobody has read a byte.
    text = b""
    while b"called at" not in text:
        text += os.read(reader, 4096)
    os.dup2(kept, 2)
    return text.decode().lstrip(".")


IN_OPEN = 0x20


class _Opens:
    """Names of what anybody opens in some folders, from now on."""

    def __init__(self, folders: list[Path]) -> None:
        self._libc = ctypes.CDLL(None)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders:
            added = self._libc.inotify_add_watch(self._fd, bytes(folder), IN_OPEN)
            assert added > 0, folder

    def names(self) -> list[str]:
        data = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                data += os.read(self._fd, 1 << 16)
        found, at = [], 0
        while at < len(data):
            _, _, _, size = struct.unpack_from("iIII", data, at)
            found.append(data[at + 16 : at + 16 + size].rstrip(b"\0").decode())
            at += 16 + size
        return found


def fail_beside_another_job(
    rank: int, world_size: int, init_method: str, runtime: str, folder: str
) -> list[str]:
    """What was opened in the runtime folder and in those of other jobs by the failing
    ranks until the table was written; of the own job's folder only its name."""
    init(rank, world_size, init_method)
    mine = dist._C._recording_folders()
    assert mine == [runtime]
    job = _own_job()
    opens = None
    if rank == 0:
        others = [
            p for p in Path(runtime).iterdir() if p.is_dir() and job not in p.name
        ]
        assert len(others) == 1
        opens = _Opens([Path(runtime), *others])
    dist.barrier()
    if rank == world_size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with contextlib.suppress(dist.DistBackendError):
        dist.all_reduce(np.zeros(3))
    dist._C._finish_report()
    Path(folder, str(rank)).touch()
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < world_size - 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    if opens is None:
        return []
    return [name.replace(job, "own") for name in opens.names()]


def hold_job(folder: Path, recordings: int) -> int:
    """Makes another job's folder, with copies of a recording; the descriptor looks like
    a process of that job."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    data = dist._C._recording()
    dist.destroy_process_group()
    assert data is not None
    folder.mkdir(mode=0o700)
    for number in range(recordings):
        (folder / f"1-{number + 2}-3").write_bytes(data)
        (folder.parent / f"1-{number + 2}-3").write_bytes(data)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def die_all(rank: int, world_size: int, init_method: str) -> None:
    """All ranks are killed at once."""
    init(rank, world_size, init_method)
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def _shown(rank: int) -> Any:
    """What ``distlite ps`` shows of a rank, once it shows that it waits; all jobs of
    the folder are looked at, as a rank that joins has no job yet."""
    deadline = time.monotonic() + 20
    while True:
        jobs = json.loads(_ps("--json"))["jobs"]
        ranks = [r for job in jobs for r in job["ranks"] if r["rank"] == rank]
        if ranks and (ranks[0]["current"] or ranks[0].get("waits")):
            return ranks[0], _ps()
        assert time.monotonic() < deadline, jobs
        time.sleep(0.01)


def _block(kind: str, store: Any, group: Any, win: Any) -> None:
    """Waits for the other rank; the line of the call is the subject of the test."""
    if kind == "get":
        store.get("never\nset")
    elif kind == "wait":
        store.wait(["first", "second", "third"])
    elif kind == "probe":
        dist.probe(1, tag=5)
    elif kind == "object":
        dist.all_gather_object([None, None], {}, group=group)
    elif kind == "monitored":
        dist.monitored_barrier()
    elif kind == "fence":
        win.fence()
    elif kind == "lock":
        win.lock(1)
    elif kind == "store lock":
        store.lock("held").acquire()
    elif kind == "future":
        _future_of(store).wait()
    else:
        dist.ProcessGroup(store, 0, 2, group_name="own")


def _future_of(store: Any) -> Any:
    """Returns a future that another thread completes when the other rank says so."""
    future = dist.Future()

    def complete() -> None:
        while not store.check(["complete"]):
            time.sleep(0.01)
        future.set_result(None)

    threading.Thread(target=complete, daemon=True).start()
    return future


def _release(kind: str, store: Any, group: Any, win: Any) -> None:
    if kind == "get":
        store.set("never\nset", "")
    elif kind == "wait":
        for key in ("first", "second", "third"):
            store.set(key, "")
    elif kind == "probe":
        dist.send(np.zeros(1), 0, tag=5)
    elif kind == "object":
        dist.all_gather_object([None, None], {}, group=group)
    elif kind == "monitored":
        dist.monitored_barrier()
    elif kind == "fence":
        win.fence()
    elif kind == "lock":
        win.unlock(1)
    elif kind == "store lock":
        store["held"] = b""
    elif kind == "watch":
        store.set("changed/one", "")
    elif kind == "future":
        store.set("complete", "")
    else:
        dist.ProcessGroup(store, 1, 2, group_name="own")


def look_at_a_wait(rank: int, world_size: int, init_method: str, kind: str) -> Any:
    """Rank 0 waits for rank 1, which looks first."""
    init(rank, world_size, init_method)
    group = dist.new_group([0, 1])
    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    win = dist.Window(1)
    if rank == 1 and kind == "lock":
        win.lock(1)
    if rank == 1 and kind == "store lock":
        store["held"] = b"another"
    dist.barrier()
    looked = None
    if rank == 0:
        _block(kind, store, group, win)
    else:
        looked = _shown(0)
        _release(kind, store, group, win)
    dist.barrier()
    after = _facts()["ranks"][rank].get("waits")
    dist.barrier()
    dist.destroy_process_group()
    return looked, after


def look_at_a_locked_file(
    rank: int, world_size: int, init_method: str, kind: str, folder: str
) -> Any:
    """Rank 0 waits for the file of a store, which rank 1 has locked; it looks first."""
    init(rank, world_size, init_method)
    os.chdir(folder)
    store = dist.FileStore("own", world_size)
    store["key"] = b""
    dist.barrier()
    held = os.open("own", os.O_RDONLY)
    if rank == 1:
        fcntl.flock(held, fcntl.LOCK_EX)
    dist.barrier()
    looked = None
    if rank == 0:
        _use_file(kind, store)
    else:
        looked = _shown(0)
    os.close(held)
    dist.barrier()
    dist.destroy_process_group()
    return looked


def _use_file(kind: str, store: Any) -> None:
    if kind == "new":
        dist.FileStore("own", 2)
    elif kind == "clone":
        store.clone()
    elif kind == "read":
        store["key"]
    elif kind == "write":
        store["key"] = b""
    elif kind == "contains":
        "key" in store  # noqa: B015
    else:
        del store["key"]


def look_at_a_window(rank: int, world_size: int, init_method: str, kind: str) -> Any:
    """Rank 0 waits for rank 2, on another host, which is stopped; rank 1 looks."""
    os.environ["DISTLITE_HOST_HINT"] = str(rank)
    init(rank, world_size, init_method)
    pids: list[Any] = [np.empty(1, np.int64) for _ in range(world_size)]
    dist.all_gather(pids, np.array([os.getpid()]))
    win = dist.Window(1)
    dist.barrier()
    looked = None
    if rank == 0:
        _wait_until(lambda facts: facts["ranks"][2]["state"] == "stopped")
        _reach(kind, win)
    elif rank == 1:
        looked = _shown(0)
        os.kill(int(pids[2][0]), signal.SIGCONT)
    else:
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "fence" and rank != 0:
        win.fence()
    dist.barrier()
    dist.destroy_process_group()
    return looked


def _reach(kind: str, win: Any) -> None:
    array = np.zeros(1)
    if kind == "get":
        win.get(array, 2)
    elif kind == "swap":
        win.compare_and_swap(1, 0, 2)
    elif kind == "lock":
        win.lock(2)
    elif kind == "fence":
        win.put(array, 2)
        win.fence()
    else:
        win.put(array, 2)
        win.flush(2)


def look_at_a_joining_rank(rank: int, world_size: int, init_method: str) -> Any:
    """Rank 1 looks at rank 0 before it comes itself."""
    looked = _shown(0) if rank == 1 else None
    init(rank, world_size, init_method)
    dist.barrier()
    dist.destroy_process_group()
    return looked


def time_out_beside_a_wait(rank: int, world_size: int, init_method: str) -> str | None:
    """Rank 0 waits at the store while rank 1 waits for it in a collective."""
    init(rank, world_size, init_method)
    group = dist.new_group([0, 1])
    group.set_timeout(timedelta(seconds=2))
    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    dist.barrier()
    text = None
    if rank == 0:
        store.get("failed")
    else:
        try:
            dist.all_reduce(np.zeros(3), group=group)
        except dist.DistBackendError as error:
            text = str(error)
        store.set("failed", "")
    return text
