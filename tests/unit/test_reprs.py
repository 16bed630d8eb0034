# SPDX-License-Identifier: BSD-3-Clause
"""What objects say of themselves in tracebacks, logs and debuggers."""

from __future__ import annotations

import calendar
import importlib
import inspect
import os
import re
import threading
import time
from types import SimpleNamespace

import pytest

import distlite
from distlite import (
    FileStore,
    Future,
    HashStore,
    PrefixStore,
    ProcessGroup,
    TCPStore,
    Work,
    spawn,
    testing,
)
from distlite.data_parallel import DistributedSampler, GradientReducer
from distlite.groups.custom import DistributedBackendOptions
from distlite.groups.group_methods import CoalescedWork

np = pytest.importorskip("numpy")

# These are never instances, or what an instance says is a subclass's own business.
SILENT = {distlite.group, distlite.GroupMember, distlite.Store}
MODULES = ("data_parallel", "spawn", "testing", "groups.nccl", "groups.custom")
BEFORE_INIT = r"^<[\w.]+ at 0x[0-9a-f]+, before __init__\(\)>$"


def public_classes():
    homes = [importlib.import_module(f"distlite.{name}") for name in MODULES]
    found = [vars(home)[name] for home in homes for name in home.__all__]
    found += [getattr(distlite, name) for name in distlite.__all__]
    return {each for each in found if inspect.isclass(each)} - SILENT


def test_no_public_class_says_its_address_alone():
    plain = [each for each in public_classes() if each.__repr__ is object.__repr__]
    assert plain == []


def test_hooks_tell_which_functions_there_are():
    with distlite.register_hooks(after=print, abort=print) as hooks:
        assert repr(hooks) == "<distlite.Hooks: after, abort>"
    with distlite.register_hooks() as hooks:
        assert repr(hooks) == "<distlite.Hooks: none>"


@pytest.fixture
def group():
    distlite.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield distlite.group.WORLD
    distlite.destroy_process_group()


def until_it_says(work: Work, word: str) -> str:
    limit = time.monotonic() + 20
    while word not in repr(work):
        assert time.monotonic() < limit, repr(work)
    return repr(work)


def test_a_work_tells_operation_number_group_and_state():
    come = threading.Event()

    def call(rank):
        values = np.zeros(4)
        distlite.barrier()
        if rank == 1:
            assert come.wait(20)
            for _ in range(2):
                distlite.all_reduce(values)
            return None
        first = distlite.all_reduce(values, async_op=True)
        second = distlite.all_reduce(np.zeros(4), async_op=True)
        said = [until_it_says(first, "running"), repr(second)]
        come.set()
        second.wait()
        return [*said, repr(first), repr(second)]

    with testing.world(2) as ranks:
        said = ranks.run(call)[0]
    words = "<distlite.Work: all_reduce{} in group '0', {}>"
    assert said == [
        words.format(" #2", "running"),
        words.format("", "queued"),
        words.format(" #2", "completed"),
        words.format(" #3", "completed"),
    ]


def test_a_work_of_a_message_tells_where_it_came_from():
    def call(rank):
        values = np.zeros(4)
        if rank == 0:
            work = distlite.irecv(values)
            said = [repr(work)]
            distlite.barrier()
            work.wait()
            return [*said, repr(work)]
        distlite.barrier()
        distlite.send(values, 0)
        return None

    with testing.world(2) as ranks:
        said = ranks.run(call)[0]
    assert said == [
        "<distlite.Work: recv in group '0', running>",
        "<distlite.Work: recv from rank 1 in group '0', completed>",
    ]


def test_a_work_that_failed_and_whose_group_is_gone():
    def call(rank):
        distlite.barrier()
        if rank == 1:
            return None
        work = distlite.all_reduce(np.zeros(4), async_op=True)
        until_it_says(work, "running")
        distlite.group.WORLD.abort()
        with pytest.raises(distlite.DistError):
            work.wait()
        said = repr(work)
        distlite.destroy_process_group()
        return said, repr(work)

    with testing.world(2) as ranks:
        said = ranks.run(call)[0]
    assert said == ("<distlite.Work: all_reduce #2 in group '0', failed>",) * 2


def test_a_work_keeps_the_name_that_a_group_had():
    named = ProcessGroup(HashStore(), 0, 1, group_name="it's", backend="gloo")
    work = named.allreduce([np.zeros(2)])
    work.wait()
    assert repr(work) == '<distlite.Work: all_reduce #1 in group "it\'s", completed>'
    assert named.group_name is named.group_name
    del named
    assert 'in group "it\'s", completed' in repr(work)


def test_works_of_ones_own_and_several_works(group):
    class Mine(Work):
        pass

    assert re.match(r"^<Mine object at 0x", repr(Mine()))
    works = group.allreduce_coalesced([np.zeros(2), np.zeros(3, np.float32)])
    works.wait()
    each = "<distlite.Work: all_reduce #{} in group '0', completed>"
    assert repr(works) == (
        f"<distlite.CoalescedWork: [{each.format(1)}, {each.format(2)}]>"
    )
    assert repr(CoalescedWork.__new__(CoalescedWork)) == "<distlite.CoalescedWork: []>"


