# SPDX-License-Identifier: BSD-3-Clause
"""NCCL with stand-ins for the libraries; on a real device with `-m device`."""

import cuda_device
import nccl_ranks
import netns
import pytest
import reconfigure_ranks
from doubles_build import nccl_doubles
from workers import SOON, rank_outcomes, run_ranks

import distlite


def test_everything():
    env = nccl_doubles()
    assert run_ranks(nccl_ranks.everything, 3, kit="fake", env=env) == [[]] * 3


@pytest.mark.slow
def test_everything_with_the_oldest_library():
    env = nccl_doubles("-DOLD", DOUBLE_NCCL_VERSION=21800)
    assert run_ranks(nccl_ranks.everything, 2, kit="fake", env=env) == [[]] * 2


def test_streams_are_in_order_and_the_host_does_not_wait():
    for found in run_ranks(nccl_ranks.ordering, 2, env=nccl_doubles()):
        assert found["before"] == [0.0] * 4
        assert found["after"] == [3.0] * 4
        assert found["completed at once"] is False
        assert found["other stream"] == [3.0] * 4
        assert found["completed"] == (True, True)
        assert found["blocking"] == [3.0] * 4
        assert found["future"] == [6.0] * 4
        # Two of the test's own; the group's is gone.
        assert found["streams"] == 2


def test_the_stream_is_the_librarys_whatever_class_is_derived_from_it():
    for found in run_ranks(nccl_ranks.library_streams, 2, env=nccl_doubles()):
        assert set(found) == {"Tensor", "Parameter", "Array", "Mine"}
        for kind, streamed in found.items():
            assert streamed == ([0.0] * 4, [3.0] * 4), kind


def test_arrays_without_a_current_stream_are_ordered_by_their_library():
    for found in run_ranks(nccl_ranks.immutable, 2, env=nccl_doubles()):
        for name in ("default", "chosen"):
            assert found[name] == ([1.0, 2.0], 0)
            assert found[f"{name}, asynchronous"] == ([1.0, 2.0], 1)


def test_a_call_may_name_its_stream():
    for rank, found in enumerate(
        run_ranks(nccl_ranks.named_streams, 2, env=nccl_doubles())
    ):
        assert found["before"] == [0.0] * 4
        assert found["after"] == found["async"] == [3.0] * 4
        assert found["messages"]
        assert found["scatter"] == [rank + 1.0] * 4
        assert "ValueError: `stream` is for arrays on devices" in found["host"]
        assert found["host"] == found["message"]
        assert "TypeError: a stream is the number of a cudaStream_t" in found["kind"]
        assert "TypeError: all_reduce() takes at most 4" in found["place"]
        assert found["none"] == [2.0] * 3
        assert found["collected"] == [3.0] * 4
        assert found["capture"] == 0
        assert found["captured"] == (True, [3.0] * 4)
        assert found["launched"] == ([12.0] * 4, 0)


def test_all_streams_that_arrays_name_come_before_and_go_on_after():
    for found in run_ranks(nccl_ranks.many_streams, 2, env=nccl_doubles()):
        for way in ("sync", "async", "batch"):
            assert found[way] == [[1.0, 1.0], [2.0, 2.0]], way


def test_batches_of_two_groups_keep_their_own_arrays():
    for found in run_ranks(nccl_ranks.batches_of_two_groups, 2, env=nccl_doubles()):
        assert len(found) == 4
        for way, kept in found.items():
            assert set(kept) == {(True, True)}, way


def test_operations_on_devices_are_seen_and_compared():
    first, second = run_ranks(nccl_ranks.recorded, 2, env=nccl_doubles())
    (waiting,) = first["rank"]["current"]
    assert waiting["text"] == "all_reduce(10 x float32, SUM) #2"
    assert waiting["waits_for"] == [{"rank": 1, "group_rank": 1, "state": "running"}]
    assert waiting["function"] == "recorded"
    backends = [group["backend"] for group in first["rank"]["groups"]]
    assert backends[-1] == "nccl"
    assert "all_reduce(10 x float32, SUM) #2 by nccl" in first["table"]
    for found in (first, second):
        assert found["last"] == waiting["text"]
        assert found["mismatch"].startswith("DistBackendError: Detected mismatch")
        assert "operation 2 of group 1 (nccl), nothing was sent" in found["mismatch"]
        assert "in error_of" in found["mismatch"]


