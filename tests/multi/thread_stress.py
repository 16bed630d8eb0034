# SPDX-License-Identifier: BSD-3-Clause
"""Threads that use one object at the same time: `thread_stress.py --seconds 2 NAME`.

Each scenario has threads that call the same stores, groups, Works and Futures, or that
replace and destroy what others are using.  They may be told errors of ours, nothing
else; nothing crashes, nothing hangs, and what is counted, counts right.  It is for an
interpreter without a GIL, alone or under ThreadSanitizer, and runs with any.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import itertools
import logging
import random
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

import distlite
from distlite import (
    DistError,
    HashStore,
    PrefixStore,
    ProcessGroup,
    Store,
    TCPStore,
    testing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[random.Random], object]

THREADS = 4
# After its seconds a scenario has so many more; sanitizers are slow.
GRACE = 120.0

SCENARIOS: list[Callable[[float], None]] = []


def scenario(function: Callable[[float], None]) -> Callable[[float], None]:
    SCENARIOS.append(function)
    return function


def run(
    seconds: float,
    *steps: Step,
    told: tuple[type[BaseException], ...] = (),
    threads: int = THREADS,
) -> None:
    """Calls the steps over and over, at least once, each on some of the threads."""
    wrong: list[str] = []
    counts: list[int] = []
    together = threading.Barrier(max(threads, len(steps)))

    def loop(number: int, step: Step) -> None:
        choice = random.Random(number)
        together.wait()
        until = time.monotonic() + seconds
        for count in itertools.count(1):
            try:
                step(choice)
            except told:
                pass
            except BaseException:
                wrong.append(traceback.format_exc())
                return
            if time.monotonic() > until or wrong:
                counts.append(count)
                return

    started = [
        threading.Thread(target=loop, args=(number, step), daemon=True)
        for number, step in zip(
            range(max(threads, len(steps))), itertools.cycle(steps), strict=False
        )
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(seconds + GRACE)
    stuck = [thread for thread in started if thread.is_alive()]
    if stuck:
        faulthandler.dump_traceback(all_threads=True)
    assert not stuck, f"{len(stuck)} threads hang"
    assert not wrong, "\n".join(wrong)
    print(f"    {sum(counts)} steps", flush=True)


def use_store(store: Store) -> Step:
    """A step with any request."""

    def step(choice: random.Random) -> None:
        key = f"key {choice.randrange(4)}"
        kind = choice.randrange(10)
        if kind == 0:
            store.set(key, "x" * choice.choice([1, 100, 10_000]))
        elif kind == 1:
            store.get(key, timeout=0.001)
        elif kind == 2:
            store.add(f"{key} number", 1)
        elif kind == 3:
            store.compare_set(key, "a", "b")
        elif kind == 4:
            store.queue_push(f"{key} queue", "item")
            store.queue_pop(f"{key} queue", False)
        elif kind == 5:
            store.multi_set([key, "other"], [b"1", bytearray(b"2")])
        elif kind == 6:
            store.check([key, "other"])
        elif kind == 7:
            store.num_keys()
            repr(store)
        elif kind == 8:
            store.delete_key(key)
        else:
            store.set_timeout(choice.choice([0.5, 300]))
            store.wait(["other"], timeout=0.001)

    return step


@scenario
def count_in_stores(seconds: float) -> None:
    """What all threads add, is there."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (HashStore(), server, PrefixStore("p", server)):
        added = itertools.count()

        def step(_: random.Random, store: Store = store, added: Any = added) -> None:
            store.add("sum", 1)
            next(added)

        run(seconds / 3, step)
        assert store.add("sum", 0) == next(added), store
    server.close()


@scenario
def any_request(seconds: float) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (HashStore(), server):
        run(seconds / 2, use_store(store), told=(DistError,))
    server.close()


@scenario
def close_while_others_call(seconds: float) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    holder = [server.clone()]

    def use(choice: random.Random) -> None:
        use_store(holder[0])(choice)

    def replace(choice: random.Random) -> None:
        former = holder[0]
        holder[0] = server.clone()
        if choice.random() < 0.5:
            former.close()

    run(seconds, use, use, use, replace, told=(DistError,))
    server.close()


