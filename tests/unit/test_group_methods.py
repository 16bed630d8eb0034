# SPDX-License-Identifier: BSD-3-Clause
"""The operations as methods of a group, in torch's forms."""

import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import HashStore, ProcessGroup, ProcessGroupGloo, ReduceOp

SHORT = timedelta(milliseconds=50)


def both(run):
    """What `run` returns for each of the two ranks of a new group."""
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(lambda r: run(ProcessGroup(store, r, 2, 20)), r) for r in (0, 1)
        ]
        return [job.result(30) for job in jobs]


def own(group, count=2):
    """Different on each rank and at each place."""
    return np.arange(1.0, count + 1) + 10 * group.rank()


def zeros(many):
    return [np.zeros(2) for _ in range(many)]


def of(kind, **fields):
    options = getattr(distlite, kind)()
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def values(arrays):
    return [each.tolist() for each in arrays]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("allreduce", "tensors, opts=None, timeout=None"),
        ("reduce", "tensors, opts=None, op=None, timeout=None"),
        ("alltoall", "output_tensors, input_tensors, opts=None"),
        ("barrier", "opts=None"),
        ("recv", "tensors, srcRank, tag=0"),
    ],
)
def test_signatures_tell_the_parameters(name, parameters):
    method = getattr(distlite.ProcessGroup, name)
    assert str(inspect.signature(method)) == f"(self, {parameters})"


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, x: pg.allreduce([x], of("AllreduceOptions", reduceOp=ReduceOp.MAX)),
        lambda pg, x: pg.allreduce([x], ReduceOp.MAX),
        lambda pg, x: pg.allreduce(x, op=ReduceOp.MAX),
        lambda pg, x: pg.allreduce(tensor=x, op=ReduceOp(ReduceOp.MAX), timeout=None),
        lambda pg, x: pg.allreduce(tensors=[x], opts=ReduceOp.MAX),
        lambda pg, x: pg.allreduce_coalesced(
            [x], of("AllreduceCoalescedOptions", reduceOp=ReduceOp.MAX)
        ),
    ],
)
def test_allreduce(call):
    def run(group):
        array = own(group)
        work = call(group, array)
        assert work.wait() and work.is_completed() and work.is_success()
        assert work.exception() is None
        assert work.result()[0] is array
        return array.tolist()

    assert both(run) == [[11, 12], [11, 12]]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, x: pg.broadcast([x], of("BroadcastOptions", rootRank=1)),
        lambda pg, x: pg.broadcast(x, 1),
        lambda pg, x: pg.broadcast(tensor=x, root=1),
    ],
)
def test_broadcast(call):
    def run(group):
        array = own(group)
        call(group, array).wait()
        return array.tolist()

    assert both(run) == [[11, 12], [11, 12]]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, x: pg.reduce([x], of("ReduceOptions", rootRank=1)),
        lambda pg, x: pg.reduce(x, 1, ReduceOp.SUM),
        lambda pg, x: pg.reduce(tensor=x, root=1, timeout=timedelta(seconds=9)),
    ],
)
def test_reduce(call):
    def run(group):
        array = own(group)
        call(group, array).wait()
        return array.tolist()

    assert both(run) == [[1, 2], [12, 14]]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, out, x: pg.allgather([out], [x], of("AllgatherOptions")),
        lambda pg, out, x: pg.allgather(out, x),
        lambda pg, out, x: pg.allgather(output_tensors=out, input_tensor=x),
    ],
)
def test_allgather(call):
    def run(group):
        out = zeros(2)
        call(group, out, own(group)).wait()
        return values(out)

    assert both(run) == [[[1, 2], [11, 12]]] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, out, x: pg.gather(
            [out] if out else [], [x], of("GatherOptions", rootRank=1)
        ),
        lambda pg, out, x: pg.gather(out, x, 1),
        lambda pg, out, x: pg.gather(output_tensors=out, input_tensor=x, root=1),
    ],
)
def test_gather(call):
    def run(group):
        out = zeros(2) if group.rank() == 1 else []
        call(group, out, own(group)).wait()
        return values(out)

    assert both(run) == [[], [[1, 2], [11, 12]]]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, x, parts: pg.scatter(
            [x], [parts] if parts else [], of("ScatterOptions", rootRank=1)
        ),
        lambda pg, x, parts: pg.scatter(x, parts, 1),
        lambda pg, x, parts: pg.scatter(output_tensor=x, input_tensors=parts, root=1),
    ],
)
def test_scatter(call):
    def run(group):
        x = np.zeros(2)
        parts = [own(group), own(group) + 5] if group.rank() == 1 else []
        call(group, x, parts).wait()
        return x.tolist()

    assert both(run) == [[11, 12], [16, 17]]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg, x, parts: pg.reduce_scatter(
            [x], [parts], of("ReduceScatterOptions")
        ),
        lambda pg, x, parts: pg.reduce_scatter(x, parts, ReduceOp.SUM),
    ],
)
def test_reduce_scatter(call):
    def run(group):
        x = np.zeros(2)
        call(group, x, [own(group), own(group) + 5]).wait()
        return x.tolist()

    assert both(run) == [[12, 14], [22, 24]]


