# SPDX-License-Identifier: BSD-3-Clause
"""Autograd and tensors that an operation writes to."""

import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlite
from distlite import HashStore, ProcessGroup

torch = pytest.importorskip("torch")

LONG = 60.0


@pytest.fixture(scope="module")
def pair():
    store = HashStore()
    with ThreadPoolExecutor(2) as threads:
        joining = [
            threads.submit(ProcessGroup, store, rank, 2, LONG) for rank in range(2)
        ]
        groups = [each.result(LONG) for each in joining]
    yield groups
    for group in groups:
        group.shutdown()


@pytest.fixture
def alone():
    group = ProcessGroup(HashStore(), 0, 1, LONG)
    yield group
    group.shutdown()


def zeros(*shape):
    return torch.zeros(*shape)


def all_reduce(group, rank, **how):
    tensor = zeros(2)
    return distlite.all_reduce(tensor, group=group, **how), [tensor], []


def broadcast(group, rank, **how):
    tensor = zeros(2)
    work = distlite.broadcast(tensor, group_src=0, group=group, **how)
    return (work, [], [tensor]) if rank == 0 else (work, [tensor], [])


def reduce(group, rank, **how):
    tensor = zeros(2)
    work = distlite.reduce(tensor, group_dst=1, group=group, **how)
    return (work, [], [tensor]) if rank == 0 else (work, [tensor], [])


def all_gather(group, rank, **how):
    outputs, given = [zeros(2), zeros(2)], zeros(2)
    return distlite.all_gather(outputs, given, group=group, **how), outputs, [given]


def all_gather_single(group, rank, **how):
    output, given = zeros(4), zeros(2)
    work = distlite.all_gather_single(output, given, group=group, **how)
    return work, [output], [given]


def gather(group, rank, **how):
    outputs, given = ([zeros(2), zeros(2)] if rank == 1 else []), zeros(2)
    work = distlite.gather(given, outputs or None, group_dst=1, group=group, **how)
    return work, outputs, [given]


def scatter(group, rank, **how):
    inputs, output = ([zeros(2), zeros(2)] if rank == 1 else []), zeros(2)
    work = distlite.scatter(output, inputs or None, group_src=1, group=group, **how)
    return work, [output], inputs


def reduce_scatter(group, rank, **how):
    inputs, output = [zeros(2), zeros(2)], zeros(2)
    return (
        distlite.reduce_scatter(output, inputs, group=group, **how),
        [output],
        inputs,
    )


def reduce_scatter_single(group, rank, **how):
    given, output = zeros(4), zeros(2)
    work = distlite.reduce_scatter_single(output, given, group=group, **how)
    return work, [output], [given]


def all_to_all(group, rank, **how):
    inputs, outputs = [zeros(2), zeros(2)], [zeros(2), zeros(2)]
    return distlite.all_to_all(outputs, inputs, group=group, **how), outputs, inputs


def all_to_all_single(group, rank, **how):
    given, output = zeros(4), zeros(4)
    work = distlite.all_to_all_single(output, given, group=group, **how)
    return work, [output], [given]


def message(group, rank, async_op=False):
    tensor = zeros(2)
    if rank == 0:
        send = distlite.isend if async_op else distlite.send
        return send(tensor, group_dst=1, group=group), [], [tensor]
    receive = distlite.irecv if async_op else distlite.recv
    work = receive(tensor, group_src=0, group=group)
    return (work if async_op else None), [tensor], []


CALLS = [
    *(all_reduce, broadcast, reduce, all_gather, all_gather_single, gather, scatter),
    *(reduce_scatter, reduce_scatter_single, all_to_all, all_to_all_single, message),
]


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_versions_tell_what_was_written(pair, call, async_op):
    def run(rank):
        work, written, read = call(pair[rank], rank, async_op=async_op)
        if work is not None:
            work.wait()
        assert all(each._version > 0 for each in written)
        assert all(each._version == 0 for each in read)
        return len(written)

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(run, range(2), timeout=LONG)) > 0