@scenario
def one_init_of_a_store(seconds: float) -> None:
    """However many threads call `__init__`, one of them makes the store."""
    tries = itertools.count()
    holder: list[Any] = [HashStore.__new__(HashStore)]
    prefix: list[Any] = [PrefixStore.__new__(PrefixStore)]
    below = HashStore()

    def make(choice: random.Random) -> None:
        store = holder[0]
        with contextlib.suppress(RuntimeError):
            store.__init__()
        store.set("a", "b")
        view = prefix[0]
        with contextlib.suppress(RuntimeError):
            view.__init__("p", below)
        assert view.underlying_store is below
        repr(view)
        view.set("a", "b")

    def renew(_: random.Random) -> None:
        next(tries)
        holder[0] = HashStore.__new__(HashStore)
        prefix[0] = PrefixStore.__new__(PrefixStore)

    run(seconds, make, make, make, renew, told=())


class OwnStore(Store):
    """A store written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def set(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def get(self, key: Any, *, timeout: Any = None) -> bytes:
        if key not in self.values:
            raise KeyError(key)
        return self.values[key]

    def add(self, key: Any, amount: int) -> int:
        with self.lock:
            number = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(number).encode()
        return number

    def wait(self, keys: Any, timeout: Any = None) -> None:
        for key in keys:
            if key not in self.values:
                raise KeyError(key)

    def check(self, keys: Any) -> bool:
        return all(key in self.values for key in keys)


@scenario
def stores_in_python(seconds: float) -> None:
    holder: list[Any] = [OwnStore()]

    def use(choice: random.Random) -> None:
        store = holder[0]
        view = PrefixStore("a", PrefixStore("b", store))
        view.set("key", b"value")
        assert view.get("key") == b"value"
        view.add("number", 1)
        del store
        assert bytes(view["key"]) == b"value"

    def group(_: random.Random) -> None:
        ProcessGroup(PrefixStore("c", holder[0]), 0, 1).shutdown()

    def renew(_: random.Random) -> None:
        holder[0] = OwnStore()

    run(seconds, use, use, group, renew)


@scenario
def share_a_work(seconds: float) -> None:
    """Threads ask and drop the same Works, and add callbacks to them."""
    group = ProcessGroup(HashStore(), 0, 1)
    holder: list[Any] = [distlite.barrier(group, True)]
    called = itertools.count()
    wanted = itertools.count()

    def begin(choice: random.Random) -> None:
        kind = choice.randrange(3)
        array = np.ones(choice.choice([1, 50_000]), np.float32)
        if kind == 0:
            holder[0] = distlite.all_reduce(array, group=group, async_op=True)
        elif kind == 1:
            outputs = [np.empty_like(array)]
            holder[0] = distlite.all_gather(outputs, array, group, True)
        else:
            distlite.all_reduce(array, group=group, async_op=True)  # dropped at once

    def ask(choice: random.Random) -> None:
        work = holder[0]
        repr(work)
        kind = choice.randrange(5)
        if kind == 0:
            work.wait()
            outputs = work.result() if work._get_op_type() != 5 else None
            assert outputs is None or outputs is work.result()
        elif kind == 1:
            work.is_completed()
            work.exception()
            work.is_success()
        elif kind == 2:
            next(wanted)
            work._call_when_done(lambda _: next(called))
        elif kind == 3:
            work.get_future().then(lambda done: done.value())
        else:
            work.get_future().done()

    run(seconds, begin, ask, ask, ask, told=(RuntimeError,))
    holder[0] = None
    # Those with callbacks of their own are counted.
    wanted_count, deadline = next(wanted), time.monotonic() + GRACE
    distlite.barrier(group)
    work = distlite.barrier(group, True)
    seen = threading.Event()
    work.get_future().add_done_callback(lambda _: seen.set())
    assert seen.wait(GRACE)
    while (count := next(called)) < wanted_count and time.monotonic() < deadline:
        called = itertools.count(count)
        time.sleep(0.01)
    assert count == wanted_count
    group.shutdown()


@scenario
def call_callbacks_once(seconds: float) -> None:
    """Each callback of each Work is called, and once."""
    group = ProcessGroup(HashStore(), 0, 1)

    def step(choice: random.Random) -> None:
        seen: list[int] = []
        done = threading.Semaphore(0)

        def note(number: int) -> None:
            seen.append(number)
            done.release()

        work = distlite.barrier(group, True)
        others = [
            threading.Thread(
                target=work._call_when_done, args=(lambda _, n=n: note(n),)
            )
            for n in range(3)
        ]
        for other in others:
            other.start()
        del work
        for other in others:
            other.join()
        for _ in others:
            assert done.acquire(timeout=GRACE)
        assert sorted(seen) == [0, 1, 2]

    distlite.barrier(group, True).get_future().add_done_callback(print_nothing)
    run(seconds, step)
    group.shutdown()


def print_nothing(_: object) -> None:
    pass


@scenario
def share_futures(seconds: float) -> None:
    holder: list[Any] = [distlite.Future()]

    def renew(_: random.Random) -> None:
        future, holder[0] = holder[0], distlite.Future()
        with contextlib.suppress(RuntimeError):
            future.set_result(3)

    def ask(choice: random.Random) -> None:
        future = holder[0]
        if choice.random() < 0.2:
            with contextlib.suppress(RuntimeError):
                future.set_result(3)
        repr(future)
        kind = choice.randrange(3)
        if kind == 0:
            assert future.then(lambda done: done.value() + 1) is not None
        elif kind == 1 and future.done():
            assert future.value() == future.wait() == 3
        elif kind == 2:
            distlite.collect_all([future, future])

    run(seconds, renew, ask, ask, ask)


@scenario
def groups_of_threads(seconds: float) -> None:
    """Four ranks as threads, over a real board, each with a group of its own."""

    def body(rank: int, rounds: int) -> float:
        total = 0.0
        side = distlite.new_group([0, 1, 2, 3])
        for i in range(rounds):
            array = np.array([rank + 1.0])
            distlite.all_reduce(array)
            assert array[0] == 10
            large = np.full(40_000, rank, np.float32)
            work = distlite.all_reduce(large, group=side, async_op=True)
            gathered: list[Any] = [None] * 4
            distlite.all_gather_object(gathered, {"rank": rank, "round": i})
            assert [each["rank"] for each in gathered] == [0, 1, 2, 3]
            work.wait()
            assert large[-1] == 6
            other = rank ^ 1
            sent = distlite.isend(np.array([rank]), other)
            got = np.array([-1])
            distlite.recv(got, other)
            sent.wait()
            assert got[0] == other
            total += array[0]
        return total

    until = time.monotonic() + seconds
    with testing.world(4, timeout=GRACE) as ranks:
        while True:
            assert ranks.run(body, rounds=10) == [100.0] * 4
            if time.monotonic() > until:
                break


@scenario
def share_a_group(seconds: float) -> None:
    """Threads call one group; another one makes, leaves and drops groups."""
    holder: list[Any] = [ProcessGroup(HashStore(), 0, 1)]

    def use(choice: random.Random) -> None:
        group = holder[0]
        repr(group)
        kind = choice.randrange(6)
        array = np.ones(choice.choice([1, 1000, 50_000]))
        if kind == 0:
            distlite.all_reduce(array, group=group)
        elif kind == 1:
            distlite.all_reduce(array, group=group, async_op=True)
        elif kind == 2:
            distlite.barrier(group)
        elif kind == 3:
            distlite.all_gather_object([None], {"a": [1, 2, array[:3]]}, group)
        elif kind == 4:
            assert group.group_name == "0" and group.group_desc == "undefined"
            group.get_group_store()
            group.set_timeout(choice.choice([1, timedelta(seconds=2)]))
            group._get_sequence_number_for_group()
        else:
            distlite.all_reduce(array, distlite.ReduceOp.MAX, group, True).wait(1)

    def renew(choice: random.Random) -> None:
        former, holder[0] = holder[0], ProcessGroup(HashStore(), 0, 1)
        kind = choice.randrange(3)
        if kind == 0:
            former.abort()
        elif kind == 1:
            former.shutdown()

    run(seconds, use, use, use, renew, told=(DistError,))
    holder[0].shutdown()


@scenario
def replace_the_default_group(seconds: float) -> None:
    array = np.ones(1)

    def use(choice: random.Random) -> None:
        kind = choice.randrange(4)
        if kind == 0:
            distlite.all_reduce(array.copy())
        elif kind == 1:
            distlite.barrier(async_op=True)
        elif kind == 2:
            distlite.get_rank()
            distlite.get_world_size()
            distlite.get_backend()
        else:
            distlite.new_group([0])

    def replace(_: random.Random) -> None:
        distlite.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        distlite.destroy_process_group()

    # A group that has gone is not known any more.
    gone = (DistError, ValueError, AssertionError)
    run(seconds, use, use, use, replace, told=gone)


@scenario
def destroy_at_once(seconds: float) -> None:
    """Several threads leave the same groups."""

    def step(_: random.Random) -> None:
        distlite.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        groups = [distlite.new_group([0]) for _ in range(2)]
        wrong: list[BaseException] = []

        def leave(group: Any) -> None:
            try:
                distlite.destroy_process_group(group)
            except (AssertionError, ValueError, DistError):
                pass
            except BaseException as error:
                wrong.append(error)

        leaving = [
            threading.Thread(target=leave, args=(group,))
            for group in (*groups, *groups, None, None)
        ]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        assert not wrong, wrong
        assert not distlite.is_initialized()

    run(seconds, step, threads=1)


class OwnGroup(ProcessGroup):
    """A group whose operations are written in Python."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)

    def barrier(self, opts: Any = None) -> Any:
        work = distlite.Future()
        work.set_result(None)
        return EndedWork()