@pytest.mark.parametrize("name", ["all_gather_single", "_allgather_base"])
def test_one_array_gathered(name):
    def run(group):
        out = np.zeros(4)
        getattr(group, name)(out, own(group), of("AllgatherOptions")).wait()
        return out.tolist()

    assert both(run) == [[1, 2, 11, 12]] * 2


@pytest.mark.parametrize("name", ["reduce_scatter_single", "_reduce_scatter_base"])
def test_one_array_scattered(name):
    def run(group):
        out = np.zeros(2)
        options = of("ReduceScatterOptions", reduceOp=ReduceOp.MAX)
        getattr(group, name)(out, own(group, 4), options).wait()
        return out.tolist()

    assert both(run) == [[11, 12], [13, 14]]


def test_everything_exchanged():
    def run(group):
        lists, whole, uneven = zeros(2), np.zeros(4), np.zeros(2 - group.rank())
        group.alltoall(lists, [own(group), own(group) + 5], of("AllToAllOptions"))
        group.alltoall_base(whole, own(group, 4), [], [], of("AllToAllOptions"))
        sizes = [1, 1] if group.rank() == 0 else [1, 0]
        sent = own(group, 2 if group.rank() == 0 else 1)
        sizes = [1, 1] if group.rank() == 0 else [1, 0]
        group.all_to_all_single(uneven, sent, sizes, sizes).wait()
        return values(lists), whole.tolist(), uneven.tolist()

    assert both(run) == [
        ([[1, 2], [11, 12]], [1, 2, 11, 12], [1, 11]),
        ([[6, 7], [16, 17]], [3, 4, 13, 14], [2]),
    ]


def test_messages():
    def run(group):
        peer, got = 1 - group.rank(), [np.zeros(2) for _ in range(3)]
        sends = [
            group.send([own(group)], peer, 7),
            group.send(own(group) + 1, dstRank=peer, tag=8),
            distlite.isend(own(group) + 2, peer, group, tag=9),
        ]
        works = [
            group.recv([got[0]], peer, 7),
            group.recv_anysource([got[1]], 8),
            distlite.irecv(got[2], peer, group, tag=9),
        ]
        for work in [*sends, *works]:
            work.wait()
        assert works[1].source_rank() == peer
        return values(got)

    assert both(run)[0] == [[11, 12], [12, 13], [13, 14]]


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda pg, x: pg.broadcast(x, src=0), "broadcast"),
        (lambda pg, x: pg.barrier(async_op=False), "barrier"),
        (lambda pg, x: pg.send(x, dst=0), "isend"),
    ],
)
def test_words_of_the_module_s_functions_are_refused(call, function):
    group = ProcessGroup(HashStore(), 0, 1, 20)
    with pytest.raises(TypeError, match=rf"returns a Work. distlite.{function}\("):
        call(group, np.zeros(2))
    group.shutdown()


