# SPDX-License-Identifier: BSD-3-Clause
"""What ranks on several hosts run: see test_hosts.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from operations import once_in

import distlite as dist

PORT = 29500
DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint16", "complex64"]


def join(rank: int, world_size: int, address: str) -> None:
    from datetime import timedelta

    host = f"[{address}]" if ":" in address else address
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{host}:{PORT}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )


def leave() -> None:
    dist.barrier()
    dist.destroy_process_group()


def set_timeout(seconds: float) -> None:
    from datetime import timedelta

    dist.group.WORLD.set_timeout(timedelta(seconds=seconds))


def stay_until_told(init_method: str, ranks: int) -> None:
    """Others must not learn what they are told from this rank's end.  By a file, which
    all hosts here have, whoever is gone."""
    path = init_method.removeprefix("file://")
    dist.FileStore(path, ranks).barrier("told", ranks, 60)


def end_last(store: dist.Store, rank: int, others: Iterable[int]) -> None:
    """All end when it is over, and rank 0, whose process has the store, last."""
    store.wait(["over"])
    if rank == 0:
        store.wait([f"ends/{each}" for each in others])
    else:
        with suppress(dist.DistError):  # it may be gone before it has answered
            store.set(f"ends/{rank}", "")


def values(rank: int, count: int, dtype: str, salt: int = 0) -> Any:
    """Whole numbers, so small that every order of adding them up is exact."""
    numbers = (np.arange(count) * 7 + rank * 3 + salt) % 11
    return numbers.astype(dtype)


def _check_reductions(rank: int, size: int, count: int, dtype: str) -> None:
    every = [values(r, count, dtype) for r in range(size)]
    stack = np.stack(every)
    expected = {
        dist.ReduceOp.SUM: stack.sum(0, dtype=dtype),
        dist.ReduceOp.PRODUCT: stack.prod(0, dtype=dtype),
    }
    if not dtype.startswith("complex"):
        expected[dist.ReduceOp.MIN] = stack.min(0)
        expected[dist.ReduceOp.MAX] = stack.max(0)
    if dtype.startswith("float"):
        mean = stack.astype("float64").mean(0)
        expected[dist.ReduceOp.AVG] = mean.astype(dtype)
    if "int" in dtype:
        expected[dist.ReduceOp.BXOR] = np.bitwise_xor.reduce(stack)
    for op, wanted in expected.items():
        array = every[rank].copy()
        dist.all_reduce(array, op=op)
        if op == dist.ReduceOp.AVG:
            np.testing.assert_allclose(array, wanted, rtol=1e-3)
        elif not (op == dist.ReduceOp.PRODUCT and dtype == "float16"):
            np.testing.assert_array_equal(array, wanted, str(op))
        strided = np.zeros(2 * count, dtype)[::2]
        strided[:] = every[rank]
        root = count % size
        dist.reduce(strided, dst=root, op=op)
        wanted = array if rank == root else every[rank]
        np.testing.assert_array_equal(strided, wanted, str(op))


def _check_moves(rank: int, size: int, count: int, dtype: str) -> None:
    for root in range(size):
        array = values(rank, count, dtype)[::-1]
        dist.broadcast(array, src=root)
        np.testing.assert_array_equal(array, values(root, count, dtype)[::-1])
        blocks = [np.zeros(count, dtype) for _ in range(size)]
        dist.gather(values(rank, count, dtype), blocks if rank == root else None, root)
        for r in range(size if rank == root else 0):
            np.testing.assert_array_equal(blocks[r], values(r, count, dtype))
        sent = [values(rank, count, dtype, salt) for salt in range(size)]
        got = np.zeros(count, dtype)
        dist.scatter(got, sent if rank == root else None, root)
        np.testing.assert_array_equal(got, values(root, count, dtype, rank))
    blocks = [np.zeros(count, dtype) for _ in range(size)]
    dist.all_gather(blocks, values(rank, count, dtype))
    for r in range(size):
        np.testing.assert_array_equal(blocks[r], values(r, count, dtype))
    sent = [values(rank, count + s, dtype, s) for s in range(size)]
    blocks = [np.zeros(count + rank, dtype) for _ in range(size)]
    dist.all_to_all(blocks, sent)
    for r in range(size):
        np.testing.assert_array_equal(blocks[r], values(r, count + rank, dtype, rank))
    sent = [values(rank, count, dtype, s) for s in range(size)]
    got = np.zeros(count, dtype)
    dist.reduce_scatter(got, sent)
    wanted = np.stack([values(r, count, dtype, rank) for r in range(size)])
    np.testing.assert_array_equal(got, wanted.sum(0, dtype=dtype))


def all_operations(rank: int, world_size: int, address: str) -> list[int]:
    """Every operation against NumPy; which ranks are on this rank's host."""
    join(rank, world_size, address)
    for dtype in DTYPES:
        for count in (0, 1, 7, 5000):
            _check_reductions(rank, world_size, count, dtype)
            _check_moves(rank, world_size, count, dtype)
    large = values(rank, 1_500_003, "float32")
    dist.all_reduce(large)
    wanted = sum(values(r, 1_500_003, "float32") for r in range(world_size))
    np.testing.assert_array_equal(large, wanted)
    bits = _rounding(rank, world_size)
    work = dist.all_reduce(large, async_op=True)
    assert work is not None
    work.wait()
    leave()
    return bits