class EndedWork(distlite.Work):
    def wait(self, timeout: Any = None) -> bool:
        return True


@scenario
def groups_in_python(seconds: float) -> None:
    group = OwnGroup(0, 1)

    def use(choice: random.Random) -> None:
        distlite.barrier(group)
        assert group.size() == 1 and group.rank() == 0
        repr(group)
        assert group.group_name in ("0", "name")
        group.get_group_store()
        assert isinstance(group.group_desc, str)

    def adopt(_: random.Random) -> None:
        group._adopt(HashStore(), 0, 1, 60, "name", "text", "custom")
        group._set_global_ranks([0])

    def begin_again(_: random.Random) -> None:
        group.__init__(0, 1)  # type: ignore[misc]

    def replace_handler(_: random.Random) -> None:
        group._set_handler(group._set_handler(None))

    told = (NotImplementedError, DistError)
    run(seconds, use, use, adopt, begin_again, replace_handler, told=told)


@scenario
def change_what_is_passed(seconds: float) -> None:
    """Lists and dicts that another thread changes during the call."""
    group = ProcessGroup(HashStore(), 0, 1)
    outputs: list[Any] = [np.empty(3)]
    tree: dict[str, Any] = {"list": [1, 2, 3], "text": "a"}
    sizes = [3]

    def change(choice: random.Random) -> None:
        if choice.random() < 0.5:
            outputs.append(np.empty(3))
            sizes.append(1)
        else:
            del outputs[choice.randrange(2) :]
            del sizes[1:]
            outputs[:] = [np.empty(3)]
        tree[f"key {choice.randrange(20)}"] = [object, "x"][1:]
        tree.pop(f"key {choice.randrange(20)}", None)
        tree["list"].append(4)
        del tree["list"][3:]

    def gather(_: random.Random) -> None:
        array = np.ones(3)
        with contextlib.suppress(ValueError, DistError):
            distlite.all_gather(outputs, array, group)
        with contextlib.suppress(ValueError, DistError):
            distlite.all_to_all_single(np.empty(3), array, sizes, sizes, group)
        with contextlib.suppress(ValueError, DistError):
            distlite.all_gather_coalesced(outputs[:1], array, group)

    def send(_: random.Random) -> None:
        for safe in (True, False):
            with contextlib.suppress(RuntimeError):  # changed size during iteration
                distlite.all_gather_object([None], tree, group, safe=safe)

    run(seconds, change, gather, send, send, told=(TypeError, AttributeError))
    group.shutdown()