@pytest.mark.parametrize(
    "call",
    [
        lambda pg: pg.barrier(),
        lambda pg: pg.barrier(of("BarrierOptions")),
        lambda pg: pg.barrier(timeout=timedelta(seconds=9)),
    ],
)
def test_barrier(call):
    assert both(lambda group: call(group).wait()) == [True, True]


def test_several_at_once():
    def run(group):
        arrays, lists = [own(group), own(group) + 5], [zeros(2), zeros(2)]
        singles, halves = [np.zeros(4), np.zeros(4)], zeros(2)
        fours = [own(group, 4), own(group, 4)]
        works = [
            group.allgather_coalesced(lists, [each.copy() for each in arrays]),
            group.allgather_into_tensor_coalesced(singles, arrays[:2]),
            group.reduce_scatter_tensor_coalesced(halves, fours),
            group.allreduce_coalesced(arrays),
        ]
        outputs = [work.get_future().wait() for work in works]
        assert all(work.wait(60) for work in works)
        assert [len(each) for each in outputs] == [4, 2, 2, 2]
        return [values(lists[1]), values(singles), values(halves), values(arrays)]

    assert both(run)[0] == [
        [[11, 12], [16, 17]],
        [[1, 2, 11, 12], [6, 7, 16, 17]],
        [[12, 14], [12, 14]],
        [[12, 14], [22, 24]],
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda pg: pg.allreduce([np.ones(2)], of("AllreduceOptions", timeout=SHORT)),
        lambda pg: pg.allreduce(np.ones(2), timeout=SHORT),
        lambda pg: pg.barrier(SHORT),
        lambda pg: pg.allgather(zeros(2), np.ones(2), SHORT),
    ],
)
def test_a_timeout_of_one_call(call):
    is_over = threading.Event()

    def run(group):
        if group.rank() == 1:
            return is_over.wait(60)
        begun = time.monotonic()
        with pytest.raises(distlite.DistBackendError, match="50ms"):
            call(group).wait()
        is_over.set()
        return time.monotonic() - begun < 20

    assert both(run) == [True, True]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda pg: pg.allreduce(), TypeError, "missing argument 'tensor'"),
        (lambda pg: pg.reduce([np.ones(1)] * 2, 0), ValueError, "not one of 2"),
        (lambda pg: pg.allreduce(np.ones(1), how=3), TypeError, "unexpected .* 'how'"),
        (lambda pg: pg.barrier(1, 2), TypeError, "at most 1"),
        (
            lambda pg: pg.allreduce(np.ones(1), tensor=np.ones(1)),
            TypeError,
            "two values for argument 'tensor'",
        ),
        (
            lambda pg: pg.broadcast(np.ones(1), of("BroadcastOptions", rootTensor=1)),
            ValueError,
            "invalid root tensor",
        ),
        (lambda pg: pg.broadcast(np.ones(1), 5), ValueError, "rank 5"),
        (lambda pg: distlite.barrier((pg, 3)), ValueError, "not initialized"),
    ],
)
def test_wrong_arguments(call, kind, text):
    with pytest.raises(kind, match=text):
        call(ProcessGroup(HashStore(), 0, 1))