def _rounding(rank: int, world_size: int) -> list[int]:
    """Sums that are not exact have the same bits everywhere."""
    noise = np.random.default_rng(rank).standard_normal(100_003).astype("float32")
    noise *= 10.0 ** (rank - 1)
    dist.all_reduce(noise)
    blocks = [np.zeros(len(noise), "uint32") for _ in range(world_size)]
    dist.all_gather(blocks, noise.view("uint32"))
    assert all((block == blocks[0]).all() for block in blocks)
    return [int(noise.view("uint32").astype("uint64").sum())]


def groups(rank: int, world_size: int, address: str) -> list[float]:
    """Groups over some ranks of several hosts, and of one."""
    join(rank, world_size, address)
    results = []
    for ranks in ([0, world_size - 1], list(range(1, world_size)), [0, 1]):
        group = dist.new_group(ranks)
        if rank in ranks:
            array = np.full(3, float(rank))
            dist.all_reduce(array, group=group)
            assert (array == sum(ranks)).all()
            results.append(float(array[0]))
    leave()
    return results


def mismatch(
    rank: int, world_size: int, init_method: str, address: str
) -> tuple[str, float]:
    """The last rank calls something else.  The root's host may learn of it in the next
    call."""
    join(rank, world_size, address)
    dist.barrier()
    start = time.monotonic()
    try:
        if rank == world_size - 1:
            dist.all_reduce(np.zeros(3))
        else:
            dist.broadcast(np.zeros(3), src=0)
        dist.barrier()
    except dist.DistBackendError as error:
        took = time.monotonic() - start
        stay_until_told(init_method, world_size)
        return str(error), took
    raise AssertionError("nothing was raised")


def die(
    rank: int, world_size: int, init_method: str, address: str, victim: int
) -> tuple[str, float]:
    join(rank, world_size, address)
    dist.barrier()
    if rank == victim:
        os.kill(os.getpid(), 9)
    start = time.monotonic()
    try:
        while True:
            dist.all_reduce(np.zeros(3))
    except dist.DistBackendError as error:
        took = time.monotonic() - start
        stay_until_told(init_method, world_size - 1)
        return str(error), took


def late(
    rank: int, world_size: int, init_method: str, address: str, sleeper: int
) -> tuple[str, float]:
    """One rank does not come; all must name it."""
    join(rank, world_size, address)
    dist.barrier()
    set_timeout(2)
    start = time.monotonic()
    if rank == sleeper:
        stay_until_told(init_method, world_size)
        return "", 0.0
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        took = time.monotonic() - start
        stay_until_told(init_method, world_size)
        return str(error), took
    raise AssertionError("nothing was raised")


