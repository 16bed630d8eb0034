# SPDX-License-Identifier: BSD-3-Clause
"""The default group of a world of one."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from ports import reserve_port
from store_bytes import unix_names

import distlite
from distlite import testing
from distlite.groups import check_in, lifecycle
from distlite.groups.backends import Backend
from distlite.groups.world import world
from distlite.rendezvous import _handlers

ALONE = {"rank": 0, "world_size": 1}
NOT_INITIALIZED = (
    "Default process group has not been initialized, "
    "please make sure to call init_process_group."
)


@pytest.fixture(autouse=True)
def no_group_left():
    yield
    if distlite.is_initialized():
        distlite.destroy_process_group()


def init(backend=None, **keywords):
    keywords = {"store": distlite.HashStore(), **ALONE, **keywords}
    distlite.init_process_group(backend, **keywords)


def test_init_and_destroy():
    assert distlite.is_available()
    assert not distlite.is_initialized()
    assert distlite.group.WORLD is None
    init("gloo", timeout=timedelta(seconds=7))
    assert distlite.is_initialized()
    world = distlite.group.WORLD
    assert world is distlite.GroupMember.WORLD
    assert (world.rank(), world.size(), world.name()) == (0, 1, "gloo")
    assert (world.group_name, world.group_desc) == ("0", "default_pg")
    assert world.timeout == timedelta(seconds=7)
    assert distlite.get_pg_count() == 1
    distlite.destroy_process_group()
    assert not distlite.is_initialized()
    assert distlite.get_pg_count() == 0


class Interrupter:
    """Raises KeyboardInterrupt at the n-th call, where a signal may do so."""

    def __init__(self, n):
        self.left = n

    def __call__(self, frame, event, arg):
        # Returns from Python functions are not among them: the interpreter looks for
        # signals where functions begin and where calls of C functions have ended.
        if event == "return" or frame.f_globals["__name__"] == __name__:
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt


def enter():
    with distlite.process_group("gloo", store=distlite.HashStore(), **ALONE):
        pass


def interrupted(call):
    """Calls it with an interrupt at each place in turn, and at last with none; gives
    after each the number of the place."""
    call()  # imports what it needs
    yield 0
    interrupter, n = Interrupter(1), 0
    while interrupter.left <= 0 or n == 0:
        n += 1
        interrupter, has_ended = Interrupter(n), False
        sys.setprofile(interrupter)
        try:
            call()
            # Python ignores exceptions in generators that it closes.
            has_ended = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        # With the traceback goes a context manager that was interrupted in __enter__().
        yield 0 if has_ended else n


def presences() -> set[str]:
    gc.collect()
    names = unix_names(os.getpid())
    return {name for name in names if name.startswith("distlite-rank")}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_leaves_no_default_group():
    places = 0
    for n in interrupted(lambda: init("gloo")):
        if n == 0:
            distlite.destroy_process_group()
        assert not distlite.is_initialized(), n
        assert world.groups == {} and world.presence is None, n
        places = max(places, n)
    assert places > 100
    assert presences() == set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_ends_a_with_statement():
    for n in interrupted(enter):
        assert not distlite.is_initialized(), n
        assert world.groups == {} and world.presence is None, n
    assert presences() == set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "make",
    [lambda: distlite.new_group(), lambda: distlite.split_group(split_ranks=[[0]])],
)
def test_an_interrupt_anywhere_leaves_no_further_group(make):
    init("gloo")
    for n in interrupted(make):
        if n > 0:
            assert list(world.groups) == [distlite.group.WORLD], n
        for group in list(world.groups)[1:]:
            distlite.destroy_process_group(group)


def test_two_threads_leave_at_once(monkeypatch):
    """Both are past the check that there is a group to be left."""
    checked, leaving = (
        threading.Barrier(2, timeout=30),
        threading.Barrier(2, timeout=30),
    )

    class Own(distlite.ProcessGroup):
        def _verify_calls(self, timeout):
            checked.wait()

        def shutdown(self):
            leaving.wait()

    monkeypatch.setattr(Backend, "_plugins", {})
    lists = {"backend_list": list, "backend_capability": dict, "backend_type_map": dict}
    for name, copy in lists.items():
        monkeypatch.setattr(Backend, name, copy(getattr(Backend, name)))
    Backend.register_backend("own", lambda s, rank, n, t: Own(rank, n), False, "cpu")
    init("own")
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(distlite.destroy_process_group) for _ in range(2)]
    assert [end.exception() for end in ends] == [None, None]
    assert not distlite.is_initialized() and world.groups == {}


def test_threads_get_groups_of_different_names():
    init()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: distlite.new_group([0]), range(100)))
    assert len({group.group_name for group in made}) == 100
    distlite.destroy_process_group()


def test_again_on_the_same_store():
    store = distlite.HashStore()
    for _ in range(3):
        init(store=store)
        assert distlite.group.WORLD.group_name == "0"
        distlite.barrier()
        distlite.destroy_process_group()


@pytest.mark.parametrize(
    ("given", "said", "config"),
    [
        (None, "undefined", "cpu:gloo"),
        ("undefined", "undefined", "cpu:gloo"),
        ("gloo", "gloo", "cpu:gloo,cuda:gloo"),
        ("GLOO", "gloo", "cpu:gloo,cuda:gloo"),
        ("cpu", "cpu", "cpu:cpu"),
        ("cpu:gloo", "cpu:gloo", "cpu:gloo"),
    ],
)
def test_backends(given, said, config):
    init(given)
    assert distlite.get_backend() == said
    assert distlite.get_backend_config() == config


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ("bogus", AssertionError, "^Unknown backend type bogus; known are gloo, mpi"),
        ("", AssertionError, "^Unknown backend type ; known are gloo, mpi"),
        ("cpu:bogus", AssertionError, "Unknown backend type bogus"),
        (5, ValueError, 'parameter must be string-ish: a name such as "gloo", not 5$'),
        ("nccl", RuntimeError, "^Distributed package doesn't have NCCL built in"),
        ("mpi", RuntimeError, "^Distributed package doesn't have MPI built in"),
        ("ucc", AssertionError, "^Unknown c10d backend type UCC; UCC "),
        ("cpu:gloo,cuda:nccl", RuntimeError, "doesn't have NCCL built in"),
        ("xpu:gloo", ValueError, "gloo supports cpu and cuda memory only, not xpu"),
        ("cpu:fake,cuda:gloo", ValueError, "^gloo serves cuda memory by copies in"),
        ("cpu:gloo:x", ValueError, "^Invalid device:backend pairing: *cpu:gloo:x"),
        ("cpu:gloo,gloo", ValueError, "^Invalid device:backend pairing: *gloo"),
        ("cpu:gloo,cpu:gloo", ValueError, "^Duplicate device type cpu"),
    ],
)
def test_backends_that_are_not(monkeypatch, given, kind, text):
    monkeypatch.setenv("DISTLITE_NCCL_LIBRARY", "/nowhere/libnccl.so.2")
    monkeypatch.setenv("DISTLITE_UCC_LIBRARY", "/nowhere/libucc.so.1")
    monkeypatch.setenv("DISTLITE_MPI_LIBRARY", "/nowhere/libmpi.so")
    with pytest.raises(kind, match=text):
        init(given)
    assert not distlite.is_initialized()


@pytest.mark.parametrize(
    ("keywords", "kind", "text"),
    [
        (
            {"init_method": "env://"},
            AssertionError,
            "Cannot specify both init_method and store.",
        ),
        (
            {"world_size": -1},
            AssertionError,
            "world_size must be positive if using store",
        ),
        ({"rank": -1}, AssertionError, "rank must be non-negative if using store"),
        (
            {"timeout": "5"},
            TypeError,
            "Expected timeout argument to be of type datetime.timedelta, got 5, which",
        ),
        ({"timeout": float("nan")}, ValueError, "timeout must not be NaN"),
        ({"device_id": 0}, ValueError, "device_id is an int, but no accelerator "),
        ({"device_id": "cpu"}, ValueError, "must be an accelerator with an index"),
        ({"rank": 5, "world_size": 2}, ValueError, "5"),
        ({"rank": 0.0}, TypeError, "rank must be an integer, not 0.0"),
        ({"world_size": 1.0}, TypeError, "world_size must be an integer, not 1.0"),
        ({"store": 5}, (TypeError, AttributeError), ""),
    ],
)
def test_wrong_arguments(keywords, kind, text):
    with pytest.raises(kind) as caught:
        init(**keywords)
    assert text in str(caught.value)
    assert not distlite.is_initialized()


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8])
def test_ranks_of_other_types(kind, tmp_path):
    """They are met by their numbers: nobody waits for rank False."""
    for where in ({}, {"store": None, "init_method": f"file://{tmp_path}/store"}):
        init(rank=kind(0), world_size=kind(1), timeout=10, **where)
        assert type(distlite.get_rank()) is int
        distlite.destroy_process_group()


def test_twice():
    init()
    with pytest.raises(
        ValueError, match="trying to initialize the default process group twice!"
    ):
        init()


def test_options_are_ignored_aloud(monkeypatch):
    monkeypatch.setattr(distlite.Backend, "_plugins", {})  # they take options
    with pytest.warns(UserWarning, match="pg_options"):
        init(pg_options=object())


@pytest.mark.parametrize(
    "call",
    [
        distlite.get_rank,
        distlite.get_world_size,
        distlite.get_backend,
        distlite.get_backend_config,
        lambda: distlite.get_process_group_ranks(None),
    ],
)
def test_before_init(call):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == NOT_INITIALIZED


def test_destroy_before_init():
    with pytest.raises(
        AssertionError, match="^Process group cannot be None: there is no default group"
    ):
        distlite.destroy_process_group()


def test_destroy_what_is_no_group():
    init()
    distlite.destroy_process_group(distlite.GroupMember.NON_GROUP_MEMBER)
    for wrong in 5, distlite.ProcessGroup(distlite.HashStore(), 0, 1):
        with pytest.raises(ValueError, match="^Invalid process group specified$"):
            distlite.destroy_process_group(wrong)
    assert distlite.is_initialized()
    distlite.destroy_process_group(distlite.group.WORLD)
    assert not distlite.is_initialized()


def test_ranks_of_the_world():
    init()
    world = distlite.group.WORLD
    for group in None, world:
        assert (distlite.get_rank(group), distlite.get_world_size(group)) == (0, 1)
        assert distlite.get_process_group_ranks(group) == [0]
        # As torch: not checked, the numbers are the same.
        assert distlite.get_group_rank(group, 7) == 7
        assert distlite.get_global_rank(group, 7) == 7


def test_outside_of_a_group():
    init()
    outside = distlite.GroupMember.NON_GROUP_MEMBER
    assert outside == -100
    assert distlite.get_rank(outside) == distlite.get_world_size(outside) == -1
    with pytest.raises(ValueError, match="^Invalid process group specified$"):
        distlite.get_backend(outside)


def test_groups_that_are_not_registered():
    init()
    kept = distlite.group.WORLD
    distlite.destroy_process_group()
    init()
    for stranger in kept, 5:
        for call in (
            distlite.get_rank,
            distlite.get_world_size,
            lambda group: distlite.get_group_rank(group, 0),
            lambda group: distlite.get_global_rank(group, 0),
        ):
            with pytest.raises(ValueError, match="^Group .* is not registered"):
                call(stranger)
        for call in distlite.get_backend, distlite.get_process_group_ranks:
            with pytest.raises(
                ValueError, match="^Process group .* is not initialized"
            ):
                call(stranger)


def test_the_default_group_can_be_assigned():
    group = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
    distlite.group.WORLD = group
    assert distlite.GroupMember.WORLD is group
    assert distlite.get_rank() == 0
    distlite.all_reduce(np.zeros(3))
    distlite.GroupMember.WORLD = None
    assert not distlite.is_initialized()
    with pytest.raises(TypeError, match="WORLD must be a ProcessGroup or None"):
        distlite.group.WORLD = 7


def test_barrier_at_init(monkeypatch):
    monkeypatch.setenv("TORCH_DIST_INIT_BARRIER", "1")
    init()
    store = distlite.group.WORLD.get_group_store()
    assert any("store_based_barrier_key" in key for key in store.list_keys())


def test_node_local_rank(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert distlite.get_node_local_rank(3) == 3
    with pytest.raises(RuntimeError, match="^LOCAL_RANK is not in the environment"):
        distlite.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "")
    assert distlite.get_node_local_rank(fallback_rank=3) == 3
    monkeypatch.setenv("LOCAL_RANK", "two")
    with pytest.raises(ValueError, match="LOCAL_RANK must be a number, but is 'two'"):
        distlite.get_node_local_rank(fallback_rank=3)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert distlite.get_node_local_rank(3) == 2


def test_launched(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not distlite.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert distlite.is_torchelastic_launched()


@pytest.mark.parametrize("url", ["env://", "tcp://127.0.0.1:0", "file://{}/meeting"])
def test_by_url(url, tmp_path, monkeypatch):
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    distlite.init_process_group(init_method=url.format(tmp_path), **ALONE)
    distlite.barrier()


@pytest.mark.parametrize("kind", ["tcp", "file", "store"])
def test_ctrl_c_while_nobody_comes(kind, tmp_path):
    keywords = {
        "tcp": {"init_method": "tcp://127.0.0.1:0"},
        "file": {"init_method": f"file://{tmp_path}/meeting"},
        "store": {"store": distlite.HashStore()},
    }[kind]
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, send)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        distlite.init_process_group(**keywords, rank=0, world_size=2)
    # 100 ms are promised; the rest is for a machine that is busy.
    assert time.monotonic() - sent[0] < 5
    timer.join()
    assert not distlite.is_initialized()


def test_hosts_go_on_for_the_next_init():
    """Whoever comes early to the next init must find the server that all will use."""
    port = reserve_port()
    url = f"tcp://127.0.0.1:{port}"
    distlite.init_process_group(init_method=url, **ALONE)
    distlite.destroy_process_group()
    early = distlite.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
    early.set("early", "value")
    distlite.init_process_group(init_method=url, **ALONE)
    assert early.get("early") == b"value"
    distlite.barrier()


def alone():
    return distlite.process_group("gloo", store=distlite.HashStore(), **ALONE)


def test_a_with_statement_joins_and_leaves():
    with alone() as group:
        assert group is distlite.group.WORLD
        x = np.ones(2)
        distlite.all_reduce(x)
        distlite.new_group([0])
    assert not distlite.is_initialized()
    assert distlite.get_pg_count() == 0
    with pytest.raises(distlite.DistBackendError, match="group 0 is closed"):
        distlite.barrier(group)


def test_an_exception_leaves_a_with_statement_as_it_is():
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, alone():
        distlite.new_group([0])
        raise error
    assert caught.value is error
    assert error.__context__ is None and error.__cause__ is None
    assert not distlite.is_initialized()
    assert distlite.get_pg_count() == 0
    with alone():  # and it can be joined again
        distlite.barrier()


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("x" * 10000), "ValueError: " + "x" * 138),
        (ValueError("\udc80 \u20ac"), "ValueError: \\udc80 \u20ac"),
        (UnreadableError(), "UnreadableError"),
    ],
)
def test_an_exception_in_a_with_statement_is_quoted_to_the_others(error, said):
    store = distlite.HashStore()

    def leave(wait, rank):
        with (
            pytest.raises(distlite.DistBackendError if rank else type(error)) as caught,
            distlite.process_group(store=store, rank=rank, world_size=2) as default,
        ):
            group = distlite.new_group([0, 1])
            if rank == 0:
                # It is under way when the statement ends, and must not hold it up.
                distlite.all_reduce(np.ones(2), async_op=True)
                raise error
            wait(default if wait is not of_a_further_group else group)
        assert not distlite.is_initialized()
        return caught.value

    def of_the_default_group(group):
        distlite.irecv(np.ones(2), 0, group=group).wait()

    def of_a_further_group(group):
        distlite.barrier(group)

    for wait in of_the_default_group, of_a_further_group:
        with testing.world(2, backend=None, timeout=20) as ranks:
            raised, told = ranks.run(leave, wait)
        assert raised is error
        assert str(told).endswith(f"its with statement ended with {said}")


def test_a_good_exit_leaves_a_with_statement_as_its_end_does():
    with pytest.raises(SystemExit), alone() as group:
        sys.exit()
    assert not distlite.is_initialized()
    with pytest.raises(distlite.DistBackendError, match="group 0 is closed"):
        distlite.barrier(group)


def test_a_with_statement_may_have_left_before_its_end():
    with alone():
        distlite.destroy_process_group()
    assert not distlite.is_initialized()
    with alone():
        distlite.destroy_process_group()
        init()
        distlite.barrier()
    assert not distlite.is_initialized()


def test_a_with_statement_within_another():
    with alone() as group:
        with pytest.raises(ValueError, match="default process group twice"), alone():
            pass
        assert distlite.group.WORLD is group
        distlite.barrier()


def test_process_group_decorates_functions():
    @alone()
    def size():
        return distlite.get_world_size()

    assert size() == size() == 1
    assert not distlite.is_initialized()


def test_options_of_a_with_statement():
    limit = timedelta(seconds=9)
    store = distlite.HashStore()
    with distlite.process_group(timeout=9, store=store, **ALONE) as group:
        assert group.timeout == limit
        assert distlite.get_backend() == "undefined"
    with (
        pytest.raises(ValueError, match="device_id is an int"),
        distlite.process_group(store=store, device_id=0, **ALONE),
    ):
        pass


def run(program, **env):
    return subprocess.run(
        [sys.executable, "-c", "import distlite, sys, os\n" + program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **env},
    )


INIT = "distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)\n"


def test_uncaught_errors_name_the_rank():
    done = run(INIT + "raise KeyError('first line\\n\\nlast line')")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "[rank0]: Traceback (most recent call last):"
    assert all(line.startswith("[rank0]: ") for line in lines)
    assert lines[-1].startswith("[rank0]: KeyError: ")


def test_blank_lines_stay_blank():
    done = run(INIT + "raise RuntimeError('first line\\n\\nlast line')")
    assert done.stderr.endswith(
        "[rank0]: RuntimeError: first line\n\n[rank0]: last line\n"
    )


def test_destroy_takes_the_prefix_away():
    done = run(
        "hook = sys.excepthook\n"
        + INIT
        + "assert sys.excepthook is not hook\n"
        + "distlite.destroy_process_group()\n"
        + "assert sys.excepthook is hook\n"
        + "raise KeyError"
    )
    assert done.stderr.startswith("Traceback")


WITH = "with distlite.process_group(store=distlite.HashStore(), rank=0, world_size=1)"


def test_an_error_out_of_a_with_statement_names_the_rank_once():
    program = (
        "for _ in range(2):\n"
        " try:\n"
        f"  {WITH}: raise KeyError\n"
        " except KeyError: pass\n"
        f"{WITH}: raise ValueError('at the end')"
    )
    lines = run(program).stderr.splitlines()
    assert lines[0] == "[rank0]: Traceback (most recent call last):"
    assert lines[-1] == "[rank0]: ValueError: at the end"
    done = run(f"hook = sys.excepthook\n{WITH}: pass\nassert sys.excepthook is hook")
    assert done.returncode == 0, done.stderr


def test_a_later_hook_stays():
    done = run(
        INIT
        + "sys.excepthook = mine = lambda *_: print('mine', file=sys.stderr)\n"
        + "distlite.destroy_process_group()\n"
        + "assert sys.excepthook is mine\n"
        + "raise KeyError"
    )
    assert done.stderr == "mine\n"


def test_what_a_hook_writes_before_it_raises_is_shown():
    done = run(
        "def mine(kind, error, trace):\n"
        " print('told of', error, file=sys.stderr)\n"
        " raise OSError('the report was not sent')\n"
        "sys.excepthook = mine\n" + INIT + "raise ValueError('the cause')"
    )
    assert done.stderr.startswith("[rank0]: told of the cause\n")
    assert "OSError: the report was not sent" in done.stderr


@pytest.mark.parametrize("host", [False, True])
def test_exit_without_destroy(host):
    program = INIT
    if host:
        program = (
            "distlite.init_process_group(init_method='tcp://127.0.0.1:0', rank=0, "
            "world_size=1)\n"
        )
    done = run(program + "distlite.barrier()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_group_that_cannot_be_left_does_not_keep_the_others(monkeypatch):
    class Stubborn(distlite.ProcessGroup):
        def shutdown(self):
            raise OSError("stubborn")

    monkeypatch.setattr(distlite.Backend, "_plugins", {})
    distlite.Backend.register_backend(
        "stubborn", lambda store, *place: Stubborn(*place[:2]), devices=["cpu"]
    )
    init()
    distlite.new_group([0], backend="stubborn")
    later = distlite.new_group([0])
    with pytest.raises(OSError, match="stubborn"):
        distlite.destroy_process_group()
    assert not world.groups
    with pytest.raises(distlite.DistError, match="shut down|left|closed"):
        distlite.barrier(later)


def test_the_store_and_the_meeting_have_one_timeout(monkeypatch):
    """Finding the store takes most of it, by a clock that is put forward."""
    ahead = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + ahead[0], sleep=time.sleep
    )

    def find(url, **keywords):
        ahead[0] += 59.5
        yield distlite.HashStore(), 0, 2

    monkeypatch.setitem(_handlers, "slow", find)
    monkeypatch.setattr(lifecycle, "time", clock)
    monkeypatch.setattr(check_in, "time", clock)
    begin = time.monotonic()
    with pytest.raises(
        distlite.DistStoreError, match="after 60000ms: waiting for rank"
    ):
        distlite.init_process_group(init_method="slow://", timeout=60)
    assert time.monotonic() - begin < 30
