# SPDX-License-Identifier: BSD-3-Clause
"""The functions themselves: arguments, errors and results that need no second rank."""

import inspect
import pickle
import pydoc
import threading
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import ReduceOp

COLLECTIVES = [distlite.all_reduce, distlite.broadcast, distlite.barrier]


@pytest.fixture
def world():
    distlite.init_process_group(
        store=distlite.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=60)
    )
    yield distlite.group.WORLD
    if distlite.is_initialized():
        distlite.destroy_process_group()


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (
            distlite.all_reduce,
            "(tensor, op=<RedOpType.SUM: 0>, group=None, async_op=False, *, "
            "stream=None)",
        ),
        (
            distlite.broadcast,
            "(tensor, src=None, group=None, async_op=False, group_src=None, *, "
            "stream=None)",
        ),
        (
            distlite.barrier,
            "(group=None, async_op=False, device_ids=None, timeout=None)",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_signatures_can_be_inspected(function, signature):
    assert str(inspect.signature(function)) == signature
    assert function.__module__ == "distlite"
    assert function.__doc__


def test_the_default_op_is_the_member():
    default = inspect.signature(distlite.all_reduce).parameters["op"].default
    assert default is ReduceOp.SUM


@pytest.mark.parametrize("function", COLLECTIVES, ids=lambda f: f.__name__)
def test_help_shows_the_signature(function):
    text = pydoc.plain(pydoc.render_doc(function))
    shown = f"{function.__name__}{inspect.signature(function)}"
    # From Python 3.13 on a long one takes several lines.
    assert "".join(shown.split()) in "".join(text.split())
    assert pickle.loads(pickle.dumps(function)) is function


def test_everything_goes_by_position_or_name(world):
    tensor = np.arange(4.0)
    for result in (
        distlite.all_reduce(tensor),
        distlite.all_reduce(tensor, ReduceOp.MAX, world, False),
        distlite.all_reduce(
            async_op=False, group=world, op=ReduceOp.AVG, tensor=tensor
        ),
        distlite.broadcast(tensor, 0),
        distlite.broadcast(tensor, 0, None, False, None),
        distlite.broadcast(group_src=0, tensor=tensor, group=world),
        distlite.barrier(),
        distlite.barrier(world, False, [0], timedelta(seconds=3)),
        distlite.barrier(timeout=timedelta(seconds=3), device_ids=None),
    ):
        assert result is None
    np.testing.assert_array_equal(tensor, np.arange(4.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda: distlite.all_reduce(),
        lambda: distlite.all_reduce(1, 2, 3, 4, 5),
        lambda: distlite.all_reduce(np.zeros(1), tensor=np.zeros(1)),
        lambda: distlite.all_reduce(np.zeros(1), foo=1),
        lambda: distlite.barrier(foo=3),
        lambda: distlite.broadcast(src=0),
        lambda: distlite.all_reduce(np.zeros(1), async_op=1),
        lambda: distlite.barrier(timeout="soon"),
        lambda: distlite.broadcast(np.zeros(1), "0"),
        lambda: distlite.broadcast(np.zeros(1), 0.0),
    ],
)
def test_wrong_arguments(world, call):
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize("item", [None, 1.0, "x", [1.0]])
def test_what_is_no_array_in_a_list_is_named(world, item):
    with pytest.raises(TypeError, match=r"Expected parameter `scatter_list\[0\]` of"):
        distlite.scatter(np.ones(1), [item])
    name = "output_tensor_list"
    with pytest.raises(TypeError, match=rf"Expected parameter `{name}\[0\]` of"):
        distlite.all_to_all([item], [np.ones(1)])


@pytest.mark.parametrize(
    "op", [0, "sum", None, np.int64(0), ReduceOp, ReduceOp.RedOpType]
)
def test_wrong_op(world, op):
    with pytest.raises(TypeError, match="Expected parameter `op`"):
        distlite.all_reduce(np.zeros(3), op)


def test_wrapped_op(world):
    tensor = np.arange(3.0)
    distlite.all_reduce(tensor, ReduceOp(ReduceOp.AVG))
    np.testing.assert_array_equal(tensor, np.arange(3.0))


@pytest.mark.parametrize("factor", [2.5, 3, np.float32(0.5), np.array(2.0)])
def test_premul_sum(world, factor):
    tensor = np.arange(3.0)
    distlite.all_reduce(tensor, ReduceOp.PREMUL_SUM(factor))
    np.testing.assert_array_equal(tensor, np.arange(3.0) * np.asarray(factor))


def test_premul_sum_needs_a_number(world):
    for op in ReduceOp.PREMUL_SUM, ReduceOp(ReduceOp.PREMUL_SUM):
        with pytest.raises(RuntimeError, match="PREMUL_SUM has no factor"):
            distlite.all_reduce(np.zeros(3), op)
    with pytest.raises(TypeError):
        distlite.all_reduce(np.zeros(3), ReduceOp.PREMUL_SUM(object()))


@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        ("f8", ReduceOp.BAND),
        ("f4", ReduceOp.BXOR),
        ("c8", ReduceOp.MIN),
        ("c16", ReduceOp.MAX),
        ("i4", ReduceOp.AVG),
        ("i4", ReduceOp.PREMUL_SUM(2.0)),
    ],
)
def test_meaningless_reductions(world, dtype, op):
    before = world._get_sequence_number_for_group()
    with pytest.raises(ValueError):
        distlite.all_reduce(np.zeros(3, dtype), op)
    assert world._get_sequence_number_for_group() == before
    distlite.barrier()


