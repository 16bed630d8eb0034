# SPDX-License-Identifier: BSD-3-Clause
"""Which backend of a group serves which device, and what a group says of itself."""

import gc
import pickle
import sys
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import (
    HashStore,
    P2POp,
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    distributed_c10d,
)

BackendType = ProcessGroup.BackendType


class Ended(distlite.Work):
    def wait(self, timeout=None):
        return True


class Doubling(ProcessGroup):
    """Serves arrays anywhere."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.roots = []

    def allreduce(self, tensors, opts):
        tensors[0].array *= 2
        return Ended()

    def broadcast(self, tensors, opts):
        self.roots.append(opts.rootRank)
        return Ended()


class OnDevice:
    """An array that says it is elsewhere."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (2, 0)


class Device:
    """As torch's."""

    def __init__(self, kind):
        self.type = kind


@pytest.fixture
def world():
    distlite.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield distlite.group.WORLD
    distlite.destroy_process_group()


def test_types_of_backends():
    assert [(each.name, each.value) for each in BackendType] == [
        *(("UNDEFINED", 0), ("GLOO", 1), ("NCCL", 2), ("UCC", 3), ("MPI", 4)),
        *(("XCCL", 5), ("CUSTOM", 6)),
    ]
    assert all(getattr(ProcessGroup, each.name) is each for each in BackendType)
    assert str(BackendType.GLOO) == f"{BackendType.GLOO}" == "BackendType.GLOO"


def test_kinds_of_failures(world):
    kinds = distlite.distributed_c10d.ErrorType
    assert {each.name: each.value for each in kinds} == {
        **{"SUCCESS": 0, "TIMEOUT": 1, "COMM_ERROR": 2, "REMOTE_ERROR": 3}
    }
    for group in (world, ProcessGroup(0, 1)):
        assert group.get_error() is kinds.SUCCESS
    for end in ("abort", "shutdown"):
        group = distlite.new_group([0])
        getattr(group, end)()
        assert group.get_error() is kinds.COMM_ERROR
    assert world.get_error() is kinds.SUCCESS


def test_a_group_is_its_own_backend(world):
    assert world._device_types == ["cpu", "cuda"]
    for device in ("cpu", "cpu:0", Device("cpu"), "cuda:1"):
        assert world._get_backend(device) is world
    with pytest.raises(
        RuntimeError,
        match="^No backend type associated .* type meta; group 0 supports cpu, cuda$",
    ):
        world._get_backend("meta")
    with pytest.raises(TypeError, match="a torch.device, not 5$"):
        world._get_backend(5)
    assert (world._get_backend_name(), world.bound_device_id) == ("gloo", None)
    assert ProcessGroup(0, 1).bound_device_id is None
    assert (world.supports_coalescing, world.supports_splitting) == (False, True)
    assert (world.supports_shrinking, world.supports_time_estimate) == (True, False)
    world.monitored_barrier(timedelta(seconds=5), wait_all_ranks=True)


