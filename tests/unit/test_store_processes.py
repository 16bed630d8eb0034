# SPDX-License-Identifier: BSD-3-Clause
"""Stores and processes: Ctrl-C ends a blocked call at once, a forked child makes stores
of its own, and a pickle opens the same data in another process.

Signals and forks are the whole process's, so they happen in fresh interpreters.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kinds import KINDS, count_beside_others

from distlite import FileStore, PrefixStore, Store, TCPStore

# The others wait as one of these does.
_SELDOM = ("prefix", "tcp-poll", "tcp-tls", "tcp-relay")
BLOCKING = [
    pytest.param(name, marks=[pytest.mark.slow] if name in _SELDOM else [])
    for name in KINDS
    if name != "python"
]

TESTS = Path(__file__).parents[1]

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
from store_kinds import KINDS, Background, kind_of, wait_until_asleep
from distlite import *
"""


def run(code: str, *arguments: str, seconds: float = 100) -> str:
    """What the program printed; it must end well and in time."""
    # Of forks beside threads Python 3.12 warns; they are what is tested.
    python = [sys.executable, "-W", "ignore:This process", "-c"]
    done = subprocess.run(
        [*python, PRELUDE + textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


INTERRUPT = """
calls = {
    "get": lambda: store.get("nope"),
    "wait": lambda: store.wait(["nope"], -1),
    "multi_get": lambda: store.multi_get(["nope", "none"]),
    "barrier": lambda: store.barrier("b", 2, 60),
    "queue_pop": lambda: store.queue_pop("q"),
    "lock": lambda: store.lock("held").acquire(),
}
with kind_of(sys.argv[1], Path(sys.argv[2])) as kind:
    if not kind.has_queues:
        del calls["queue_pop"]
    store = kind.open()
    store.lock("held").acquire()
    signal.signal(signal.SIGALRM, signal.default_int_handler)

    def lateness(call):
        began = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            call()
        except KeyboardInterrupt:
            return time.monotonic() - began - 0.15
        raise AssertionError("not interrupted")

    for name, call in calls.items():
        # More than once only where the machine was busy with something else.
        late = [lateness(call)]
        while min(late) > 0.1 and len(late) < 20:
            late.append(lateness(call))
        assert min(late) < 0.1, (name, late)
        store.set("key", name)
        assert store.get("key") == name.encode()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
print("done")
"""


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_signal_ends_every_blocked_call(kind: str, tmp_path: Path):
    assert run(INTERRUPT, kind, str(tmp_path)) == "done\n"


def test_a_real_ctrl_c_ends_a_blocked_call():
    code = """
        store = TCPStore("127.0.0.1", 0, is_master=True)
        try:
            print("ready", flush=True)
            store.get("nope")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_signal_ends_connecting_and_waiting_for_workers():
    code = """
        import socket
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))  # does not listen: nobody answers there
        tries = [
            lambda: TCPStore("127.0.0.1", taken.getsockname()[1], timeout=60),
            lambda: TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=60),
        ]
        for call in tries:
            late = []
            while not late or (min(late) > 0.1 and len(late) < 20):
                began = time.monotonic()
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.15)
                    call()
                except KeyboardInterrupt:
                    late.append(time.monotonic() - began - 0.15)
                else:
                    raise AssertionError("not interrupted")
            assert min(late) < 0.1, late
        print("done")
    """
    assert run(code) == "done\n"


def test_a_signal_while_a_client_moves_to_the_unix_socket_loses_nothing():
    code = """
        import random
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        server = TCPStore("127.0.0.1", 0, is_master=True)

        def until_alone():
            deadline = time.monotonic() + 60
            while server.stats()["clients"] > 1:
                assert time.monotonic() < deadline, server.stats()

        for _ in range(40):
            server.num_keys()
        moments, stops = random.Random(5), 0
        for n in range(100):
            until_alone()
            with TCPStore("127.0.0.1", server.port) as store:
                store.set("key", str(n))
                for _ in range(28):
                    store.num_keys()
                assert server.stats()["unix_clients"] == 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 6e-4))
                    for _ in range(12):
                        store.get("key")
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    stops += 1
                for _ in range(40):
                    assert store.get("key") == str(n).encode()
                assert server.stats()["unix_clients"] == 2
        until_alone()
        assert stops > 10
        print("done")
    """
    assert run(code) == "done\n"


def test_a_handler_s_own_exception_arrives():
    code = """
        class Enough(Exception): pass
        def stop(*_): raise Enough
        signal.signal(signal.SIGALRM, stop)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            PrefixStore("p", HashStore()).get("nope")
        except Enough:
            print("enough")
    """
    assert run(code) == "enough\n"


def test_a_handler_that_returns_ends_nothing():
    code = """
        store = HashStore()
        signal.signal(signal.SIGALRM, lambda *_: store.set("key", "from the handler"))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        print(store.get("key").decode())
    """
    assert run(code) == "from the handler\n"


def test_other_threads_are_not_interrupted():
    code = """
        store = HashStore()
        waiter = Background(lambda: store.get("key"))
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            store.get("nope")
        except KeyboardInterrupt:
            pass
        assert not waiter.is_done()
        store.set("key", "value")
        print(waiter.join())
    """
    assert run(code) == "b'value'\n"


def test_a_forked_child_makes_its_own():
    code = """
        store = TCPStore("127.0.0.1", 0, is_master=True)
        child = os.fork()
        if child == 0:
            own = TCPStore("127.0.0.1", store.port, timeout=60)
            own.set("key", "from the child")
            os._exit(0)
        print(store.get("key").decode())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    assert run(code) == "from the child\n"


