# SPDX-License-Identifier: BSD-3-Clause
"""Names of backends, what they serve, and groups of registered ones."""

import warnings
from datetime import timedelta
from typing import ClassVar

import numpy as np
import pytest

import distlite
from distlite import (
    Backend,
    BackendConfig,
    HashStore,
    ProcessGroup,
    ReduceOp,
)
from distlite.groups import backends, dispatch, p2p


@pytest.fixture(autouse=True)
def clean():
    tables = (
        Backend.backend_list,
        Backend.default_device_backend_map,
        Backend.backend_capability,
        Backend.backend_type_map,
        Backend._plugins,
    )
    before = [table.copy() for table in tables]
    yield
    if distlite.is_initialized():
        distlite.destroy_process_group()
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.extend(content) if isinstance(table, list) else table.update(content)


def init(backend, rank=0, world_size=1, **keywords):
    distlite.init_process_group(
        backend, store=HashStore(), rank=rank, world_size=world_size, **keywords
    )


def test_a_backend_is_a_word():
    assert [Backend(word) for word in ("GLOO", "foo", "")] == ["gloo", "foo", ""]
    assert type(Backend("gloo")) is str
    with pytest.raises(ValueError, match="must be string-ish"):
        Backend(5)


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ("gloo", {"cpu": "gloo", "cuda": "gloo"}),
        ("cpu", {"cpu": "cpu"}),
        ("undefined", {"cpu": "gloo"}),
        ("nccl", {"cuda": "nccl"}),
        ("cpu:gloo,cuda:nccl", {"cpu": "gloo", "cuda": "nccl"}),
        ("GLOO", {"cpu": "gloo", "cuda": "gloo"}),
        ("CPU", {"cpu": "cpu"}),
        (" cpu:gloo", {" cpu": "gloo"}),
    ],
)
def test_configurations(given, served):
    config = BackendConfig(given)
    assert config.get_device_backend_map() == served
    assert repr(config) == ",".join(f"{k}:{v}" for k, v in served.items())


def test_an_unknown_word_is_taken_with_a_warning():
    with pytest.warns(UserWarning, match="Device capability of bogus unknown"):
        config = BackendConfig("bogus")
    assert repr(config) == "cpu:bogus,cuda:bogus,xpu:bogus"


def test_available():
    assert distlite.is_gloo_available()
    assert [
        distlite.is_backend_available(name)
        for name in ("gloo", "GLOO", "cpu", "fake", "cpu:gloo,cuda:gloo", "xyz", "")
    ] == [True] * 5 + [False] * 2
    assert not distlite.is_backend_available("cpu:gloo,cuda:xyz")


@pytest.mark.parametrize("name", ["nccl", "mpi", "ucc", "xccl"])
def test_a_library_is_available_when_its_probe_says_so(monkeypatch, name):
    asks = getattr(distlite, f"is_{name}_available")
    for answer in (True, False):
        monkeypatch.setitem(backends.probes, name, lambda answer=answer: answer)
        assert asks() is distlite.is_backend_available(f"cuda:{name}") is answer


def test_default_backends():
    ask = distlite.get_default_backend_for_device
    assert [ask(d) for d in ("cpu", "cuda", "cuda:0", "xpu", "mps")] == [
        *("gloo", "nccl", "nccl", "xccl", "gloo")
    ]
    with pytest.raises(ValueError, match="^Default backend not registered for device"):
        ask("meta")
    with pytest.raises(RuntimeError, match="^Expected one of cpu, cuda, "):
        ask("foo")


class Done:
    """The Work of an operation that is over."""

    def __init__(self, source=-1):
        self.waits = 0
        self.source = source

    def wait(self, timeout=None):
        self.waits += 1
        return True

    def _source_rank(self):
        return self.source


