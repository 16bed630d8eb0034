# SPDX-License-Identifier: BSD-3-Clause
"""The coroutines of stores: aget() and the others, by one table.

A call that needs no more than a round trip runs on a thread of one pool. Calls that
wait run on another pool, in slices: a thread waits a tenth of a second for one caller
and then serves the next. So waiting tasks do not keep other calls from a thread, they
do not need a thread each, and the thread of a task that is cancelled is free within a
slice.  An item of a queue, a value and a lock of the store are taken between slices, by
calls that do not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from .._C import DistStoreError, FileStore, QueueEmptyError, Store
from .daemon_pool import DaemonPool, finish_before_end
from .reading import read_items
from .timeouts import seconds_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from datetime import timedelta

    from .store_lock import Turn
    from .watching import Change, Watcher

    _Key = str | bytes | bytearray | memoryview
    _Timeout = timedelta | float | None

__all__ = ["METHODS", "awatch", "call", "take_turn"]

CALLING_THREADS = 8
WAITING_THREADS = 32
SLICE_SECONDS = 0.1
SHORTEST_SLICE_SECONDS = 0.01
# Seconds between two tries if waiting ends at once but there is nothing to take.
FIRST_PAUSE, LAST_PAUSE = 0.001, 0.1


class _Pools:
    """The threads of this process; a forked child has none of its parent's."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.calling = DaemonPool(CALLING_THREADS, "distlite store call")
        self.waiting = DaemonPool(WAITING_THREADS, "distlite store wait")
        self.waits: set[_Deadline] = set()  # in progress


_pools: _Pools | None = None
_making = threading.Lock()


def _the_pools() -> _Pools:
    global _pools
    with _making:
        if _pools is None or _pools.pid != os.getpid():
            _pools = _Pools()
        return _pools


def _after_fork() -> None:
    """Makes a new lock in a forked child: a thread of the parent may have held the
    lock."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what the function returns, which must not wait for other processes."""
    work = partial(function, *args, **kwargs)
    return await asyncio.wrap_future(_the_pools().calling.submit(work))


class _Deadline:
    """When a call stops waiting, and the text of its timeout error."""

    def __init__(self, store: Store, keys: list[Any], timeout: _Timeout) -> None:
        self.store = store
        self.keys = keys
        limit = store.timeout if timeout is None else timeout
        self._limit = seconds_of(limit)
        self._at = time.monotonic() + self._limit
        self._pause = 0.0
        self._missing = ", ".join(
            bytes(key).decode(errors="replace") if not isinstance(key, str) else key
            for key in keys
        )

    def left(self) -> float:
        """Seconds."""
        if self._limit < 0:
            return float("inf")
        return max(self._at - time.monotonic(), 0.0)

    async def wait(self) -> None:
        """Returns when the keys exist, or may exist; raises DistStoreError at the
        deadline."""
        pools = _the_pools()
        pools.waits.add(self)
        try:
            while not await self._wait_slice(pools):
                if self.left() <= 0:
                    raise DistStoreError(self._text())
        finally:
            pools.waits.discard(self)
        # The first slice does not wait.
        await asyncio.sleep(min(self._pause, self.left()))
        if self._pause and self.left() <= 0:
            raise DistStoreError(self._text())
        self._pause = min(2 * self._pause or FIRST_PAUSE, LAST_PAUSE)

    async def _wait_slice(self, pools: _Pools) -> bool:
        turn = SLICE_SECONDS * min(1.0, WAITING_THREADS / len(pools.waits))
        seconds = min(max(turn, SHORTEST_SLICE_SECONDS), self.left())
        wait = pools.waiting.submit(_missing_within, self.store, self.keys, seconds)
        missing: str = await asyncio.wrap_future(wait)
        self._missing = missing or self._missing
        return not missing

    def _text(self) -> str:
        return f"wait timeout after {int(self._limit * 1000)}ms, keys: {self._missing}"


def _missing_within(store: Store, keys: list[Any], seconds: float) -> str:
    """Returns "" as soon as the keys exist, or at the end the names that an error of
    the store gives."""
    try:
        # The method of the base class, because overrides in Python may not take a
        # timeout.
        Store.wait(store, keys, seconds)
    except DistStoreError as error:
        # The time is over, or the store is closed, which raises its error here.
        if not store.check(keys):
            return str(error).partition(", keys: ")[2] or "?"
    return ""


async def _get(store: Store, key: _Key, *, timeout: _Timeout = None) -> bytes:
    deadline = _Deadline(store, [key], timeout)
    while True:
        try:
            value: bytes = await call(store.__getitem__, key)
            return value
        except KeyError:
            await deadline.wait()


async def _multi_get(
    store: Store, keys: Iterable[_Key], *, timeout: _Timeout = None
) -> list[bytes]:
    deadline = _Deadline(store, list(keys), timeout)
    while True:
        try:
            values: list[bytes] = await call(
                Store.multi_get, store, deadline.keys, timeout=0
            )
            return values
        except DistStoreError:
            await deadline.wait()