def test_the_type_stays_immutable():
    with pytest.raises(TypeError):
        ProcessGroup.allreduce = None


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((timedelta(seconds=5),), {}),
        ((), {"timeout": timedelta(seconds=5)}),
        (("options",), {}),
        ((), {"options": "options"}),
    ],
)
def test_gloo_takes_a_timeout_or_options(args, named):
    options = ProcessGroupGloo._Options()
    assert (options._threads, options.backend) == (2, "gloo")
    options._timeout = timedelta(seconds=5)
    args = [options if each == "options" else each for each in args]
    named = {
        name: options if each == "options" else each for name, each in named.items()
    }
    group = ProcessGroupGloo(HashStore(), 0, 1, *args, **named)
    assert group.timeout == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda pg: pg.allreduce([]), "requires a single-element tensor list"),
        (lambda pg: pg.allreduce(zeros(2)), "requires a single-element tensor list"),
        (lambda pg: pg.allgather([zeros(2)], zeros(2)), "single-element input tensor"),
        (lambda pg: pg.allgather([[1], [1]], zeros(1)), "a single-element output list"),
        (lambda pg: pg.reduce(zeros(2), 0), "requires a single-element tensor list"),
        (lambda pg: pg.gather([], zeros(2), 0), "a single-element input tensor list"),
        (lambda pg: pg.gather([[], []], zeros(1), 0), "single-element output list"),
        (lambda pg: pg.scatter(zeros(2), [], 0), "a single-element output tensor list"),
        (lambda pg: pg.scatter(zeros(1), [[], []], 0), "a single-element input list"),
        (lambda pg: pg.reduce_scatter(zeros(2), []), "requires a single-element"),
    ],
)
def test_lists_that_are_refused(call, text):
    group = ProcessGroup(HashStore(), 0, 1, 20)
    with pytest.raises(ValueError, match=text):
        call(group)


def test_methods_say_what_they_take():
    for line in (
        "allreduce(tensors|tensor, opts|op, timeout)",
        "send(tensors|tensor, dstRank, tag)",
        "barrier(opts|timeout)",
    ):
        method = getattr(ProcessGroup, line.partition("(")[0])
        assert method.__doc__.splitlines()[0] == line


def test_the_options_of_a_group_made_by_hand():
    group = ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=7))
    assert group.options._timeout == timedelta(seconds=7)


def test_the_timeout_of_a_group_by_torch_s_names():
    group = ProcessGroup(HashStore(), 0, 1, 20)
    distlite.set_timeout(5, group)
    assert group.timeout == timedelta(seconds=5)
    group._set_default_timeout(timedelta(seconds=23))
    assert group.options._timeout == group.timeout == timedelta(seconds=23)
    with pytest.raises(ValueError, match="Invalid process group"):
        distlite.set_timeout(5, distlite.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(ValueError, match="not been initialized"):
        distlite.set_timeout(5)
    with pytest.raises(TypeError):
        distlite.set_timeout("5", group)


@pytest.mark.parametrize(
    ("output", "kind", "text"),
    [
        (None, ValueError, "``output_tensor`` must be specified on destination rank"),
        (np.zeros((3, 2))[:, 0], ValueError, "must be contiguous"),
        (np.zeros(4), ValueError, "3 elements in the input, but 4 in the output"),
        (np.zeros(3, "f4"), ValueError, "tensors with different dtypes"),
        ([np.zeros(3)], TypeError, "not list"),
        (bytearray(24), TypeError, "not bytearray"),
    ],
)
def test_outputs_that_gather_single_refuses(output, kind, text):
    group = ProcessGroup(HashStore(), 0, 1, 20)
    with pytest.raises(kind, match=text):
        distlite.gather_single(np.ones(3), output, group=group, group_dst=0)


def test_an_output_of_gather_single_that_has_no_equal_blocks():
    # A fake world of three ranks, whose messages go nowhere.
    distlite.init_process_group("fake", store=HashStore(), rank=0, world_size=3)
    try:
        with pytest.raises(ValueError, match="3 equal blocks.* it has 4 elements"):
            distlite.gather_single(np.ones(1), np.zeros(4))
        distlite.gather_single(np.ones(0), np.zeros((0, 7)))
        distlite.gather_single(np.ones(1), np.zeros((1, 3, 1)))
    finally:
        distlite.destroy_process_group()