@scenario
def many_kinds_of_arrays(seconds: float) -> None:
    """Records, and classes with DLPack: what is known of them is forgotten again."""
    group = ProcessGroup(HashStore(), 0, 1)

    def new_class() -> type:
        class Mine:
            def __init__(self) -> None:
                self.array = np.ones(2)

            def __dlpack__(self, **keywords: Any) -> Any:
                return self.array.__dlpack__(**keywords)

            def __dlpack_device__(self) -> Any:
                return self.array.__dlpack_device__()

        return Mine

    classes = [new_class() for _ in range(6)]
    masked = np.ma.masked_array(np.ones(2))  # NumPy imports a module for it

    def step(choice: random.Random) -> None:
        names = [f"f{i}" for i in range(choice.randrange(1, 14))]
        record = np.zeros(2, [(name, np.int32) for name in names])
        distlite.broadcast(record, group=group, group_src=0)
        classes[choice.randrange(6)] = new_class()
        distlite.all_reduce(classes[choice.randrange(6)](), group=group)
        with contextlib.suppress(ValueError):
            distlite.all_reduce(masked, group=group)

    run(seconds, step)
    group.shutdown()


@scenario
def many_lines(seconds: float) -> None:
    """More calling lines than are remembered, and code that goes away."""
    group = ProcessGroup(HashStore(), 0, 1)
    source = "".join(f"    reduce(array, group=group)  # {i}\n" for i in range(60))

    def step(choice: random.Random) -> None:
        names: dict[str, Any] = {}
        text = f"def f(reduce, array, group):\n{source}"
        exec(compile(text, f"made-{choice.randrange(5)}.py", "exec"), names)
        names["f"](distlite.all_reduce, np.ones(1), group)

    run(seconds, step)
    group.shutdown()