@pytest.mark.parametrize("async_op", [False, True])
def test_what_is_saved_for_backward_is_not_replaced_in_silence(alone, async_op):
    weight, x = torch.ones(2, requires_grad=True), torch.ones(2)
    y = weight * x  # saves x, which needs no gradient itself
    work = distlite.all_reduce(x, group=alone, async_op=async_op)
    if async_op:
        work.wait()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_so_is_a_view_of_it(alone):
    weight, x = torch.ones(2, requires_grad=True), torch.ones(4)
    y = weight * x[:2]
    distlite.all_reduce(x.detach(), group=alone)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def run_script(text):
    prelude = """
        import warnings, torch, distlite
        from distlite import HashStore, ProcessGroup
        group = ProcessGroup(HashStore(), 0, 1, 60.0)
        def told(run):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run()
            return [str(each.message)[:39] for each in caught]
        leaf = torch.ones(2, requires_grad=True)
        TEXT = "a collective writes to a tensor that re"
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=4 * LONG,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", ["leaf", "(leaf * 2)[:1]"])
def test_one_warning_where_autograd_does_not_follow(what):
    run_script(f"""
        tensor = {what}
        run = lambda: distlite.all_reduce(tensor, group=group)
        assert told(run) == [TEXT], told(run)
        assert told(run) == []
        outputs = [tensor * 3]
        assert told(lambda: distlite.all_gather(outputs, tensor, group=group)) == []
    """)


def test_a_warning_that_is_an_error_comes_before_anything_is_written():
    run_script("""
        warnings.simplefilter("error")
        for i in range(2):
            try:
                distlite.all_gather([leaf * 2], torch.zeros(2), group=group)
            except UserWarning:
                pass
            else:
                raise SystemExit("no error")
        with torch.no_grad():
            distlite.all_reduce(leaf, group=group)
    """)


# Where torch's functions have other names, its Python is asked.
@pytest.mark.parametrize("hidden", ["", "torch._C.__file__ = '/nowhere'"])
def test_what_is_meant_is_silent(hidden):
    run_script(f"""
        {hidden}
        with torch.inference_mode():
            inference = torch.ones(2)
        leaf.grad = torch.ones(2)
        def silent():
            with torch.no_grad():
                distlite.all_reduce(leaf, group=group)
            for each in (leaf.detach(), leaf.data, leaf.grad, inference):
                distlite.all_reduce(each, group=group)
            with torch.inference_mode():
                distlite.all_reduce(inference, group=group)
                distlite.all_reduce(leaf.data, group=group)
            distlite.broadcast(leaf, group_src=0, group=group)  # this rank only reads
        assert told(silent) == [], told(silent)
        version = leaf.grad._version
        distlite.all_reduce(leaf.grad, group=group)
        assert leaf.grad._version > version
        assert told(lambda: distlite.all_reduce(leaf, group=group)) == [TEXT]
        assert told(lambda: distlite.all_reduce(leaf, group=group)) == []
    """)


def test_arrays_of_a_coalesced_call_are_counted_too(alone):
    weight, x = torch.ones(2, requires_grad=True), torch.ones(4)
    y = weight * x[:2]
    whole = torch.arange(6.0)
    distlite.all_reduce_coalesced([whole[::2], x, whole[1:], x], group=alone)
    assert whole.tolist() == [0, 1, 2, 3, 4, 5] and x.tolist() == [1] * 4
    assert whole._version > 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    outputs, given = [[torch.zeros(2), torch.zeros(2)]], [torch.ones(2), torch.ones(2)]
    distlite.all_gather_coalesced(outputs, given, group=alone)
    assert all(each._version > 0 for each in outputs[0])
    assert all(each._version == 0 for each in given)


def test_classes_of_somebody_s_own_are_tensors_all_the_same(alone):
    class Own(torch.Tensor):
        pass

    tensor = torch.zeros(2).as_subclass(Own)
    parameter = torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (tensor, parameter):
            distlite.all_reduce(each, group=alone)
            assert each._version > 0
