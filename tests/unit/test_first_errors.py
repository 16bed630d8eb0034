# SPDX-License-Identifier: BSD-3-Clause
"""The mistakes of a first hour: each is refused at once, with what to type."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlite as dist
from distlite import testing
from distlite.spawn import spawn

PLACE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process alone, told of its place by its environment."""
    for name in os.environ:
        if re.match("(SLURM|OMPI|PMI|MPI|MV2)_|LOCAL_|TORCHELASTIC", name):
            monkeypatch.delenv(name)
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def array(place: pytest.MonkeyPatch) -> Iterator[np.ndarray]:
    dist.init_process_group("gloo")
    yield np.ones(4, np.float32)
    if dist.is_initialized():
        dist.destroy_process_group()


def frozen() -> np.ndarray:
    made = np.ones(3)
    made.setflags(write=False)
    return made


def of_library(name: str, kind: str, **methods: Any) -> Any:
    """An object of a library that need not be here; its arrays are no buffers."""
    return type(kind, (), {"__module__": name, **methods})()


# (environment, arguments of init_process_group, what it says)
BEGINNINGS: list[tuple[dict[str, str | None], dict[str, Any], str]] = [
    ({"RANK": None}, {}, "RANK expected, but not set: .*`distlite run -n 4 script.py`"),
    ({"MASTER_ADDR": None}, {}, "not set: .* init_method='tcp://127.0.0.1:29500'"),
    ({"WORLD_SIZE": None}, {}, "without one, RANK=0 WORLD_SIZE=1 MASTER_ADDR=127"),
    ({"RANK": "x"}, {}, "environment variable RANK must be a number, but is 'x'"),
    ({"MASTER_PORT": "ssh"}, {}, "MASTER_PORT must be a number, but is 'ssh'"),
    ({}, {"rank": "0", "world_size": 1}, "^rank must be an integer, not '0'"),
    ({}, {"world_size": "1"}, "^world_size must be an integer, not '1'"),
    ({"RANK": "1"}, {}, r"rank must be from 0 to 0 \(world_size=1\), but was 1"),
    ({}, {"backend": "glo"}, "Unknown backend type glo; known are gloo, mpi, nccl"),
    ({}, {"backend": 5}, 'string-ish: a name such as "gloo", not 5'),
    (
        {},
        {"backend": "tcp://Host:1"},
        "tcp://host:1; pass a URL as init_method='tcp://Host:1'$",
    ),
    ({}, {"backend": "env://"}, "pass a URL as init_method='env://'$"),
    ({}, {"timeout": "30s"}, "timedelta, got 30s, which is not a number of"),
    ({}, {"timeout": float("nan")}, "timeout must not be NaN"),
    (
        {},
        {"init_method": "localhost:1"},
        "there are .*tcp://, as in tcp://localhost:1$",
    ),
    (
        {},
        {"init_method": "tcp://127.0.0.1:0"},
        r"rank parameter missing: rank= .*\?rank",
    ),
    ({}, {"init_method": "tcp://127.0.0.1"}, "missing, as in tcp://host:29500"),
]


@pytest.mark.parametrize(("environment", "arguments", "text"), BEGINNINGS)
def test_of_init_process_group(place, environment, arguments, text):
    for name, value in environment.items():
        if value is None:
            place.delenv(name)
        else:
            place.setenv(name, value)
    with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)) as caught:
        dist.init_process_group(**{"backend": "gloo", **arguments})
    assert re.search(text, str(caught.value))
    assert not dist.is_initialized()