def test_failures_say_who_and_what():
    first, second = run_ranks(nccl_ranks.failures, 2, env=nccl_doubles())
    late = first.pop("late")
    assert late.startswith(
        "DistBackendError: all_reduce #2 on cuda:0 timed out after 400ms"
    )
    assert "group 1, rank 0 of 2 on " in late
    assert "all_reduce #2 on cuda:0 timed out" in first.pop("again")
    assert first.pop("exception") == "DistBackendError"
    for name in ("alone", "pair"):
        text = second.pop(name)
        assert "creating the NCCL communicator of group" in text
        assert ": rank 0 did not join it within 400ms; `distlite ps`" in text
    for name in ("alone", "pair", "split"):
        assert "rank 1 gave up before all ranks had joined" in first.pop(name)
    assert first.pop("sum") == second.pop("sum") == "4.0"
    text = second.pop("split")
    assert "splitting the NCCL communicator of group 4, rank 1 of 2" in text
    assert ": rank 0 did not join it within 400ms; `distlite ps`" in text
    assert "group 5 was aborted: abort() was called" in second.pop("meeting")
    assert "group 7 was aborted: abort() was called" in first.pop("abort")
    error = first.pop("error")
    assert "group 6, rank 0 of 2" in error
    assert "remote process exited" in error
    assert "the cable was pulled" in error
    assert first.pop("quick") == "yes"
    for found in (first, second):
        assert "is not contiguous" in found.pop("strided")
        assert found.pop("mixed").startswith(
            "ValueError: all_gather: the arrays are not"
        )
        assert "NCCL cannot reduce int16" in found.pop("short")
        assert "Cannot use ReduceOp.BXOR of int32 with NCCL" in found.pop("BXOR")
        assert "name the source" in found.pop("any")
        launch = found.pop("launch")
        assert "all_reduce #1 on cuda:0 in group" in launch
        assert "this bundle was to fail" in launch
        assert found == {}


def test_a_killed_rank_ends_what_waits_for_it_and_nothing_else():
    outcomes = rank_outcomes(nccl_ranks.killed, 3, env=nccl_doubles())
    for outcome in outcomes:
        if outcome.rank == 1:
            continue
        assert outcome.is_good, outcome.describe()
        found = outcome.value
        assert "all_reduce #2 on cuda:0 in group 1, rank" in found["known"], found
        assert "creating the NCCL communicator of group 2, rank" in found["new"], found
        for name in ("known", "new"):
            assert ": rank 1 (pid " in found[name], found
            assert " exited or was killed" in found[name], found
        assert float(found["took"]) < 2 * SOON, found


def test_a_rank_that_is_killed_between_its_mark_and_the_outcome_is_named():
    outcomes = rank_outcomes(nccl_ranks.killed_at_mark, 3, env=nccl_doubles())
    for outcome in outcomes[:2]:
        assert outcome.is_good, outcome.describe()
        text = outcome.value["text"]
        assert "creating the NCCL communicator of group 0, rank" in text
        assert ": rank 2 (pid " in text
        assert " exited or was killed" in text
        assert float(outcome.value["took"]) < SOON


def test_options_reach_the_library():
    for found in run_ranks(nccl_ranks.options, 2, env=nccl_doubles()):
        assert found["config"] == [0, 4, 2, 8, 0]
        assert "leave out config.split_share" in found["shared"]
        assert found["net"] == "Socket"
        assert found["non-blocking"] == [0.0, 2.0, 4.0]
        assert found["DLPack"] == [0.0, 2.0, 4.0]
        assert "unexpected keyword" not in found["older DLPack"]
        assert "read-only" in found["older DLPack"]
        assert found["by hand"] == [2.0]
        assert "a process uses one device" in found["two devices"]
        assert found["version"] == (2, 29, 2)
        assert found["comms"] == 0


