# SPDX-License-Identifier: BSD-3-Clause
"""The default group and its rendezvous, in a world of one: both say the same."""

import inspect
import pickle
from datetime import timedelta

import numpy as np
import pytest
import test_signatures

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

BOTH = [torch.distributed, distlite]
LIMIT = timedelta(seconds=60)
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "USE_LIBUV")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    for dist in BOTH:
        if dist.is_initialized():
            dist.destroy_process_group()


def outcome(call, dist):
    """What it returned, or class and text of what it raised."""
    try:
        return call(dist)
    except Exception as error:
        return type(error).__name__, str(error)


def agree(call):
    """The same, or the same error, of which ours may say more behind torch's words."""
    theirs, ours = (outcome(call, dist) for dist in BOTH)
    if isinstance(theirs, tuple) and isinstance(theirs[-1], str) and theirs != ours:
        assert isinstance(ours, tuple) and ours[0] == theirs[0]
        assert ours[1].startswith(theirs[1])
    else:
        assert ours == theirs


def init(dist, backend="gloo", **keywords):
    keywords = {"rank": 0, "world_size": 1, **keywords}
    if "init_method" not in keywords:
        keywords.setdefault("store", dist.HashStore())
    dist.init_process_group(backend, **keywords)


def arrays(dist):
    """Four ones, as the library likes them."""
    return torch.ones(4) if dist is torch.distributed else np.ones(4, np.float32)


@pytest.mark.parametrize(
    "arguments",
    [
        (5,),
        ("tcp://h:1", "0"),
        ("tcp://h:1", 0, "1"),
        ("foo://",),
        ("",),
        ("host:80", 0, 1),
        ("tcp://", 0, 1),
        ("tcp://h", 0, 1),
        ("tcp://h:1",),
        ("tcp://h:1", -1, 1),
        ("tcp://h:1", 0),
        ("tcp://h:1?rank=0",),
        ("tcp://h:1?rank=0", 0, 1),
        ("tcp://:1", 0, 1),
        ("tcp://h:99999", 0, 1),
        ("tcp://h:abc", 0, 1),
        ("tcp://127.0.0.1:0?rank=0&world_size=0",),
        ("file://", 0, 1),
        ("file:///x",),
        ("file:///x", 0),
        ("env://?rank=1", 0, 1),
        ("env://",),
    ],
    ids=str,
)
def test_rendezvous_errors(arguments):
    agree(lambda dist: next(dist.rendezvous(*arguments, timeout=LIMIT))[1:])


def variables_with_port(monkeypatch, port):
    for name, value in zip(VARIABLES, ("0", "1", "127.0.0.1", port), strict=False):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("port", ["", "70000", "-5", " 0 "])
def test_ports_of_the_environment(monkeypatch, port):
    variables_with_port(monkeypatch, port)
    agree(lambda dist: next(dist.rendezvous("env://", timeout=LIMIT))[1:])


@pytest.mark.parametrize(
    "url, culprit",
    [
        ("env://?rank=x&world_size=1", "rank parameter"),
        ("env://", "environment variable MASTER_PORT"),
    ],
)
def test_what_is_no_number_is_named_which_torch_does_not(monkeypatch, url, culprit):
    variables_with_port(monkeypatch, "x")
    theirs, ours = (
        outcome(lambda dist: next(dist.rendezvous(url, timeout=LIMIT)), dist)
        for dist in BOTH
    )
    assert theirs == ("ValueError", "invalid literal for int() with base 10: 'x'")
    assert ours[0] == "ValueError"
    assert ours[1].endswith(f"{culprit} must be a number, but is 'x'")


@pytest.mark.parametrize("count", range(4))
def test_missing_variables(monkeypatch, count):
    for name in VARIABLES[:count]:
        monkeypatch.setenv(name, "1")
    agree(lambda dist: next(dist.rendezvous("env://", timeout=LIMIT)))


@pytest.mark.parametrize(
    "keywords",
    [
        {"init_method": "env://"},
        {"init_method": "env://", "store": 5},
        {"world_size": -1},
        {"rank": -1},
        {"timeout": "5"},
        {"backend": "bogus"},
        {"backend": ""},
        {"backend": 5},
    ],
    ids=str,
)
def test_init_errors(keywords):
    agree(lambda dist: init(dist, **keywords))


def test_twice():
    for dist in BOTH:
        init(dist)
    agree(init)