async def _wait(store: Store, keys: Iterable[_Key], timeout: _Timeout = None) -> None:
    await _Deadline(store, list(keys), timeout).wait()


async def _queue_pop(
    store: Store, key: _Key, block: bool = True, *, timeout: _Timeout = None
) -> bytes:
    deadline = _Deadline(store, [key], timeout)
    while True:
        try:
            return await _pop_now(store, key)
        except QueueEmptyError:
            if not block:
                raise
        await deadline.wait()


async def _pop_now(store: Store, key: _Key) -> bytes:
    """Takes the first item of a queue; a task that is cancelled meanwhile puts it
    back."""
    calling = _the_pools().calling
    pop: Future[bytes] = calling.submit(store.queue_pop, key, False)
    try:
        return await asyncio.wrap_future(pop)
    except asyncio.CancelledError:
        _undo(pop, calling, lambda: _give_back(store, key, pop))
        raise


def _give_back(store: Store, key: _Key, pop: Future[bytes]) -> None:
    if pop.exception() is None:
        store.queue_push(key, pop.result())


def _undo(call: Future[Any], calling: DaemonPool, undo: Callable[[], object]) -> None:
    """Undoes what a call has done, as soon as it is done, as its task was cancelled."""
    is_undone: Future[None] = Future()
    finish_before_end(is_undone)

    # Not on the thread of this callback, which may be that of the event loop.
    def begin(call: Future[Any]) -> None:
        if call.cancelled():
            is_undone.set_result(None)
        else:
            calling.submit(undo).add_done_callback(lambda _: is_undone.set_result(None))

    call.add_done_callback(begin)


async def _barrier(
    store: Store, key: _Key, world_size: int, timeout: _Timeout = None
) -> None:
    """Runs the barrier on a thread of its own: a wait for it cannot be divided into
    slices, because each call would count as another arrival."""
    own = await call(_own_connection, store)
    is_done: Future[None] = Future()
    limit = store.timeout if timeout is None else timeout

    def meet() -> None:
        try:
            own.barrier(key, world_size, limit)
        except BaseException as error:
            is_done.set_exception(error)
        else:
            is_done.set_result(None)
        if own is not store:
            own.close()

    is_done.set_running_or_notify_cancel()
    threading.Thread(target=meet, name="distlite store barrier", daemon=True).start()
    try:
        await asyncio.wrap_future(is_done)
    except asyncio.CancelledError:
        if own is not store:
            _the_pools().calling.submit(own.close)
        raise


def _own_connection(store: Store) -> Store:
    """Returns a second handle, which can be closed alone; the store itself if there is
    none.

    It is not made for a FileStore, which counts closed handles to know when to remove
    the file.
    """
    if isinstance(store, FileStore):
        return store
    try:
        return store.clone()
    except NotImplementedError:
        return store


async def take_turn(turn: Turn) -> float:
    """Waits for the lock, and returns what `Turn.take` returned; a task that is
    cancelled leaves the lock free."""
    calling = _the_pools().calling
    while True:
        attempt: Future[float | None] = calling.submit(turn.take)
        try:
            won = await asyncio.wrap_future(attempt)
            if won is not None:
                return won
            released = _Deadline(turn.store, [turn.lock._released], turn.pause())
            with contextlib.suppress(DistStoreError):
                # Time to try again, which also raises the error of a store that is
                # closed.
                await released.wait()
        except BaseException:
            _undo(attempt, calling, turn.give_back)
            raise


def _plain(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def method(store: Store, *args: Any, **kwargs: Any) -> Any:
        return await call(getattr(store, name), *args, **kwargs)

    method.__name__ = method.__qualname__ = f"a{name}"
    return method


async def _items(store: Store, prefix: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = await call(read_items, store, prefix)
    return found


async def awatch(watcher: Watcher) -> AsyncIterator[Change]:
    """Yields the changes as `watching.watch` does, from the first step on."""
    for change in await call(watcher.read_changes):
        yield change
    watcher.begin_wait()
    while True:
        found = await call(watcher.read_changes)
        for change in found:
            yield change
        if found:
            watcher.begin_wait()
            continue
        pause = watcher.next_pause()
        if pause is None:
            return
        await asyncio.sleep(pause)


# The coroutines by the names of the methods of Store.
METHODS: dict[str, Callable[..., Any]] = {
    "aget": _get,
    "amulti_get": _multi_get,
    "await_": _wait,
    "aqueue_pop": _queue_pop,
    "abarrier": _barrier,
    "aitems": _items,
    **{
        f"a{name}": _plain(name)
        for name in (
            *("set", "add", "compare_set", "delete_key", "append", "multi_set"),
            *("queue_push", "queue_len", "check", "num_keys", "list_keys", "clone"),
            "stats",
        )
    },
}