def give_up(
    rank: int, world_size: int, address: str, victim: int, late: int, how: str
) -> tuple[str, float]:
    """One rank gives up an operation to which another comes late: what each raises, and
    how long after it could be known."""
    join(rank, world_size, address)
    dist.barrier()
    store = dist.group.WORLD.get_group_store()

    def end() -> None:
        store.set("ended", repr(time.monotonic()))
        if how == "abort":
            dist.group.WORLD.abort()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    if rank == late:
        store.wait(["left"])
        store.set("came", repr(time.monotonic()))
    try:
        if rank == victim:
            once_in("0", end)
        # Other hosts may come to the end of this one with what they have been sent.
        while True:
            dist.all_reduce(np.zeros(3))
    except (dist.DistBackendError, KeyboardInterrupt) as error:
        when = time.monotonic()
        text = f"{type(error).__name__}: {error}"
    if rank == victim:
        store.set("left", "yes")
    begin = float(store.get("ended" if rank == victim else "came"))
    if store.add("told", 1) == world_size:
        store.set("over", "yes")
    end_last(store, rank, range(1, world_size))
    return text, when - begin


def stop(rank: int, world_size: int, address: str, victim: int) -> tuple[str, str]:
    """One rank is stopped; all others must name it.  Its process and what was said."""
    join(rank, world_size, address)
    pids = [np.empty(1, "int64") for _ in range(world_size)]
    dist.all_gather(pids, np.array([os.getpid()]))
    set_timeout(2)
    store = dist.group.WORLD.get_group_store()
    if rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
        return "", ""
    try:
        dist.all_reduce(np.zeros(3))
    except dist.DistBackendError as error:
        text = str(error)
    else:
        raise AssertionError("nothing was raised")
    if store.add("told", 1) == world_size - 1:
        os.kill(int(pids[victim][0]), signal.SIGCONT)
        store.set("over", "yes")
    end_last(store, rank, {*range(1, world_size)} - {victim})
    return f"rank {victim} (pid {pids[victim][0]} on host ", text


def cut(rank: int, world_size: int, address: str, flag: str) -> str:
    """Until the link is cut, at which the parent looks for `flag`."""
    join(rank, world_size, address)
    set_timeout(2)
    array = np.zeros(1_000_000, "float32")
    try:
        for i in range(1_000_000):
            dist.all_reduce(array)
            if i == 3 and rank == 0:
                open(flag, "w").close()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def lose_host(rank: int, world_size: int, address: str, flag: str, call: str) -> str:
    """Waits until the link is cut, which the parent does when it sees `flag`."""
    join(rank, world_size, address)
    array = np.zeros(10)
    dist.all_reduce(array)
    if rank == 0:
        open(flag, "w").close()
    try:
        for _ in range(1_000_000):
            if call == "recv":
                dist.recv(array, src=1 - rank)
            elif call == "late" and rank == 1:
                time.sleep(3)  # it sends nothing
                dist.all_reduce(array)
            elif call == "late":
                dist.all_reduce(array)
            else:
                dist.all_reduce(np.zeros(1_000_000))
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def stop_for_long(rank: int, world_size: int, address: str, seconds: float) -> float:
    """One rank takes nothing from its links for a while."""
    join(rank, world_size, address)
    array = np.ones(4_000_000)
    dist.all_reduce(array)
    if rank == 1:
        go_on = f"sleep {seconds}; kill -CONT {os.getpid()}"
        with subprocess.Popen(["sh", "-c", go_on]):
            os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(array)
    return float(array[-1])


def fail_to_join(
    rank: int, world_size: int, init_method: str, address: str
) -> tuple[str, float]:
    start = time.monotonic()
    try:
        join(rank, world_size, address)
    except (RuntimeError, ValueError) as error:
        took = time.monotonic() - start
        stay_until_told(init_method, world_size)
        return str(error), took
    raise AssertionError("nothing was raised")