@pytest.mark.parametrize(
    ("env", "available", "where", "text"),
    [
        (
            {"DISTLITE_NCCL_LIBRARY": "/nowhere/libnccl.so.2"},
            False,
            "init",
            "doesn't have NCCL built in; NCCL cannot be loaded: DISTLITE_NCCL_LIBRARY=",
        ),
        (["-DANCIENT"], False, "init", "lacks the symbol ncclCommSplit: it is too old"),
        ({"DOUBLE_NCCL_VERSION": "21205"}, False, "init", "is 2.12.5, older than 2.18"),
        (
            {"DOUBLE_CUDA_NO_DRIVER": "1"},
            True,
            "use",
            "this machine has no NVIDIA driver",
        ),
        ({"DOUBLE_CUDA_DEVICES": "0"}, True, "use", "CUDA_VISIBLE_DEVICES"),
    ],
    ids=["missing", "symbol", "version", "driver", "device"],
)
def test_what_is_missing_is_named(env, available, where, text):
    flags, settings = (env, {}) if isinstance(env, list) else ([], env)
    given = {**nccl_doubles(*flags), **settings}
    (found,) = run_ranks(nccl_ranks.availability, 1, env=given)
    assert found["available"] is found["both"] is available
    assert text in found[where]


def test_what_is_run_on_devices_runs_here():
    env = nccl_doubles()
    held = run_ranks(nccl_ranks.graphs, 2, launches=1, env=env)
    assert held == [[1.0, 6.0], [2.0, 6.0]]
    found = run_ranks(nccl_ranks.speeds, 2, counts=[10, 1000], rounds=2, env=env)
    for each in found:
        assert {"distlite", "NCCL alone"} <= set(each)
        assert all(0 < us < 1e7 for row in each.values() for us in row)


def check_hardened(found, names, size):
    for rank, each in enumerate(found):
        assert each.pop("comms", 0) == 0
        assert set(each) == set(names)
        assert each.get("apart", {"wrong": []}) == {"wrong": []}
        assert all(each.get("threads", {}).values())
        assert all(each.get("parting", {}).values())
        assert all(each.get("shrinking", {}).values())
        assert all(each.get("living_graph", {}).values())
        assert all(each.get("barriers", {}).values())
        said = each.get("hanging")
        if said:
            assert said.pop("parent") is True
        if said and rank == 0:
            assert "all_reduce #1 on cuda:0 timed out after 600ms" in said["late"]
            assert "all_reduce #1 on cuda:0 timed out" in said["again"]
            assert "was aborted: abort() was called" in said["aborted"]
            assert said["took"] < SOON


HARDENED = [part.__name__ for part in nccl_ranks.HARDENED]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_what_breaks_nccl_does_not_happen(size):
    found = run_ranks(nccl_ranks.hardened, size, names=HARDENED, env=nccl_doubles())
    check_hardened(found, HARDENED, size)


def test_the_stand_in_ends_ranks_that_differ():
    outcomes = rank_outcomes(nccl_ranks.differing, 2, env=nccl_doubles(), timeout=20)
    said = [each.describe() for each in outcomes if each.returncode == -6]
    assert said
    for text in said:
        assert "nccl double: ranks issue different calls" in text
        assert "AllReduce of 3 (dtype 8, op 0, root -1), 1 of 1 in its bundle" in text
        assert "AllReduce of 4" in text


def test_the_stand_in_refuses_what_nccl_does_not_grow_by():
    env = nccl_doubles()
    assert run_ranks(nccl_ranks.misuse, 1, how="", env=env) == [[4] * 8]
    for how, text in (
        ("number", "a new rank has the number of an old one"),
        ("ids", "an id for growing is made before the last one was used"),
    ):
        [outcome] = rank_outcomes(nccl_ranks.misuse, 1, how=how, env=env)
        assert outcome.returncode == -6
        assert f"nccl double: {text}" in outcome.describe()


def test_no_context_is_made_on_a_device_that_nobody_uses():
    env = nccl_doubles(DOUBLE_CUDA_DEVICE=1)
    for found in run_ranks(nccl_ranks.contexts, 2, env=env):
        assert found == {"held": [8.0] * 3, "contexts": [False, True]}


def test_a_group_that_is_not_used_for_arrays_of_the_device_makes_no_context():
    found = run_ranks(nccl_ranks.unused_device, 2, env=nccl_doubles())
    assert found == [[True, False, True, True]] * 2