def test_futures_tell_their_state_but_no_values(group):
    future = Future()
    head = rf"^<distlite.Future at {id(future):#x}: "
    assert re.match(head + "pending>$", repr(future))
    future.set_result("secret")
    assert re.match(head + "returned str>$", repr(future))
    failed = Future()
    failed.set_exception(KeyError("secret"))
    assert repr(failed).endswith(": raised KeyError>")
    with failed._condition:  # whoever asks does not wait for the lock
        assert repr(failed).endswith(": raised KeyError>")
    work = distlite.all_reduce(np.zeros(2), async_op=True)
    of_work = work.get_future()
    said = until_it_says(of_work, "completed")
    assert said.endswith(f": of {work!r}>")
    of_work.wait()
    assert repr(of_work).endswith(": returned list>")
    assert repr(Future.__new__(Future)).endswith(": pending>")


def test_a_hash_store_counts_its_keys():
    store = HashStore()
    at = f" at {id(store):#x}>"
    assert repr(store) == f"<distlite.HashStore with 0 keys{at}"
    store.set("one", "secret")
    assert repr(store) == f"<distlite.HashStore with 1 key{at}"
    assert repr(PrefixStore("p", store)) == f"PrefixStore('p', {store!r})"
    store.close()
    assert repr(store) == f"<distlite.HashStore with 1 key{at}"

    class Mine(HashStore):
        pass

    assert repr(Mine()).startswith("<Mine with 0 keys at 0x")


def test_a_hash_store_does_not_count_in_a_forked_child():
    # A thread of the parent may have had the lock when the child was made.
    store = HashStore()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(store).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as said:
        assert said.read() == f"<distlite.HashStore at {id(store):#x}>"


@pytest.mark.parametrize("kind", [HashStore, FileStore, TCPStore, PrefixStore])
def test_stores_before_their_init(kind):
    assert re.match(BEFORE_INIT, repr(kind.__new__(kind)))


def test_a_gradient_reducer_tells_its_buckets_and_how_far_it_is(group):
    reducer = GradientReducer({"w": np.zeros((2, 3)), "b": np.zeros(3)})
    text = (
        "<GradientReducer: 2 parameters, 1 bucket, 0.0 MiB, in group '0'; "
        "step {}, {} of 2 gradients ready>"
    )
    assert repr(reducer) == text.format(1, 0)
    reducer.ready("b", np.zeros(3))
    assert repr(reducer) == text.format(1, 1)
    reducer.ready("w", np.zeros((2, 3)))
    reducer.finish()
    assert repr(reducer) == text.format(2, 0)
    group.abort()
    assert repr(reducer) == text.format(2, 0)
    assert re.match(BEFORE_INIT, repr(GradientReducer.__new__(GradientReducer)))


def test_a_sampler_tells_its_settings_but_not_the_data():
    sampler = DistributedSampler(range(5), 2, 1, seed=3)
    sampler.set_epoch(4)
    assert repr(sampler) == (
        "DistributedSampler(num_replicas=2, rank=1, epoch=4, shuffle=True, seed=3, "
        "drop_last=False, num_samples=3, total_size=6)"
    )
    assert repr(DistributedSampler.__new__(DistributedSampler)) == (
        "DistributedSampler()"
    )


def test_options_tell_their_fields():
    options = distlite.ProcessGroupNCCL.Options()
    options.config.max_ctas = 8
    assert repr(options.config) == "NCCLConfig(max_ctas=8)"
    assert repr(options) == (
        "ProcessGroupNCCL.Options(is_high_priority_stream=False, "
        f"config=NCCLConfig(max_ctas=8), _timeout={options._timeout!r}, "
        "global_ranks_in_group=[], group_name='')"
    )
    assert repr(distlite.ProcessGroupGloo._Options()).startswith(
        "ProcessGroupGloo._Options(_timeout="
    )
    asked = SimpleNamespace(
        **{"store": None, "rank": 0, "size": 2, "timeout": 1, "label": "7"},
        **{"description": "", "info": SimpleNamespace(ranks=[4, 5])},
    )
    assert repr(DistributedBackendOptions(asked)) == (
        "DistributedBackendOptions(store=None, group_rank=0, group_size=2, timeout=1, "
        "group_id='7', global_ranks_in_group=[4, 5])"
    )


def test_processes_and_threads_of_ranks():
    context = spawn.start_processes(time.ctime, nprocs=1, join=False)
    said = f"<ProcessContext: processes {context.pids()}, {{}} of them not joined>"
    assert repr(context) == said.format(1)
    assert context.join(timeout=20)
    assert repr(context) == said.format(0)
    kind = spawn.ProcessContext
    assert re.match(BEFORE_INIT, repr(kind.__new__(kind)))

    with testing.world(2) as ranks:
        assert repr(ranks) == "<distlite.testing.Ranks: 2 threads, 2 running>"
    assert repr(ranks) == "<distlite.testing.Ranks: 2 threads, 0 running>"

    with testing.start_ranks(calendar.isleap, 1, backend=None, year=2024) as job:
        pid = job.pid(0)
        head = f"<distlite.testing.Job: rank 0 is process {pid}"
        assert repr(job) == f"{head}>"
        job.wait(timeout=30)
        assert repr(job) == f"{head} ended with 0>"
    assert repr(testing.Job.__new__(testing.Job)) == "<distlite.testing.Job: no ranks>"