def test_a_registered_backend_gets_its_device_s_arrays(world):
    mine = Doubling(0, 1)
    world._register_backend(Device("cuda"), BackendType.CUSTOM, mine)
    assert world._device_types == ["cpu", "cuda"]
    assert world._get_backend("cuda:3") is mine
    there, here = OnDevice(np.ones(2)), np.ones(2)
    distlite.all_reduce(there)
    distlite.all_reduce(here)
    assert (there.array.tolist(), here.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    distlite.broadcast(there, 0)
    assert mine.roots == [0]
    distlite.barrier()
    world._register_backend("xpu", 6)
    assert world._get_backend("xpu") is mine
    with pytest.raises(ValueError, match="^no backend of type MPI is registered"):
        world._register_backend("mps", BackendType.MPI)


def test_a_group_without_a_backend_gets_one():
    group = ProcessGroup(0, 1)
    array = np.ones(2)
    assert group._device_types == []
    with pytest.raises(RuntimeError, match="^No backend type associated with device"):
        distlite.all_reduce(array, group=group)
    with pytest.raises(RuntimeError, match="supports none yet$"):
        group._get_backend("cpu")
    store = PrefixStore("engine", HashStore())
    native = ProcessGroupGloo(store, 0, 1, timedelta(seconds=5))
    group._register_backend("cpu", BackendType.GLOO, native)
    assert group._device_types == ["cpu"]
    outputs = [np.zeros(2)]
    distlite.all_gather(outputs, array, group)
    assert outputs[0].tolist() == [1.0, 1.0]
    group.allreduce([array]).wait()
    distlite.barrier(group)
    assert native._get_sequence_number_for_group() == 3


def test_a_group_made_by_hand_as_model_servers_do():
    store = PrefixStore("engine", HashStore())
    group = ProcessGroup(store, 0, 1)
    native = ProcessGroupGloo(store, 0, 1, timedelta(seconds=5))
    group._set_default_backend(BackendType.GLOO)
    with pytest.raises(ValueError, match="77"):
        group._set_default_backend(77)
    native._set_sequence_number_for_group()
    group._register_backend("cpu", BackendType.GLOO, native)
    group._set_group_name("trainers")
    group._set_group_desc("trainers and actors")
    with pytest.raises(TypeError, match="^group_name must be str, not int$"):
        group._set_group_name(3)
    with pytest.raises(TypeError, match="^group_desc must be str, not NoneType$"):
        group._set_group_desc(None)
    assert (group.group_name, group.group_desc) == ("trainers", "trainers and actors")
    assert repr(group) == (
        "<distlite.ProcessGroup 'trainers' (trainers and actors): rank 0 of 1, cpu>"
    )
    distributed_c10d._register_process_group("trainers", group)
    assert distributed_c10d._resolve_process_group("trainers") is group
    array = np.ones(2)
    distlite.all_reduce(array, group=group)
    assert native._get_sequence_number_for_group() == 1
    distributed_c10d._unregister_process_group("trainers")
    group.shutdown()


def test_options_of_groups(world):
    part = distlite.new_group([0], timeout=7, group_desc="part")
    told = part._get_backend("cpu").options
    assert isinstance(told, ProcessGroupGloo._Options)
    assert (told.backend, told._timeout) == ("gloo", timedelta(seconds=7))
    assert (told.group_name, told.global_ranks_in_group) == (part.group_name, [0])
    told._timeout = timedelta(seconds=9)
    assert part.timeout == part.options._timeout == timedelta(seconds=7)
    fake = ProcessGroup(HashStore(), 0, 1, backend="fake")
    with pytest.raises(NotImplementedError, match="^backend fake has no options$"):
        _ = fake.options


def test_what_is_no_backend(world):
    with pytest.raises(TypeError, match="has to be a ProcessGroup, not 'gloo'"):
        world._register_backend("cuda", 6, "gloo")
    with pytest.raises(ValueError, match="^group 0 cannot be its own backend$"):
        world._register_backend("cuda", 6, world)
    with pytest.raises(
        ValueError, match="^the backend has rank 1 of 2, but group 0 has rank 0 of 1 "
    ):
        world._register_backend("cuda", 6, Doubling(1, 2))
    with pytest.raises(ValueError, match="77"):
        world._register_backend("cuda", 77, Doubling(0, 1))
    assert world._device_types == ["cpu", "cuda"]


def test_a_group_for_the_cpu_alone_says_so():
    for given, served in (
        ("cpu:gloo", ["cpu"]),
        ("cpu", ["cpu"]),
        (None, ["cpu"]),
        ("cuda:gloo", ["cpu", "cuda"]),
        ("cpu:cpu,cuda:gloo", ["cpu", "cuda"]),
        ("fake", ["cpu", "cuda"]),
    ):
        distlite.init_process_group(given, store=HashStore(), rank=0, world_size=1)
        group = distlite.group.WORLD
        assert group._device_types == served, given
        part = distlite.new_group([0])
        assert part._device_types == served, given
        config = distlite.get_backend_config()
        assert ("cuda:" in config) is ("cuda" in served), given
        distlite.destroy_process_group()


def test_a_device_of_a_group_that_copies():
    keywords = {"store": HashStore(), "rank": 0, "world_size": 1}
    distlite.init_process_group("gloo", device_id="cuda:1", **keywords)
    assert distlite.group.WORLD.bound_device_id == "cuda:1"
    distlite.destroy_process_group()
    with pytest.raises(ValueError, match="must be an accelerator with an index"):
        distlite.init_process_group("cpu:gloo", device_id="cuda:1", **keywords)


def test_a_group_that_another_thread_has_closed():
    """As new_group() may find its group before it is complete."""
    group = ProcessGroup(HashStore(), 0, 1)
    group.shutdown()
    with pytest.raises(distlite.DistBackendError, match="group 0 is closed"):
        distlite._C._device_serve(group, "gloo", None, False)


def test_groups_and_works_stay_in_their_process(world):
    for each in (world, ProcessGroup(0, 1), Ended()):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(each)
    assert {world: 1}[world] == 1
    assert ProcessGroup(0, 1) != ProcessGroup(0, 1)


def test_messages_that_are_described():
    array = np.ones(2, np.float32)
    with pytest.raises(ValueError, match="^Default process group has not been"):
        P2POp(distlite.isend, array, 0)
    distlite.init_process_group("fake", store=HashStore(), rank=1, world_size=4)
    try:
        part = distlite.new_group([3, 1])
        op = P2POp(distlite.irecv, array, 3, part, 7)
        assert (op.peer, op.group_peer, op.tag, op.group) == (3, 1, 7, part)
        assert repr(op) == (
            "P2POp(irecv pg=1, group_src=1, group_dst=0,  (2,), float32)"
        )
        with pytest.raises(ValueError, match="^Group -100 is not registered, please"):
            P2POp(distlite.isend, array, 0, -100)
        with pytest.raises(ValueError, match="^Global rank 2 is not part of group"):
            P2POp(distlite.isend, array, 2, part)
        with pytest.raises(IndexError, match="^p2p_op_list is empty"):
            distlite.batch_isend_irecv([])
    finally:
        distlite.destroy_process_group()


def test_described_messages_are_objects_of_the_program():
    """Their members may be set, and classes derived from theirs."""

    class Named(P2POp):
        def __init__(self, name, *args, **keywords):
            super().__init__(*args, **keywords)
            self.name = name

    distlite.init_process_group("fake", store=HashStore(), rank=1, world_size=4)
    try:
        array = np.ones(2, np.float32)
        before = sys.getrefcount(array)
        op = Named("a", distlite.isend, array, peer=3)
        assert (op.name, op.peer, op.group_peer, op.tag) == ("a", 3, 3, 0)
        assert op.group is distlite.group.WORLD
        op.__init__("b", distlite.irecv, array, 2, tag=5)
        assert (op.op, op.peer, op.tag) == (distlite.irecv, 2, 5)
        op.peer = op.group_peer = 0
        assert (
            len(distlite.batch_isend_irecv([op, P2POp(distlite.isend, array, 0)])) == 2
        )
        op.group_peer = 1
        with pytest.raises(ValueError, match="^Invalid source rank"):
            distlite.batch_isend_irecv([op])
        op.tensor = 3
        with pytest.raises(TypeError, match="Expected parameter `tensor`"):
            distlite.batch_isend_irecv([op])
        for wrong in ((distlite.send, array, 0), (distlite.isend, 3, 0)):
            with pytest.raises((TypeError, ValueError), match="^Invalid"):
                P2POp(*wrong)
        with pytest.raises(TypeError, match="missing argument 'tensor'"):
            P2POp(distlite.isend)
        op.me = op
        del op
        gc.collect()
        assert sys.getrefcount(array) == before
    finally:
        distlite.destroy_process_group()


def test_jobs_with_different_ranks_share_a_store():
    store, names = HashStore(), []
    for ranks in ([3, 5], [2], [3, 5], []):
        distlite.init_process_group(
            "gloo", store=store, rank=0, world_size=1, _ranks=ranks
        )
        names.append(distlite.group.WORLD.group_name)
        assert distlite.get_process_group_ranks(None) == [0]
        distlite.destroy_process_group()
    assert names[0] == names[2] != names[1]
    assert ([len(name) for name in names[:2]], names[3]) == ([40, 40], "0")
    used = {key.split("/")[1] for key in store.list_keys() if key.startswith("ranks/")}
    assert used == set(names[:2])
    with pytest.raises(TypeError, match="integer"):
        distlite.init_process_group(store=store, rank=0, world_size=1, _ranks=["x"])