@pytest.fixture
def device():
    """Skips where there is no device, or no NCCL."""
    path, reason = cuda_device.cudart()
    if not path:
        pytest.skip(reason)
    if not distlite.is_nccl_available():
        pytest.skip("there is no NCCL: pip install nvidia-nccl-cu12")


# Ranks that share a device get parts of its memory and cores: it takes patience.
PATIENCE = 240


@pytest.mark.device
@pytest.mark.parametrize("name", HARDENED)
def test_what_breaks_nccl_on_a_device(device, name):
    found = run_ranks(nccl_ranks.hardened, 2, names=[name], timeout=PATIENCE)
    check_hardened(found, [name], 2)


@pytest.mark.device
def test_contexts_on_a_device(device):
    found = run_ranks(nccl_ranks.unused_device, 2, timeout=PATIENCE)
    assert found == [[True, False, True, True]] * 2


@pytest.mark.device
@pytest.mark.parametrize("kit", ["cuda", "torch"])
@pytest.mark.parametrize("size", [2, 4])
def test_everything_on_a_device(device, kit, size):
    if kit == "torch" and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("this torch has no CUDA")
    wrong = run_ranks(nccl_ranks.everything, size, kit=kit, timeout=PATIENCE)
    assert wrong == [[]] * size


@pytest.mark.device
def test_communicators_follow_their_members_on_a_device(device):
    changes = [[0, 1], [0, 1, 2], [0, 2], [0, 2, 1]]
    with distlite.TCPStore("127.0.0.1", 0, is_master=True) as store:
        run_ranks(
            reconfigure_ranks.follow,
            3,
            place=str(store.port),
            changes=changes,
            timeout=PATIENCE,
        )


@pytest.mark.device
def test_graphs_on_a_device(device):
    held = run_ranks(nccl_ranks.graphs, 2, launches=3, timeout=PATIENCE)
    # Each launch adds up the two ranks' arrays twice.
    assert [each[1:] for each in held] == [[6.0, 24.0, 96.0]] * 2


@pytest.mark.device
def test_graphs_of_cupy_on_a_device(device):
    pytest.importorskip("cupy")
    held = run_ranks(nccl_ranks.cupy_graphs, 2, timeout=PATIENCE)
    assert held == [[3.0, 12.0, 48.0]] * 2


@pytest.mark.device
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_arrays_of_jax_on_a_device(device, backend):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    found = run_ranks(nccl_ranks.jax_arrays, 2, backend=backend, timeout=PATIENCE)
    assert found == [[[1.0, 2.0], [101.0, 102.0]]] * 2


@pytest.mark.device
def test_speed_on_a_device(device, capsys):
    counts = [10, 10_000, 1_000_000, 30_000_000]
    found = run_ranks(nccl_ranks.speeds, 2, counts=counts, rounds=30, timeout=PATIENCE)[
        0
    ]
    with capsys.disabled():
        print(f"\nall_reduce of {counts} float32, microseconds:")
        for name, row in found.items():
            print(f"  {name:12}", *(f"{us:10.1f}" for us in row))
    for name, row in found.items():
        for ours, theirs in zip(found["distlite"], row, strict=True):
            # Some microseconds for the order of streams, which NCCL does not keep.
            assert ours <= 1.25 * theirs + 50, (name, found)


@pytest.fixture
def hosts():
    netns.skip_unless_possible()
    with netns.Network(3) as network:
        yield network.hosts


def test_the_end_of_all_ranks_of_another_host_ends_operations(hosts):
    outcomes = rank_outcomes(
        nccl_ranks.lost_host, 3, env=nccl_doubles(), hosts=hosts, **at(hosts[0])
    )
    for outcome in outcomes[:2]:
        assert outcome.is_good, outcome.describe()
        text, seconds = outcome.value
        assert "rank 2 (pid " in text, text
        assert "exited or was killed, or cannot be reached" in text, text
        assert seconds < SOON


def test_a_rank_of_another_host_that_leaves_in_order_ends_no_operation(hosts):
    found = run_ranks(
        nccl_ranks.early_leaver, 3, env=nccl_doubles(), hosts=hosts, **at(hosts[0])
    )
    assert found[0] == [1.0, 1.0]


def at(host: netns.Host) -> dict[str, str]:
    return {"init_method": f"tcp://{host.address}:29500"}