Call = Callable[[np.ndarray], Any]
CALLS: list[tuple[Call, str]] = [
    (lambda x: dist.init_process_group("gloo"), "twice! This process is rank 0 of 1"),
    (lambda x: dist.all_reduce(x, op="sum"), r"<class 'str'> instead. It has SUM, AVG"),
    (lambda x: dist.all_reduce(x, op=max), "function_or_method'> instead. It has SUM"),
    (lambda x: dist.all_reduce(x, op=np.sin), "sin cannot reduce: it must take two"),
    (lambda x: dist.all_reduce([1.0]), r"'list'> instead. numpy.array\(\) makes an"),
    (lambda x: dist.all_reduce((1.0,)), r"'tuple'> instead. numpy.array\(\) makes an"),
    (
        lambda x: dist.all_reduce(3.0),
        r"'float'> instead. .*numpy.array\(\[number\]\).* distlite.functional take num",
    ),
    (lambda x: dist.all_reduce(x[0]), r"numpy.float32'> instead. .*\(\[number\]\)"),
    (lambda x: dist.all_reduce("abc"), r"instead. broadcast_object_list\(\)"),
    (
        lambda x: dist.all_reduce(of_library("pandas.core.frame", "DataFrame")),
        r"DataFrame'> instead. .to_numpy\(copy=True\) makes an array",
    ),
    (
        # pandas 3
        lambda x: dist.all_reduce(of_library("pandas", "Series")),
        r"Series'> instead. .to_numpy\(copy=True\) makes an array",
    ),
    (
        lambda x: dist.all_reduce(of_library("polars.series.series", "Series")),
        r"Series'> instead. .to_numpy\(writable=True\) makes an array",
    ),
    (
        lambda x: dist.all_reduce(of_library("xarray.core.dataarray", "DataArray")),
        "DataArray'> instead. .values is its array",
    ),
    (
        lambda x: dist.all_reduce(
            of_library("xarray.core.dataarray", "DataArray", __float__=lambda self: 1.0)
        ),
        "DataArray'> instead. .values is its array",
    ),
    (lambda x: dist.all_reduce(dist.all_reduce(x)), r"x = all_reduce\(x\) loses the"),
    (lambda x: dist.all_reduce({"a": x}), r"instead. broadcast_object_list\(\)"),
    (
        lambda x: spawn(print, 5, nprocs=2),
        r"^args must be a tuple, such as \(5",
    ),
    (lambda x: spawn(print, nprocs="2"), "^nprocs must be an integer, not '2'"),
    (lambda x: dist.notebook_launcher(print, 5), r"^args must be a tuple, such as \(5"),
    (
        lambda x: dist.notebook_launcher(print, (), "4"),
        "^num_processes must be an integer, not '4'",
    ),
    (lambda x: dist.all_reduce(frozen()), r"read-only.*numpy.array"),
    (
        lambda x: dist.all_reduce(np.array([object()])),
        "references .* all_gather_object",
    ),
    (
        lambda x: dist.all_reduce(x, dist.ReduceOp.BAND),
        "support BAND of float32, only of integers",
    ),
    (lambda x: dist.all_reduce(np.ones(2, int), dist.ReduceOp.AVG), "use SUM, or"),
    (
        lambda x: dist.all_reduce(x, asynch=True),
        "'asynch'; it takes tensor, op, group, async_op, stream$",
    ),
    (lambda x: dist.all_reduce(x, group=[0]), r"\[0\].*new_group\(\) makes a group of"),
    (lambda x: dist.init_device_mesh("cpu", "2"), "^mesh_shape must be .*, not '2'"),
    (lambda x: dist.Window("x"), "^shape must be an integer or a sequence .*, not 'x'"),
    (lambda x: dist.shared_zeros(2.5), "^shape must be an integer or .*, not 2.5"),
    (lambda x: dist.broadcast(x, src="0"), "^src must be an integer, not '0'"),
    (lambda x: dist.broadcast(x, src=0.0), "^src must be an integer, not 0.0"),
    (
        lambda x: dist.broadcast(x),
        "Must specify global_rank .*: src or group_src, as in src=0",
    ),
    (lambda x: dist.broadcast(x, src=5), "Global rank 5 is not part of group"),
    (lambda x: dist.reduce(x, dst="0"), "^dst must be an integer, not '0'"),
    (lambda x: dist.gather(x, group_dst="0"), "^group_dst must be an integer"),
    (lambda x: dist.send(x, "1"), "^dst must be an integer, not '1'"),
    (lambda x: dist.recv(x, 0, tag="a"), "^tag must be an integer, not 'a'"),
    (lambda x: dist.send(x, 0), "should not be the same as the rank of the current"),
    (lambda x: dist.all_gather(x, x), "It is a list with one array for each rank"),
    (lambda x: dist.all_gather([], x), "one array for each of the group's 1 ranks"),
    (lambda x: dist.all_gather([x[:3]], x), "4 elements in the input, but 3 in the"),
    (
        lambda x: dist.all_gather([np.ones(4)], x),
        "the input has dtype float32, but the output",
    ),
    (
        lambda x: dist.scatter(x, src=0),
        "specified on source rank: a list with one array",
    ),
    (lambda x: dist.new_group(2), "ranks must be a list of integers, not 2"),
    (lambda x: dist.new_group(["0"]), r"ranks must be a list of integers, not \['0'\]"),
    (lambda x: dist.new_group([7]), "Rank 7 is out of range. Valid ranks are 0 to 0"),
    (lambda x: dist.all_reduce(x, async_op=True).wait("3"), "timeout must be a"),
    (lambda x: dist.all_gather_object([None], lambda: 0), "cannot be pickled"),
]