def test_a_blocked_call_lets_other_threads_run():
    code = """
        store = TCPStore("127.0.0.1", 0, is_master=True)
        waiter = Background(lambda: store.get("nope")).until_asleep()
        began = time.monotonic()
        turns = 0
        while time.monotonic() - began < 0.3:
            turns += 1
        print(turns > 1000, waiter.is_done())
        os._exit(0 if not sys.stdout.flush() else 1)
    """
    assert run(code) == "True False\n"


def test_the_interpreter_ends_while_threads_are_blocked():
    code = """
        stores = [HashStore(), TCPStore("127.0.0.1", 0, is_master=True)]
        for store in stores:
            Background(lambda store=store: store.get("nope")).until_asleep()
        print("end")
    """
    assert run(code) == "end\n"


def test_a_signal_waits_until_a_store_is_closed_or_freed(tmp_path: Path):
    """Closing a FileStore waits for the file's lock, which somebody else holds."""
    code = """
        import fcntl
        path = sys.argv[1]

        def interrupt_and_give_up_the_lock(file):
            begun.wait()
            wait_until_asleep(threading.main_thread())  # it waits for the lock
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)  # as long as it would take to go on wrongly
            fcntl.flock(file, fcntl.LOCK_UN)

        def end_by_closing():
            stores.pop().close()

        def end_by_freeing():
            stores.pop()

        for end in (end_by_closing, end_by_freeing):
            stores = [FileStore(path, 1)]
            file = open(path)
            fcntl.flock(file, fcntl.LOCK_EX)
            begun = threading.Event()
            holder = Background(lambda: interrupt_and_give_up_the_lock(file))
            try:
                begun.set()
                end()
                print("not interrupted")
            except KeyboardInterrupt:
                print("interrupted, file left:", os.path.exists(path))
            holder.join()
    """
    line = "interrupted, file left: False\n"
    assert run(code, str(tmp_path / "store")) == line * 2


# Stores that are pickled into other processes.


@pytest.fixture(params=["file", "tcp", "tcp-all-addresses", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "file":
        below: Store = FileStore(tmp_path / "store")
    else:
        host = "" if request.param == "tcp-all-addresses" else "127.0.0.1"
        below = TCPStore(host, 0, 1, is_master=True)
    below.set_timeout(60)
    with below:
        yield PrefixStore("p", below) if request.param == "prefix" else below


def test_a_handle_opens_the_same_data_elsewhere(store: Store):
    spawn = multiprocessing.get_context("spawn")
    arguments = {"target": count_beside_others, "args": (store,), "daemon": True}
    processes = [spawn.Process(**arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert store.get("n") == b"100"
    assert store.items("pid/") == sorted(
        (f"pid/{process.pid}", b"done") for process in processes
    )


def test_a_handle_has_the_timeout_and_serves_nobody(store: Store):
    store.set_timeout(7.5)
    with pickle.loads(pickle.dumps(store)) as handle:
        assert type(handle) is type(store) and handle.timeout == store.timeout
        handle.set("key", "value")
    # Closed: neither a server nor a file has gone with it.
    assert store.get("key") == b"value"
    handle = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(store))))
    assert handle.get("key") == b"value"


def test_a_path_is_that_of_the_first_process(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with FileStore("store") as store:
        store.set("key", "value")
        text = pickle.dumps(store)
        monkeypatch.chdir("/")
        assert pickle.loads(text).get("key") == b"value"