class Doubling(ProcessGroup):
    """A backend in Python, which writes down how it is called."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.calls = []

    def _note(self, name, *args, source=-1):
        self.calls.append((name, *args))
        self.last = Done(source)
        return self.last

    def allreduce(self, tensors, opts):
        tensors[0] *= 2
        return self._note("allreduce", len(tensors), opts.reduceOp, opts.asyncOp)

    def scan(self, tensors, opts):
        return self._note("scan", len(tensors), opts.reduceOp)

    def exscan(self, tensors, opts):
        return self._note("exscan", len(tensors), opts.reduceOp)

    def broadcast(self, tensors, opts):
        return self._note("broadcast", len(tensors), opts.rootRank, opts.rootTensor)

    def reduce(self, tensors, opts):
        return self._note("reduce", opts.rootRank, opts.reduceOp)

    def allgather(self, outputs, inputs, opts):
        return self._note("allgather", len(outputs[0]), len(inputs))

    def _allgather_base(self, output, input, opts):
        return self._note("_allgather_base", output.size, input.size)

    def gather(self, outputs, inputs, opts):
        return self._note("gather", len(outputs), len(inputs), opts.rootRank)

    def scatter(self, outputs, inputs, opts):
        return self._note("scatter", len(outputs), len(inputs), opts.rootRank)

    def reduce_scatter(self, outputs, inputs, opts):
        return self._note("reduce_scatter", len(inputs[0]), opts.reduceOp)

    def _reduce_scatter_base(self, output, input, opts):
        return self._note("_reduce_scatter_base", opts.reduceOp)

    def alltoall(self, outputs, inputs, opts):
        return self._note("alltoall", len(outputs), len(inputs))

    def alltoall_base(self, output, input, output_splits, input_splits, opts):
        return self._note("alltoall_base", output_splits, input_splits)

    def barrier(self, opts):
        return self._note("barrier", opts.timeout, opts.device_ids)

    def send(self, tensors, dst, tag):
        return self._note("send", len(tensors), dst, tag)

    def recv(self, tensors, src, tag):
        return self._note("recv", len(tensors), src, tag)

    def recv_anysource(self, tensors, tag):
        return self._note("recv_anysource", len(tensors), tag, source=1)


def register(name="doubling", devices="cpu", **keywords):
    seen = []

    def create(store, rank, size, timeout):
        seen.append((store, rank, size, timeout))
        return Doubling(rank, size)

    Backend.register_backend(name, create, devices=devices, **keywords)
    return seen


def test_what_is_not_a_function_is_not_registered():
    with pytest.raises(TypeError, match="a function that makes a group, not int"):
        Backend.register_backend("three", 3, devices="cpu")
    assert "three" not in Backend.backend_list


def test_registering():
    register("Mine")
    assert Backend.MINE == "mine"
    assert Backend.backend_list[-1] == "mine"
    assert Backend.backend_capability["mine"] == ["cpu"]
    assert Backend.backend_type_map["mine"] == backends.BackendType.CUSTOM
    assert distlite.is_backend_available("mine")
    # The letters of the word are not devices, and what served one still does.
    assert set(Backend.default_device_backend_map) == {"cpu", "cuda", "xpu", "mps"}
    assert Backend.default_device_backend_map["cpu"] == "gloo"
    register("Mine", ["cpu", "npu"])
    assert Backend.backend_list.count("mine") == 1
    assert Backend.default_device_backend_map["npu"] == "mine"
    assert repr(BackendConfig("mine")) == "cpu:mine,npu:mine"
    with pytest.warns(UserWarning, match="Device capability of other unspecified"):
        register("other", None)
    assert Backend.backend_capability["other"] == ["cpu", "cuda"]


def test_a_registered_backend_makes_the_groups():
    seen = register()
    init("doubling", 1, 3, timeout=timedelta(seconds=5))
    world = distlite.group.WORLD
    assert type(world) is Doubling
    assert (distlite.get_backend(), distlite.get_backend_config()) == (
        *("doubling", "cpu:doubling"),
    )
    assert (world.rank(), world.size(), world.group_name) == (1, 3, "0")
    assert (world.group_desc, world.timeout) == ("default_pg", timedelta(seconds=5))
    [(store, *rest)] = seen
    assert rest == [1, 3, timedelta(seconds=5)]
    assert world.get_group_store() is store
    part = distlite.new_group([2, 1], group_desc="part", sort_ranks=False)
    assert (type(part), part.rank(), part.size()) == (Doubling, 1, 2)
    assert (part.group_name, part.group_desc) == ("1", "part")
    distlite.broadcast(np.ones(1), 2, part)
    assert part.calls == [("broadcast", 1, 0, 0)]
    assert distlite.new_group([0]) == -100


def test_the_extended_form():
    seen = []

    def create(told, pg_options):
        seen.append((told, pg_options))
        return Doubling(told.group_rank, told.group_size)

    Backend.register_backend("extended", create, extended_api=True, devices=["cpu"])
    init("extended", 0, 2, pg_options="mine")
    distlite.new_group([0])
    [(first, first_options), (second, _)] = seen
    assert first_options == "mine"
    assert (first.group_id, first.global_ranks_in_group) == ("0", [])
    assert (second.group_id, second.global_ranks_in_group) == ("1", [0])
    assert (second.group_rank, second.group_size) == (0, 1)
    assert second.timeout == timedelta(minutes=30)
    assert second.store.check(["nothing"]) is False


X = np.ones(4)
CALLS = {
    "all_reduce": ((X.copy(), ReduceOp.MAX), ("allreduce", 1, ReduceOp.MAX, False)),
    "scan": ((X.copy(), ReduceOp.MAX), ("scan", 1, ReduceOp.MAX)),
    "exscan": ((X.copy(),), ("exscan", 1, ReduceOp.SUM)),
    "broadcast": ((X, 1), ("broadcast", 1, 1, 0)),
    "reduce": ((X, 1, ReduceOp.MIN), ("reduce", 1, ReduceOp.MIN)),
    "all_gather": (([X, X], X), ("allgather", 2, 1)),
    "all_gather_single": ((X, X[:2]), ("_allgather_base", 4, 2)),
    "gather": ((X, [X, X]), ("gather", 1, 1, 0)),
    "gather_v": ((X, None, 1), ("gather", 0, 1, 1)),
    "scatter": ((X, [X, X]), ("scatter", 1, 1, 0)),
    "reduce_scatter": ((X, [X, X]), ("reduce_scatter", 2, ReduceOp.SUM)),
    "reduce_scatter_single": ((X[:2], X), ("_reduce_scatter_base", ReduceOp.SUM)),
    "all_to_all": (([X, X], [X, X]), ("alltoall", 2, 2)),
    "all_to_all_single": ((X, X, [1, 3]), ("alltoall_base", [1, 3], [])),
    "barrier": ((None, False, [0]), ("barrier", timedelta(milliseconds=-1), [0])),
    "send": ((X, 1, None, 7), ("send", 1, 1, 7)),
    "isend": ((X, 1), ("send", 1, 1, 0)),
    "recv": ((X, 1), ("recv", 1, 1, 0)),
    "irecv": ((X,), ("recv_anysource", 1, 0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_become_methods(name):
    register()
    init("doubling", 0, 2)
    given, noted = CALLS[name]
    result = getattr(distlite, name)(*given)
    world = distlite.group.WORLD
    assert world.calls == [noted]
    if name in ("isend", "irecv"):
        assert (result, world.last.waits) == (world.last, 0)
    else:
        assert (result, world.last.waits) == (1 if name == "recv" else None, 1)


def test_an_asynchronous_call_gives_the_method_s_work():
    register()
    init("doubling", 0, 2)
    array = np.ones(2)
    work = distlite.all_reduce(array, async_op=True)
    world = distlite.group.WORLD
    assert work is world.last
    assert (work.waits, array.tolist()) == (0, [2.0, 2.0])
    assert world.calls == [("allreduce", 1, ReduceOp.SUM, True)]
    assert distlite.recv(array) == 1
    assert world.last.waits == 1


def test_what_the_class_does_not_have():
    class Nothing(ProcessGroup):
        def __init__(self):
            super().__init__(0, 2)

    group = Nothing()
    text = "^No backend type associated with device type cpu: Nothing does not define "
    for call in (
        lambda: distlite.all_reduce(np.ones(1), group=group),
        lambda: distlite.recv(np.ones(1), group_src=1, group=group),
        lambda: distlite.barrier(group),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_roots_are_checked():
    register()
    init("doubling", 0, 2)
    with pytest.raises(ValueError, match="^Must specify global_rank or group_rank$"):
        distlite.broadcast(np.ones(1))
    with pytest.raises(ValueError, match="^Can't specify both"):
        distlite.broadcast(np.ones(1), 0, group_src=0)
    part = distlite.new_group([0])
    with pytest.raises(ValueError, match="^Global rank 1 is not part of group"):
        distlite.broadcast(np.ones(1), 1, part)


class OnDevice:
    """An array that says it is elsewhere."""

    def __init__(self, array):
        self.array = array

    def __imul__(self, factor):
        self.array *= factor
        return self

    def __dlpack_device__(self):
        return (2, 0)


def test_a_backend_beside_the_core_gets_its_device_s_arrays():
    register(devices=["cuda"])
    init("cpu:gloo,cuda:doubling")
    there, here = OnDevice(np.ones(2)), np.ones(2)
    distlite.all_reduce(there)
    distlite.all_reduce(here)
    distlite.barrier()
    assert (there.array.tolist(), here.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    assert type(distlite.group.WORLD) is ProcessGroup


def test_a_creator_must_make_a_group():
    Backend.register_backend("odd", lambda *_: 5, devices="cpu")
    with pytest.raises(TypeError, match="must return a ProcessGroup, not 5"):
        init("odd")
    assert not distlite.is_initialized()


@pytest.mark.parametrize("fails", ["creator", "result", "adoption"])
def test_what_was_made_before_a_failure_is_left(fails):
    made = []

    class Leaving(Doubling):
        def shutdown(self):
            made.remove(self)
            super().shutdown()

        def _adopt(self, *arguments):
            if fails == "adoption" and len(made) == 2:
                raise OSError("no")
            super()._adopt(*arguments)

    def create(store, rank, size, timeout):
        made.append(Leaving(rank, size))
        return made[-1]

    def fail(*_):
        if fails == "creator":
            raise OSError("no")
        return 5 if fails == "result" else create(*_)

    Backend.register_backend("first", create, devices="cpu")
    Backend.register_backend("second", fail, devices="cuda")
    with pytest.raises((OSError, TypeError), match="no"):
        init("cpu:first,cuda:second")
    assert made == []
    assert not distlite.is_initialized()


def test_a_native_group_may_be_returned():
    def create(store, rank, size, timeout):
        return distlite.ProcessGroupGloo(store, rank, size, timeout)

    Backend.register_backend("native", create, devices="cpu")
    init("native")
    array = np.ones(2)
    distlite.all_reduce(array)
    assert (distlite.get_backend(), array.tolist()) == ("native", [1.0, 1.0])


def test_a_group_by_hand_is_told_its_ranks_once():
    group = ProcessGroup(1, 4)
    assert (group.rank(), group.size(), group.name()) == (1, 4, "custom")
    for arguments in ((4, 4), (0, 0), (0,), ("x", 1)):
        with pytest.raises((ValueError, TypeError)):
            ProcessGroup.__init__(group, *arguments)
    assert (group.rank(), group.size()) == (1, 4)
    with pytest.raises(RuntimeError, match="name of its own"):
        distlite.ProcessGroup(HashStore(), 0, 1)._adopt(HashStore(), 0, 1)


@pytest.mark.parametrize("rank", [0, 2])
def test_fake(rank):
    init("fake", rank, 4)
    assert (distlite.get_rank(), distlite.get_world_size()) == (rank, 4)
    assert distlite.get_backend_config() == "cpu:fake,cuda:fake,hpu:fake,xpu:fake"
    array, others = np.arange(4.0), [np.zeros(4) for _ in range(4)]
    distlite.all_reduce(array)
    distlite.broadcast(array, 3)
    distlite.all_gather(others, array)
    distlite.all_to_all_single(others[0], array)
    distlite.reduce_scatter_single(array[:1], array.copy())
    distlite.barrier()
    work = distlite.all_reduce(array, async_op=True)
    assert work.wait() and work.result()[0] is array
    assert distlite.recv(array, 1) == 1
    assert distlite.isend(array, 3).wait()
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    part = distlite.new_group([0, 2])
    assert (part.rank(), part.size()) == ((0, 2).index(rank), 2)
    distlite.all_reduce(array, group=part)
    # What is checked before anything is sent is checked here, too.
    with pytest.raises(ValueError):
        distlite.all_gather(others[:1], array)


def test_nothing_warns_of_known_words():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        init("gloo")
        BackendConfig("fake")


class OfDlpack:
    """Memory on one of DLPack's devices, as far as anybody asks."""

    def __init__(self, number):
        self.number = number

    def __dlpack_device__(self):
        return self.number, 0


