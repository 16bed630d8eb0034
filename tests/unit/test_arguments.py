# SPDX-License-Identifier: BSD-3-Clause
"""Wrong calls of what is written in C: the error names function and argument."""

from __future__ import annotations

import inspect

import pytest

import distlite
from distlite import (
    _C,
    FileStore,
    HashStore,
    PrefixStore,
    ProcessGroup,
    Store,
    TCPStore,
    Work,
)

TYPES = (ProcessGroup, Work, Store)


def functions():
    for name in dir(_C):
        value = getattr(_C, name)
        if inspect.isbuiltin(value) and value.__text_signature__ is not None:
            yield name, value
    for kind in TYPES:
        for name, value in vars(kind).items():
            # Neither special methods, whose calls CPython reads, nor second names.
            # _adopt takes what the constructor takes, and says so.
            is_own = inspect.ismethoddescriptor(value) and value.__name__ == name
            if is_own and name[:2] != "__" and name != "_adopt":
                yield f"{kind.__name__}.{name}", value


def objects():
    return {
        "ProcessGroup": ProcessGroup(HashStore(), 0, 1),
        "Work": Work(),
        "Store": HashStore(),
    }


FUNCTIONS = dict(functions())


def test_there_are_functions_of_all_kinds():
    assert {"all_reduce", "send", "Store.set", "Work.wait"} <= set(FUNCTIONS)
    assert {"ProcessGroup.set_timeout", "_plan_packs", "_put_plain"} <= set(FUNCTIONS)


def bound(name):
    owner, _, method = name.rpartition(".")
    return getattr(objects()[owner], method) if owner else FUNCTIONS[name]


def parameters_of(name):
    return list(inspect.signature(bound(name)).parameters.values())


def text_of(name, /, *args, **keywords):
    with pytest.raises(TypeError) as caught:
        bound(name)(*args, **keywords)
    text = str(caught.value)
    assert f"{name.rpartition('.')[2]}() " in text
    return text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_name_that_there_is_not(name):
    some = [p for p in parameters_of(name) if p.kind is p.POSITIONAL_OR_KEYWORD]
    text = text_of(name, bogus=3)
    # CPython words it for functions that take nothing by name.
    expected = "got an unexpected keyword argument 'bogus'"
    assert expected in text or (not some and "takes no keyword arguments" in text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_too_many(name):
    by_place = [p for p in parameters_of(name) if p.kind is not p.KEYWORD_ONLY]
    count = len(by_place) + 1
    text = text_of(name, *[None] * count)
    assert f"({count} given)" in text
    limits = ("takes no", f"takes at most {len(by_place)}", "takes exactly one")
    assert any(limit in text for limit in limits)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_that_is_missing(name):
    required = [p for p in parameters_of(name) if p.default is p.empty]
    if not required:
        assert all(p.default is not p.empty for p in parameters_of(name))
        return
    text = text_of(name)
    if required[0].kind is required[0].POSITIONAL_ONLY:
        assert "takes exactly one argument (0 given)" in text
    else:
        assert f"is missing argument '{required[0].name}'" in text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_that_is_given_twice(name):
    first = next(iter(parameters_of(name)), None)
    if first is None or first.kind is not first.POSITIONAL_OR_KEYWORD:
        assert "takes" in text_of(name, None, None)
        return
    text = text_of(name, None, **{first.name: None})
    assert f"got two values for argument '{first.name}'" in text


CONSTRUCTORS = [
    (HashStore, []),
    (FileStore, ["file_name"]),
    (TCPStore, ["host_name", "port"]),
    (PrefixStore, ["prefix", "store"]),
    (ProcessGroup, ["store", "rank", "size"]),
    (Work, []),
    (_C._SpareMemory, ["size"]),
    (_C._SharedMemory, ["group", "size"]),
]


@pytest.mark.parametrize(("kind", "required"), CONSTRUCTORS)
def test_constructors(kind, required):
    name = kind.__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .* 'bogus'"):
        kind(bogus=3)
    with pytest.raises(TypeError, match=rf"^{name}\(\) takes .*\(20 given\)$"):
        kind(*[None] * 20)
    if required:
        with pytest.raises(TypeError, match=f"is missing argument '{required[0]}'"):
            kind()


class Own(ProcessGroup):
    """A group whose operations are written in Python."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)


@pytest.mark.parametrize("make", [Own, ProcessGroup])
def test_a_group_of_ones_own_takes_rank_and_size(make):
    group = make(1, 3)
    assert (group.rank(), group.size(), group.name()) == (1, 3, "custom")


def test_a_group_of_ones_own_takes_names():
    store = HashStore()
    for group in (
        Own(rank=1, size=3),
        Own(1, size=3),
        Own(store, 1, 3),
        Own(store=store, rank=1, size=3),
        Own(store, size=3, rank=1),
    ):
        assert (group.rank(), group.size()) == (1, 3)
    assert Own(store=store, rank=1, size=3).get_group_store() is store


@pytest.mark.parametrize(
    ("args", "named", "text"),
    [
        ((1,), {}, r"ProcessGroup\(\) is missing argument 'size'"),
        ((), {"store": None}, r"ProcessGroup\(\) is missing argument 'rank'"),
        ((1,), {"bogus": 2}, r"ProcessGroup\(\) got an unexpected .* 'bogus'"),
        ((None, 1, 2, 3), {}, r"takes at most 3 arguments \(4 given\)"),
        (("1", 2), {}, "rank must be an integer, not '1'"),
        ((1, None), {}, "size must be an integer, not None"),
    ],
)
def test_wrong_groups_of_ones_own(args, named, text):
    with pytest.raises(TypeError, match=text):
        Own(*args, **named)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"group_name": None}, "group_name must be str, not NoneType"),
        ({"group_name": 7}, "group_name must be str, not int"),
        ({"backend": b"gloo"}, "backend must be str, not bytes"),
        ({"group_desc": 7}, "group_desc must be str, not int"),
        ({"rank": None}, "rank must be an integer, not None"),
        ({"timeout": "5"}, "timeout must be a datetime.timedelta"),
    ],
)
def test_values_of_a_wrong_kind_are_named(named, text):
    with pytest.raises(TypeError, match=text):
        ProcessGroup(**{"store": HashStore(), "rank": 0, "size": 1, **named})


@pytest.mark.parametrize("path", [None, 7])
def test_a_file_s_name_is_named(path):
    with pytest.raises(
        TypeError, match=r"^file_name must be str, bytes or os.PathLike"
    ):
        FileStore(path)


def test_a_name_may_not_end_early():
    with pytest.raises(ValueError, match="group_name contains a NUL character"):
        ProcessGroup(HashStore(), 0, 1, group_name="a\0b")


def test_a_work_is_asked_by_name():
    group = ProcessGroup(HashStore(), 0, 1)
    work = distlite.barrier(group, async_op=True)
    with pytest.raises(TypeError, match=r"^wait\(\) got an unexpected .* 'bogus'"):
        work.wait(bogus=3)
    assert work.wait(timeout=5)
    group.set_timeout(timeout=7)
    assert group.timeout.total_seconds() == 7


def test_the_address_that_mpi_carries_is_whole_or_refused():
    with pytest.raises(ValueError, match="1024 bytes, more than 1023"):
        _C._mpi_tell("é" * 512, None)