def fail_to_set_up(
    rank: int, world_size: int, init_method: str, variable: str, value: str
) -> str:
    """Rank 1 alone is told to use what it does not have."""
    if rank == 1:
        os.environ[variable] = value
    try:
        dist.init_process_group(
            "gloo", init_method=init_method, rank=rank, world_size=world_size
        )
    except RuntimeError as error:
        stay_until_told(init_method + "-told", world_size)
        return str(error)
    raise AssertionError("nothing was raised")


def just_join(rank: int, world_size: int, address: str) -> float:
    join(rank, world_size, address)
    array = np.full(4, float(rank))
    dist.all_reduce(array)
    leave()
    return float(array[0])


def messages(rank: int, world_size: int, address: str) -> int:
    """Sends and receives between all ranks, of one host and of others."""
    join(rank, world_size, address)
    sizes = (0, 1, 1000, 300_000)
    for step in range(1, world_size):
        to, source = (rank + step) % world_size, (rank - step) % world_size
        for tag, size in enumerate(sizes):
            got = np.zeros(2 * size, "float32")[::2]
            works = [
                dist.isend(values(rank, size, "float32"), to, tag=tag),
                dist.irecv(got, source, tag=tag),
            ]
            for work in works:
                assert work is not None
                work.wait()
            np.testing.assert_array_equal(got, values(source, size, "float32"))
    seen = _from_anybody(rank, world_size)
    _too_long(rank, world_size)
    leave()
    return seen


def join_by_own_words(
    rank: int,
    world_size: int,
    addresses: list[str],
    lines: dict[str, str] | None = None,
) -> float:
    """Each rank has a name of its own for rank 0's host, maybe one that is not known
    before it is looked up: `lines` go into files of hosts half a second later."""
    if rank == 0 and lines:
        # A rank that looks up later finds it at once, and joins as well.
        threading.Timer(0.5, _append_all, (lines,)).start()
    return just_join(rank, world_size, addresses[rank])


def _append_all(lines: dict[str, str]) -> None:
    for path, line in lines.items():
        with open(path, "a") as file:
            file.write(line + "\n")


def fail_to_join_by_own_words(rank: int, world_size: int, addresses: list[str]) -> str:
    from datetime import timedelta

    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{addresses[rank]}:{PORT}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=3),
        )
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def exit_after_send(rank: int, world_size: int, address: str) -> bool:
    """Rank 0 ends as abruptly as a process can, right behind a blocking send."""
    join(rank, world_size, address)
    sizes = [300_000, 3_000_000, 20_000_000]
    if rank == 0:
        dist.send(values(0, 10, "int8"), 1)  # the links are open
        for size in sizes:
            dist.send(values(rank, size, "int8"), 1)
        os._exit(0)
    dist.recv(np.zeros(10, "int8"), 0)
    for size in sizes:
        got = np.zeros(size, "int8")
        dist.recv(got, 0)
        np.testing.assert_array_equal(got, values(0, size, "int8"))
    return True


def count_traffic(
    rank: int, world_size: int, address: str, interfaces: list[str]
) -> list[list[int]]:
    """Bytes per interface of this rank's host: in two all_reduces, then in messages."""
    join(rank, world_size, address)
    distinct = np.full(1 << 22, rank + 1, "float32")
    small = np.zeros(1, "int64")
    dist.all_reduce(small)
    dist.barrier()
    readings = [_read_traffic(interfaces)]
    for _ in range(2):
        dist.all_reduce(distinct)
    assert (distinct == 3 * world_size).all()
    dist.barrier()
    readings.append(_read_traffic(interfaces))
    got = np.zeros(1 << 22, "float32")
    to = (rank + 1) % world_size
    work = dist.isend(values(rank, 1 << 22, "float32"), to)
    dist.recv(got, to)
    work.wait()
    np.testing.assert_array_equal(got, values(to, 1 << 22, "float32"))
    dist.barrier()
    readings.append(_read_traffic(interfaces))
    leave()
    return readings