class OfCuda:
    """Memory of a library that knows no DLPack."""

    __cuda_array_interface__: ClassVar[dict] = {}


def test_the_best_backend_for_an_array():
    assert distlite.best_backend(np.zeros(3)) == "gloo"
    assert distlite.best_backend(bytearray(3)) == "gloo"
    assert distlite.best_backend("cpu") == distlite.best_backend(OfDlpack(3)) == "gloo"
    with pytest.raises(
        TypeError, match="an array or the name of a device is needed, not int"
    ):
        distlite.best_backend(3)
    with pytest.raises(RuntimeError, match="supports DLPack's device 7"):
        distlite.best_backend(OfDlpack(7))
    for metal in (OfDlpack(8), "mps", "mps:0"):
        with pytest.raises(
            RuntimeError, match=r"on mps.*gloo supports the CPU's memory"
        ):
            distlite.best_backend(metal)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *((1, "cpu"), (3, "cpu"), (11, "cpu"), (2, "cuda"), (13, "cuda")),
        *((8, "mps"), (14, "xpu"), (10, None)),
    ],
)
def test_all_have_one_name_for_a_device_of_dlpack(number, kind, monkeypatch):
    array = OfDlpack(number)
    monkeypatch.setattr(backends, "_check", lambda name: None)
    expected = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}.get(kind)
    if expected is None:
        with pytest.raises(RuntimeError, match="no available backend supports"):
            distlite.best_backend(array)
    else:
        assert distlite.best_backend(array) == expected
    assert dispatch.device_of({"tensor": array}) == (kind or "cpu")
    assert p2p.is_on_device(array) == (kind == "cuda")