@pytest.mark.parametrize("backend", [None, "gloo", "GLOO", "undefined", "cpu:gloo"])
def test_what_a_group_says(backend):
    def call(dist):
        init(dist, backend)
        world = dist.group.WORLD
        said = (
            dist.get_backend(),
            dist.get_rank(),
            dist.get_world_size(),
            dist.get_process_group_ranks(None),
            dist.get_group_rank(world, 7),
            dist.get_global_rank(world, 7),
            dist.get_rank(-100),
            dist.get_world_size(-100),
            dist.GroupMember.WORLD is world,
            world.rank(),
            world.size(),
            # Torch's answer depends on what was registered before, by whichever test.
            world.name() if backend != "cpu:gloo" else "",
            world.group_desc,
        )
        dist.destroy_process_group()
        return (*said, dist.is_initialized(), dist.get_pg_count())

    agree(call)


BEFORE = {
    "get_rank": lambda dist: dist.get_rank(),
    "get_world_size": lambda dist: dist.get_world_size(),
    "get_backend": lambda dist: dist.get_backend(),
    "get_process_group_ranks": lambda dist: dist.get_process_group_ranks(None),
    "get_group_rank": lambda dist: dist.get_group_rank(None, 3),
    "all_reduce": lambda dist: dist.all_reduce(arrays(dist)),
    "broadcast": lambda dist: dist.broadcast(arrays(dist), 0),
    "barrier": lambda dist: dist.barrier(),
    "destroy": lambda dist: dist.destroy_process_group(),
    "destroy none": lambda dist: dist.destroy_process_group(-100),
}


@pytest.mark.parametrize("name", BEFORE)
def test_before_init(name):
    agree(BEFORE[name])


DURING = {
    "no root": lambda dist: dist.broadcast(arrays(dist)),
    "two roots": lambda dist: dist.broadcast(arrays(dist), 0, group_src=0),
    "no group": lambda dist: dist.all_reduce(arrays(dist), group=5),
    "backend of no group": lambda dist: dist.get_backend(5),
    "destroy no group": lambda dist: dist.destroy_process_group(5),
    "outside": lambda dist: dist.all_reduce(arrays(dist), group=-100),
    "barrier outside": lambda dist: dist.barrier(group=-100),
    "all_reduce": lambda dist: dist.all_reduce(arrays(dist)),
    "barrier": lambda dist: dist.barrier(device_ids=[0], timeout=LIMIT),
}


@pytest.mark.parametrize("name", DURING)
def test_during(name):
    for dist in BOTH:
        init(dist)
    agree(DURING[name])


def test_wrong_types_are_worded_alike():
    for dist in BOTH:
        init(dist)
    theirs, ours = (outcome(lambda dist: dist.all_reduce([1]), dist) for dist in BOTH)
    assert ours[0] == theirs[0]
    other = "numpy.ndarray (or a CPU torch.Tensor, or anything with DLPack)"
    assert ours[1].replace(other, "torch.Tensor").startswith(theirs[1])


@pytest.mark.parametrize(
    "name",
    ["all_reduce", "broadcast", "barrier", "destroy_process_group", "get_rank"],
)
def test_parameters(name):
    theirs, ours = (
        [
            (parameter.name, int(default) if name == "op" else default)
            for parameter in inspect.signature(getattr(dist, name)).parameters.values()
            for default in [
                int(parameter.default)
                if parameter.name == "op"
                else str(parameter.default)
            ]
        ]
        for dist in BOTH
    )
    more = test_signatures.MORE.get(name, ([], ""))[0]
    assert [each for each in ours if each[0] not in more] == theirs


def test_parameters_of_init():
    theirs, ours = (
        [
            (parameter.name, parameter.default)
            for parameter in inspect.signature(
                dist.init_process_group
            ).parameters.values()
        ]
        for dist in BOTH
    )
    # Of torch 2.14.
    assert ours == [*theirs, ("enable_reconfigure", False)] or ours == theirs


OURS_ALONE = {"MINLOC", "MAXLOC"}
REDUCTIONS = {
    "names": lambda op: {
        name: int(member)
        for name, member in op.RedOpType.__members__.items()
        if name not in OURS_ALONE
    },
    "texts": lambda op: (str(op.SUM), repr(op.MAX), f"{op.AVG}", op.MIN.name),
    "instances": lambda op: [isinstance(x, op) for x in (op.SUM, op(op.SUM), 0)],
    "equal": lambda op: (
        op(op.SUM) == op.SUM,
        op(op.SUM) == op.MAX,
        op(op.SUM) == 0,
        op.SUM == 0,
        hash(op(op.SUM)) == hash(op.SUM),
    ),
    "factor": lambda op: op.PREMUL_SUM(3.0).factor,
    "factor of another": lambda op: op(op.SUM).factor,
    "call of another": lambda op: op.SUM(3.0),
    "pickle": lambda op: pickle.loads(pickle.dumps(op.PREMUL_SUM(2.0))).factor,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    agree(lambda dist: REDUCTIONS[name](dist.ReduceOp))