def _read_traffic(interfaces: list[str]) -> list[int]:
    found = {}
    with open("/proc/self/net/dev") as lines:
        for line in lines:
            name, _, counts = line.partition(":")
            numbers = counts.split()
            if numbers and numbers[0].isdigit():
                found[name.strip()] = int(numbers[0]) + int(numbers[8])
    return [found[interface] for interface in interfaces]


def _from_anybody(rank: int, world_size: int) -> int:
    """Rank 0 takes what comes, in the order of each sender."""
    if rank > 0:
        for i in range(20):
            dist.send(np.array([rank * 100 + i]), 0, tag=9)
        return 0
    nexts = dict.fromkeys(range(1, world_size), 0)
    for _ in range(20 * (world_size - 1)):
        got = np.zeros(1, "int64")
        source = dist.recv(got, tag=9)
        assert got[0] == source * 100 + nexts[source]
        nexts[source] += 1
    return sum(nexts.values())


def _too_long(rank: int, world_size: int) -> None:
    """An error of the receive, and of a send that has not ended; nothing else fails."""
    last = world_size - 1
    if rank not in (0, last):
        return
    for count in (5, 50000):
        text = f"{8 * count} bytes does not fit into the 24 bytes"
        try:
            if rank == 0:
                dist.send(np.zeros(count), last)
            else:
                dist.recv(np.zeros(3), 0)
        except dist.DistBackendError as error:
            assert text in str(error), error
        else:
            assert rank == 0 and count == 5, "nothing was raised"
    got = np.zeros(1)
    if rank == 0:
        dist.send(np.ones(1), last)
    else:
        dist.recv(got, 0)
        assert got[0] == 1


def lose_a_sender(rank: int, world_size: int, init_method: str, address: str) -> str:
    """The last rank dies before it sends, after it has once."""
    join(rank, world_size, address)
    last = world_size - 1
    got = np.zeros(1)
    if rank == last:
        dist.send(np.ones(1), 0)
        os.kill(os.getpid(), 9)
    if rank > 0:
        stay_until_told(init_method, last)
        return ""
    dist.recv(got, last)
    start = time.monotonic()
    try:
        dist.recv(got, last)
    except dist.DistBackendError as error:
        assert time.monotonic() - start < 5
        stay_until_told(init_method, last)
        return str(error)
    raise AssertionError("nothing was raised")


def relay_to_store(port: int, target: tuple[str, int], name: str) -> None:
    """Serves one client at the server's own port, and a user's socket with its name."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        server = socket.create_connection(target)
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()

    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    if name:
        usurper = socket.socket(socket.AF_UNIX)
        usurper.bind(f"\0{name}")
        usurper.listen()
        threading.Thread(target=usurper.accept, daemon=True).start()


def count_in_store(
    rank: int, world_size: int, address: str, usurps: bool
) -> tuple[int, int]:
    """Rank 0 serves, 1 is on its host, 2 on another one, and 3 there behind a relay."""
    from store_bytes import unix_names

    where = (address, PORT)
    if rank == 0:
        server = dist.TCPStore(*where, is_master=True, timeout=60)
        (name,) = unix_names(os.getpid())
        server.set("name", name)
    elif rank == 3:
        with dist.TCPStore(*where, timeout=60) as direct:
            name = direct.get("name").decode()
        relay_to_store(PORT, where, name if usurps else "")
        where = ("127.0.0.1", PORT)
    store = server.clone() if rank == 0 else dist.TCPStore(*where, timeout=60)
    before = 0
    for turn in range(1, world_size):
        store.barrier(f"before {turn}", world_size)
        if turn == rank:
            before = store.stats()["unix_clients"]
            for _ in range(64):
                store.add("n", 1)
            after = store.stats()["unix_clients"]
        store.barrier(f"after {turn}", world_size)
    store.barrier("end", world_size)
    if rank == 0:
        assert store.add("n", 0) == 64 * (world_size - 1)
        return 0, 0
    return before, after