@pytest.mark.parametrize("array", [OfDlpack(2), OfDlpack(13), OfCuda(), "cuda:1"])
def test_the_best_backend_on_a_device(array, monkeypatch):
    monkeypatch.setitem(backends.probes, "nccl", lambda: True)
    assert distlite.best_backend(array) == "nccl"
    monkeypatch.setitem(backends.probes, "nccl", lambda: False)
    with pytest.raises(
        RuntimeError, match="supports arrays on cuda.* Copy them to the"
    ):
        distlite.best_backend(array)


def test_a_registered_name_in_any_letters():
    Backend.register_backend("DuMMy", lambda *_: None, devices=["cpu"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for word in ("DUMMY", "dummy", "Dummy", "cpu:DUMMY", Backend.DUMMY):
            assert str(BackendConfig(word)) == "cpu:dummy"


def test_a_backend_in_python_names_itself():
    class Named(ProcessGroup):
        def __init__(self, rank, size):
            super().__init__(rank, size)

        def getBackendName(self):
            return "Dummy"

    class Inherited(Named):
        pass

    class Renamed(Named):
        def name(self):
            return "mine"

    class Plain(ProcessGroup):
        def __init__(self, rank, size):
            super().__init__(rank, size)

    groups = [kind(0, 1) for kind in (Named, Inherited, Renamed, Plain)]
    assert [group.name() for group in groups] == ["Dummy", "Dummy", "mine", "custom"]
    assert groups[0]._get_backend_name() == "Dummy"
    Backend.register_backend("dummy", lambda s, r, n, t: Named(r, n), devices=["cpu"])
    init("DUMMY")
    assert distlite.get_backend() == "dummy"
    world = distlite.group.WORLD
    assert (world.name(), world.group_name) == ("Dummy", "0")
    assert ProcessGroup.name(world) == "custom"
    assert ProcessGroup(HashStore(), 0, 1, 20, backend="gloo").name() == "gloo"