def test_root_is_given_once(world):
    tensor = np.zeros(3)
    with pytest.raises(ValueError, match="Must specify global_rank or group_rank"):
        distlite.broadcast(tensor)
    with pytest.raises(
        ValueError, match="Can't specify both group_rank and global_rank"
    ):
        distlite.broadcast(tensor, 0, group_src=0)


@pytest.mark.parametrize("root", [1, 5, -1, 2**40, -(2**40)])
@pytest.mark.parametrize("name", ["src", "group_src"])
def test_root_is_in_the_group(world, name, root):
    with pytest.raises(ValueError):
        distlite.broadcast(np.zeros(3), **{name: root})
    distlite.barrier()


def test_a_rank_beyond_an_int_is_not_cut_off():
    store = distlite.HashStore()
    parent = distlite.ProcessGroup(store, 0, 1)
    for rank in (2**32, 2**63, -(2**33), 2**31):
        with pytest.raises(ValueError, match="is not a rank or a number of ranks"):
            distlite.ProcessGroup(store, 0, 1, parent=parent, ranks=[rank])
        with pytest.raises(ValueError, match="is not a rank or a number of ranks"):
            distlite._C._device_shrink(parent, [rank], 0, parent)
        with pytest.raises(ValueError, match="is not a rank or a number of ranks"):
            distlite.broadcast(np.zeros(1), group_src=rank, group=parent)
    with pytest.raises(
        ValueError, match="a group of 1 needs a list of that many ranks, not 2"
    ):
        distlite.ProcessGroup(store, 0, 1, parent=parent, ranks=[0, 1])
    with pytest.raises(TypeError, match="ranks must be a sequence of ranks, not int"):
        distlite.ProcessGroup(store, 0, 1, parent=parent, ranks=3)
    parent.shutdown()


def test_keywords_are_strings(world):
    for call in (distlite.TCPStore, distlite.HashStore, distlite.FileStore):
        with pytest.raises(TypeError, match="keywords must be strings"):
            call(**{1: 2})


def test_root_is_any_integer(world):
    distlite.broadcast(np.zeros(3), np.int32(0))
    distlite.broadcast(np.zeros(3), False)


@pytest.mark.parametrize("function", COLLECTIVES, ids=lambda f: f.__name__)
def test_asynchronous_gives_a_work(world, function):
    arguments = {"tensor": np.ones(3)} if function is not distlite.barrier else {}
    if function is distlite.broadcast:
        arguments["src"] = 0
    work = function(**arguments, async_op=True)
    assert isinstance(work, distlite.Work)
    assert work.wait() is True
    assert work.is_completed()
    assert work.is_success()
    outputs = work.result()
    assert [id(each) for each in outputs] == [id(each) for each in arguments.values()][
        :1
    ]


CALLS = {
    "all_reduce": lambda group: distlite.all_reduce(np.zeros(3), group=group),
    "broadcast": lambda group: distlite.broadcast(np.zeros(3), 0, group),
    "barrier": lambda group: distlite.barrier(group),
}


@pytest.mark.parametrize("name", CALLS)
def test_before_init(name):
    with pytest.raises(
        ValueError, match="Default process group has not been initialized"
    ):
        CALLS[name](None)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("group", [5, "x", 2**80, object()], ids=type)
def test_no_group(world, name, group):
    with pytest.raises(ValueError, match="is not initialized in the world group map"):
        CALLS[name](group)


@pytest.mark.parametrize("name", CALLS)
def test_outside_of_a_group(world, name):
    with pytest.warns(
        UserWarning,
        match=f"Running {name} on global rank 0 which does not belong to the given",
    ):
        assert CALLS[name](distlite.GroupMember.NON_GROUP_MEMBER) is None


@pytest.mark.parametrize("name", CALLS)
def test_after_shutdown(name):
    group = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
    CALLS[name](group)
    group.shutdown()
    with pytest.raises(distlite.DistBackendError):
        CALLS[name](group)


@pytest.mark.parametrize("name", CALLS)
def test_after_abort(name):
    group = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
    group.abort()
    group.abort()
    with pytest.raises(distlite.DistBackendError, match="abort"):
        CALLS[name](group)


def test_the_group_may_go_while_a_thread_uses_it():
    """Replacing and dropping the default group under calls of other threads."""
    stop = threading.Event()
    failures = []

    def call():
        tensor = np.zeros(3)
        while not stop.is_set():
            try:
                distlite.all_reduce(tensor)
            except (ValueError, distlite.DistBackendError):
                pass  # between two groups, or on one that was just shut down
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)
        distlite.destroy_process_group()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures
