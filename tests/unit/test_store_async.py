# SPDX-License-Identifier: BSD-3-Clause
"""The coroutines of stores: they do what the methods do, and leave the loop alone."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from store_kinds import KINDS

from distlite import DistStoreError, HashStore, QueueEmptyError, Store, TCPStore
from distlite.stores import async_methods
from distlite.stores.async_methods import call


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


with_queues = pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if kind.has_queues], indirect=True
)


def test_the_coroutines_do_what_the_methods_do(store: Store, peer: Store):
    async def use() -> None:
        await store.aset("a", "1")
        assert await peer.aget("a") == b"1" and await peer.aadd("a", 2) == 3
        assert await store.acompare_set("a", "3", "4") == b"4"
        await store.aappend("a", "5")
        await store.amulti_set(["b", "c"], ["2", "3"])
        assert await peer.amulti_get(["a", "b"]) == [b"45", b"2"]
        await store.await_(["a", "c"])
        assert await store.acheck(["a"]) and not await store.acheck(["x"])
        assert sorted(await store.alist_keys()) == ["a", "b", "c"]
        assert await store.anum_keys() >= 3
        assert await store.adelete_key("c") and not await store.adelete_key("c")
        assert await store.aitems("b") == [("b", b"2")]
        await asyncio.gather(store.abarrier("m", 2), peer.abarrier("m", 2))
        with await store.aclone() as clone:
            assert clone.get("b") == b"2"

    run(use())


@with_queues
def test_queues(store: Store, peer: Store):
    async def use() -> None:
        waiting = asyncio.create_task(store.aqueue_pop("q"))
        await asyncio.sleep(0.05)
        await peer.aqueue_push("q", "1")
        assert await waiting == b"1" and await peer.aqueue_len("q") == 0
        with pytest.raises(QueueEmptyError):
            await store.aqueue_pop("q", block=False)
        with pytest.raises(DistStoreError, match=r"timeout after 100ms, keys: \S*q"):
            await store.aqueue_pop("q", timeout=0.1)

    run(use())


def test_many_that_wait_leave_the_others_a_thread(store: Store, peer: Store):
    async def use() -> None:
        waiting = [asyncio.create_task(store.aget(f"k{n}")) for n in range(100)]
        await asyncio.sleep(0.1)
        for number in (99, 0):
            await store.aset(f"k{number}", str(number))
            assert await waiting[number] == b"%d" % number
        assert threading.active_count() < 100
        await peer.amulti_set([f"k{n}" for n in range(1, 99)], ["x"] * 98)
        assert await asyncio.gather(*waiting[1:99]) == [b"x"] * 98

    run(use())


def test_timeouts(store: Store):
    store.set_timeout(0.1)

    async def use() -> None:
        text = r"wait timeout after 100ms, keys: \S*nope"
        for waits in (
            store.aget("nope"),
            store.aget(b"nope", timeout=0.1),
            store.amulti_get(["nope"]),
            store.await_(["nope"], 0.1),
        ):
            began = time.monotonic()
            with pytest.raises(DistStoreError, match=text):
                await waits
            assert 0.1 <= time.monotonic() - began < 10
        with pytest.raises(DistStoreError, match="timeout after 100ms"):
            await store.abarrier("b", 2)

    run(use())


def test_a_task_that_is_cancelled_frees_its_thread(store: Store):
    async def use() -> None:
        calls = [store.aget("nope"), store.await_(["nope"]), store.amulti_get(["nope"])]
        tasks = [asyncio.create_task(each) for each in calls]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        began = time.monotonic()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {asyncio.CancelledError}
        assert time.monotonic() - began < 5
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(store.aget("nope"), 0.05)

    run(use())
    # The threads serve others within a slice: all of them are free at the same time.
    pool = async_methods._the_pools().waiting
    meeting = threading.Barrier(async_methods.WAITING_THREADS)
    waits = [pool.submit(meeting.wait, 30) for _ in range(meeting.parties)]
    assert len({each.result(30) for each in waits}) == meeting.parties


def test_an_item_is_not_lost_with_the_task():
    is_popped, may_return = threading.Event(), threading.Event()

    class Slow(HashStore):
        def queue_pop(self, key, block=True):
            item = super().queue_pop(key, block)
            is_popped.set()
            assert may_return.wait(60)
            return item

    store = Slow()
    store.queue_push("q", "item")

    async def use() -> None:
        task = asyncio.create_task(store.aqueue_pop("q"))
        while not is_popped.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_return.set()
        await store.await_(["q"])
        assert await store.aqueue_pop("q") == b"item"

    run(use())


def test_a_closed_store_ends_those_that_wait(store: Store):
    async def use() -> None:
        tasks = [asyncio.create_task(store.aget("nope"))]
        tasks += [asyncio.create_task(store.amulti_get(["nope"]))]
        await asyncio.sleep(0.05)
        store.close()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(found, DistStoreError) and "closed" in str(found)

    run(use())


def test_a_barrier_that_is_cancelled_closes_its_connection():
    with TCPStore("127.0.0.1", 0, is_master=True, timeout=60) as store:

        async def use() -> None:
            task = asyncio.create_task(store.abarrier("b", 2, 600))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(use())
        for thread in threading.enumerate():
            if thread.name == "distlite store barrier":
                thread.join(30)
                assert not thread.is_alive()


def test_a_lock_waits_beside_other_tasks(store: Store, peer: Store):
    async def use() -> None:
        async with store.lock("lock", lease=60) as lock:
            assert lock.is_held
            with pytest.raises(DistStoreError, match="lock timeout after 100ms"):
                await peer.lock("lock", timeout=0.1).aacquire()
            given_up = asyncio.create_task(peer.lock("lock").aacquire())
            waiter = asyncio.create_task(peer.lock("lock").aacquire())
            await asyncio.sleep(0.05)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert not waiter.done()
        await waiter
        assert await call(peer.lock("lock").locked)

    run(use())


def test_a_lock_that_is_won_by_a_cancelled_task_is_free_again():
    is_won, may_return = threading.Event(), threading.Event()

    class Slow(HashStore):
        def compare_set(self, key, expected, desired):
            found = super().compare_set(key, expected, desired)
            if not expected:
                is_won.set()
                assert may_return.wait(60)
            return found

    store = Slow()

    async def use() -> None:
        task = asyncio.create_task(store.lock("lock").aacquire())
        while not is_won.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_return.set()
        async with store.lock("lock", timeout=60):
            pass

    run(use())


def test_changes_arrive_while_others_run(store: Store, peer: Store):
    async def use() -> None:
        await peer.aset("w/a", "1")
        seen = []
        async for change in store.awatch("w/", 60, initial=True, interval=0.05):
            seen.append(tuple(change))
            if len(seen) == 1:
                asyncio.get_running_loop().create_task(peer.aset("w/b", "2"))
            else:
                break
        assert seen == [("w/a", b"1", "added"), ("w/b", b"2", "added")]
        assert [each async for each in store.awatch("w/", 0.05)] == []

    run(use())


STOPPED_SERVER = """
import asyncio, os, signal, sys
from distlite import TCPStore

store = TCPStore("127.0.0.1", int(sys.argv[1]), timeout=600)

async def use():
    store.set("before", "")
    os.kill(int(sys.argv[2]), signal.SIGSTOP)
    calls = {
        "aadd": lambda: store.aadd("n", 1),
        "aget": lambda: store.aget("n"),
        "await_": lambda: store.await_(["n"]),
        "aqueue_pop": lambda: store.aqueue_pop("n"),
        "abarrier": lambda: store.abarrier("n", 2),
        "lock": lambda: store.lock("n").aacquire(),
    }
    try:
        await asyncio.wait_for(calls[sys.argv[3]](), 0.2)
    except asyncio.TimeoutError:
        print("given up")

asyncio.run(use())
"""


@pytest.mark.parametrize(
    "name", ["aadd", "aget", "await_", "aqueue_pop", "abarrier", "lock"]
)
def test_no_call_that_was_given_up_keeps_the_interpreter_from_ending(name: str):
    with server_process() as (port, pid):
        found = subprocess.run(
            [sys.executable, "-c", STOPPED_SERVER, str(port), str(pid), name],
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert (found.returncode, found.stdout) == (0, "given up\n"), found.stderr


@contextlib.contextmanager
def server_process() -> Iterator[tuple[int, int]]:
    """Gives the port of a store's server, and its process, which may be stopped."""
    program = (
        "import sys; from distlite import TCPStore; "
        "s = TCPStore('127.0.0.1', 0, is_master=True); "
        "print(s.port, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            yield int(server.stdout.readline()), server.pid
        finally:
            server.kill()


def test_an_item_is_given_back_before_the_interpreter_ends():
    with TCPStore("127.0.0.1", 0, is_master=True, timeout=60) as store:
        store.queue_push("q", "item")
        program = """
import asyncio, sys, threading
from distlite import TCPStore

class Slow(TCPStore):
    def queue_pop(self, key, block=True):
        item = super().queue_pop(key, block)
        loop.call_soon_threadsafe(task.cancel)
        return item

store = Slow("127.0.0.1", int(sys.argv[1]), timeout=60)

async def use():
    global loop, task
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(store.aqueue_pop("q"))
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")

asyncio.run(use())
"""
        for _ in range(3):
            found = subprocess.run(
                [sys.executable, "-c", program, str(store.port)],
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert found.returncode == 0, found.stderr
            # The pop may have been quicker than the cancellation.
            is_cancelled = found.stdout == "cancelled\n"
            assert store.queue_len("q") == is_cancelled
            if not is_cancelled:
                store.queue_push("q", "item")