@scenario
def windows(seconds: float) -> None:
    group = ProcessGroup(HashStore(), 0, 1)
    window = distlite.Window(8, np.float64, group=group)
    places = itertools.count()

    def access_some() -> Step:
        """Each has elements of its own for what is not atomic."""
        first = 2 * next(places)

        def access(choice: random.Random) -> None:
            own = np.ones(choice.choice([1, 2]))
            window.put(own, 0, first)
            window.get(own, 0, first)
            window.accumulate(own[:1], 0, distlite.ReduceOp.SUM, 7)
            window.fetch_and_op(1.0, 0, offset=7)
            window.flush()

        return access

    def hold(_: random.Random) -> None:
        with window.lock(0):
            window.fetch_and_op(1.0, 0, offset=6)

    told = (DistError, RuntimeError)
    run(seconds, access_some(), access_some(), hold, told=told)
    window.close()
    group.shutdown()


@scenario
def log_and_debug(seconds: float) -> None:
    handler, always = logging.NullHandler(), logging.NullHandler()
    logger = logging.getLogger("distlite")

    def step(choice: random.Random) -> None:
        kind = choice.randrange(4)
        if kind == 0:
            distlite._C._log_warning("a line")
        elif kind == 1:
            logger.addHandler(handler)
        elif kind == 2:
            logger.removeHandler(handler)
        else:
            distlite.capture_log(choice.random() < 0.5)
            distlite._C._recording()

    logger.propagate = False
    logger.addHandler(always)
    run(seconds, step)
    distlite.capture_log(False)


def collect(stop: threading.Event) -> None:
    while not stop.wait(0.1):
        gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each scenario")
    parser.add_argument("--require-no-gil", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.require_no_gil and getattr(sys, "_is_gil_enabled", lambda: True)():
        sys.exit("there is a GIL, or a module has asked for it")
    known = {each.__name__: each for each in SCENARIOS}
    if unknown := set(options.names) - set(known):
        sys.exit(
            f"no such scenario: {', '.join(unknown)}; there are {', '.join(known)}"
        )
    stop = threading.Event()
    collector = threading.Thread(target=collect, args=(stop,), daemon=True)
    collector.start()
    for name in options.names or known:
        print(name, flush=True)
        known[name](options.seconds)
    stop.set()
    collector.join()
    print("all is well")


if __name__ == "__main__":
    faulthandler.enable()
    main()