@pytest.mark.parametrize(("call", "text"), CALLS)
def test_of_collectives(array, call, text):
    refusals = (ValueError, TypeError, AttributeError, pickle.PicklingError)
    with pytest.raises(refusals) as caught:
        call(array)
    assert re.search(text, str(caught.value), re.DOTALL), caught.value
    dist.all_reduce(array)  # nothing is lost
    assert (array == 1).all()


STORE_CALLS: list[tuple[Callable[[dist.Store], Any], str]] = [
    (lambda s: dist.TCPStore("h", "29500"), "^port must be an integer, not '29500'"),
    (lambda s: dist.TCPStore("h:29500", 1), "^host_name must be .*not 'h:29500': the"),
    (lambda s: dist.TCPStore("tcp://h", 1), "^host_name must be a name or an address"),
    (lambda s: dist.TCPStore("h", 70000), "^port must be in 0..65535, not 70000"),
    (lambda s: dist.TCPStore("h", 1, "2"), "^world_size must be an integer, not '2'"),
    (lambda s: s.add("count", "1"), "^amount must be an integer, not '1'"),
    (lambda s: s.set("key", 1), r"value must be str, bytes.*str\(x\), json.dumps"),
    (lambda s: s.set(1, "value"), "key must be str, bytes"),
    (lambda s: s.wait("key"), "keys"),
    (lambda s: s.set_timeout("30s"), "timeout must be a datetime.timedelta, seconds"),
    (lambda s: dist.FileStore("/tmp/never", "2"), "^world_size must be an integer"),
]


@pytest.mark.parametrize(("call", "text"), STORE_CALLS)
def test_of_stores(call, text):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(dist.HashStore())
    assert re.search(text, str(caught.value)), caught.value


def test_a_port_in_use_has_a_remedy() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with store, pytest.raises(dist.DistNetworkError) as caught:
        dist.TCPStore("127.0.0.1", store.port, is_master=True)
    assert "message: address already in use; choose another port" in str(caught.value)


def test_of_what_is_not_there_yet_or_any_more(array):
    dist.destroy_process_group()
    with pytest.raises(AssertionError, match="or it was destroyed already"):
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="make sure to call init_process_group"):
        dist.all_reduce(array)


def test_seconds_are_a_timeout(place):
    dist.init_process_group("gloo", timeout=12.5)
    assert dist.group.WORLD.timeout.total_seconds() == 12.5
    group = dist.new_group([0], timeout=3)
    assert group.timeout.total_seconds() == 3
    dist.destroy_process_group()


def public_timeouts() -> Iterator[tuple[str, str]]:
    """Each public function with a parameter `timeout`, and its annotation."""
    folder = Path(dist.__file__).parent
    homes = [*dist._AT_ONCE, *dist._LATER, "spawn", "testing.threads"]
    homes += ["testing.processes"]
    files = [folder / f"{home.replace('.', '/')}.py" for home in homes if home != "_C"]
    for file in [folder / "_C.pyi", *files]:
        file = file if file.exists() else file.with_suffix("") / "__init__.py"
        for owner, node in functions_of(ast.parse(file.read_text()).body):
            every = [*node.args.args, *node.args.kwonlyargs]
            for each in every:
                if each.arg == "timeout" and each.annotation is not None:
                    yield (
                        f"{file.name}: {owner}{node.name}",
                        ast.unparse(each.annotation),
                    )


def functions_of(
    body: list[ast.stmt], owner: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        is_def = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if not is_def or (node.name[0] == "_" and node.name != "__init__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node.body, f"{node.name}.")
        else:
            yield owner, node


def test_every_timeout_is_seconds_or_a_timedelta():
    found = dict(public_timeouts())
    assert found.pop("rendezvous.py: find_place") == "timedelta"  # not for users
    assert len(found) > 30
    wrong = {
        name: annotation
        for name, annotation in found.items()
        if "Timeout" not in annotation
        and not ("timedelta" in annotation and "float" in annotation)
    }
    assert not wrong


def test_timeouts_of_ranks_for_tests():
    """By the rules of all others."""
    limit = timedelta(seconds=30)
    with testing.world(2, timeout=limit) as ranks:
        assert ranks.run(lambda rank: rank, timeout=limit) == [0, 1]
    for wrong in ("30s", True):
        with pytest.raises(TypeError, match="^timeout must be a datetime.timedelta or"):
            testing.world(2, timeout=wrong)


def test_of_names(tmp_path: Path) -> None:
    """The interpreter adds what was meant."""
    script = tmp_path / "script.py"
    script.write_text("import distlite as dist\ndist.allreduce\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "module 'distlite' has no attribute 'allreduce'" in done.stderr
    # Python 3.15 puts a dot before the name.
    assert re.search(r"Did you mean:? '\.?all_reduce'", done.stderr), done.stderr
