# SPDX-License-Identifier: BSD-3-Clause
"""Backends in C: the header, its refusals, and the example, built and run."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from c_backend_ranks import differ, load, use, without_messages
from workers import run_ranks

import distlite as dist

EXAMPLE = Path(__file__).parents[2] / "examples/c_backend/board.c"
CC = shutil.which("gcc") or shutil.which("cc")
needs_a_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def compile_c(*words: str | Path) -> None:
    includes = [dist.get_include(), sysconfig.get_path("include")]
    command = [
        str(CC),
        "-Wall",
        "-Wextra",
        "-Werror",
        *(f"-I{each}" for each in includes),
    ]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if CC is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("board") / "board.so"
    compile_c("-shared", "-fPIC", "-O1", "-o", path, EXAMPLE)
    return os.fspath(path)


@needs_a_compiler
@pytest.mark.parametrize("language", ["-std=c99", "-std=c11"])
def test_the_header_stands_alone(tmp_path, language):
    file = tmp_path / "alone.c"
    file.write_text("#include <distlite/backend.h>\ndistlite_backend backend;\n")
    compile_c(language, "-pedantic", "-fsyntax-only", file)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_header_is_one_of_cpp_too(tmp_path):
    file = tmp_path / "alone.cc"
    file.write_text("#include <distlite/backend.h>\ndistlite_backend backend;\n")
    words = ["g++", "-Wall", "-Werror", f"-I{dist.get_include()}", "-fsyntax-only"]
    done = subprocess.run([*words, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def two(library: str) -> list[dict[str, object]]:
    return run_ranks(use, 2, library=library)


def test_the_backend_has_its_names(two):
    assert [each["names"] for each in two] == [["board", "cpu:board", "board"]] * 2


def test_the_example_s_collectives(two):
    for rank, found in enumerate(two):
        assert found["strided"] == [1.0, 5.0, 9.0, 13.0]
        for dtype in ("float32", "float16", "int64", "complex64"):
            assert found[dtype] == [3.0, 3.0]
        assert found["average"] == [0.5] * 3
        assert found["scaled"] == [2.0] * 3
        assert found["copied"] == [[1.0, 1.0]] * 2
        assert found["gathered"] == [[0.0, 0.0], [1.0, 1.0]]
        assert found["mine"] == [10.0 * rank] * 2
        assert found["swapped"] == [rank, 10.0 + rank]
        assert found["objects"] == [{"rank": 0}, {"rank": 1}]
        assert found["pair"] == [2.0, 2.0]
    assert two[1]["at root"] == [[0.0, 0.0], [1.0, 1.0]]


def test_what_a_backend_lacks_is_told(two):
    for found in two:
        assert "the board backend of group 0 has no reduce" in found["missing"]


def test_messages(two):
    assert two[0]["source"] == 1 and two[0]["received"] == [5.0] * 3
    assert two[1]["received"] == [0.0, 1.0, 2.0]
    assert two[1]["into strides"] == [0.0, 0.0, 2.0, 0.0, 4.0, 0.0]
    for rank, found in enumerate(two):
        assert found["batch"] == [10 * (1 - rank) + i for i in range(8)]
        assert found["unawaited"] == [4.0 + 1 - rank]
        assert found["both ways"] == [1 - rank, 8.0 - rank]
        assert found["object"] == [{"from": 0}]


def test_messages_that_fail(two):
    text = "recv from rank 1 with tag 0 timed out after 300ms on rank 0 of 2, backend "
    assert text in two[0]["timeout"]
    assert "abort" in two[0]["aborted"]
    text = "recv from rank 0 with tag 1 on rank 1 of 2, backend board: rank 0 sends 24 "
    assert text in two[1]["size"] and two[1]["after"] == [1.0, 1.0]
    for found in two:
        assert "backend board has no probe" in found["probe"]


def test_a_backend_that_was_built_without_messages(tmp_path):
    if CC is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "board.c"
    before = EXAMPLE.read_text()
    after = before.replace("sizeof backend", "offsetof(distlite_backend, post)")
    assert after != before
    source.write_text(after)
    compile_c("-shared", "-fPIC", "-O1", "-o", tmp_path / "board.so", source)
    for total, said in run_ranks(
        without_messages, 2, library=os.fspath(tmp_path / "board.so")
    ):
        assert total == 2.0
        assert "the board backend of group 0 has no send" in said


def test_failures_name_rank_and_backend(two):
    text = "DistBackendError: all_reduce on rank 0 of 2, backend board: "
    assert two[0]["late"].startswith(text + "wait timeout after 400ms")
    assert "is broken: " + text.partition(": ")[2] in two[0]["again"]


def test_an_abort_ends_a_wait_of_the_backend(two):
    assert "abort" in two[0]["aborted"]


def test_what_a_backend_says_itself(library):
    texts = run_ranks(differ, 2, library=library)
    assert "backend board: rank 1 gives 24 bytes, and 16 are expected" in texts[0]


class Table(ctypes.Structure):
    """`distlite_backend`, as far as it is looked at."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("functions", ctypes.c_void_p * 15),
    )


def capsule_of(table: Table, name: bytes = b"distlite.backend") -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(table), name, None)


# They are looked at only while they are registered, but a capsule may stay.
TABLES: list[Table] = []


def table_with(version: int, size: int, missing: int | None = None) -> Table:
    functions = [None if place == missing else 1 for place in range(15)]
    TABLES.append(Table(version, size, (ctypes.c_void_p * 15)(*functions)))
    return TABLES[-1]


@pytest.mark.parametrize(
    ("version", "size", "missing", "text"),
    [
        (2, 104, None, r"built for version 2 of <distlite/backend.h>, .* version 1"),
        (0, 104, None, "built for version 0"),
        (1, 96, None, "a table of 96 bytes, fewer than the 104"),
        (1, 104, 0, r"backend worse has no open\(\)"),
        (1, 104, 1, r"backend worse has no close\(\)"),
        (1, 104, 3, r"backend worse has no barrier\(\)"),
        (1, 128, 13, r"backend worse has post\(\) and no test\(\)"),
        (1, 128, 14, r"backend worse has post\(\) and no cancel\(\)"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(version, size, missing, text):
    table = table_with(version, size, missing)
    with pytest.raises(ValueError, match=text):
        dist.Backend.register_backend("worse", capsule_of(table))
    with pytest.raises(AssertionError, match="Unknown backend type worse"):
        dist.init_process_group("worse", store=dist.HashStore(), rank=0, world_size=1)


def test_other_capsules_names_and_devices_are_refused(library):
    good = load(library).backend
    keep = capsule_of(table_with(1, 104), name := b"another")
    with pytest.raises(ValueError, match='not named "distlite.backend"'):
        dist.Backend.register_backend("other", keep)
    with pytest.raises(ValueError, match="gloo is a backend of distlite"):
        dist.Backend.register_backend("gloo", good)
    with pytest.raises(ValueError, match="the CPU's memory only, not cuda"):
        dist.Backend.register_backend("other", good, devices=["cuda"])
    with pytest.raises(
        TypeError, match="a function that makes a group, or the capsule"
    ):
        dist.Backend.register_backend("other", 3, devices=["cpu"])
    assert name


def test_a_function_takes_the_place_of_a_backend_in_c(library, monkeypatch):
    monkeypatch.setattr(dist.Backend, "_plugins", {})
    dist.Backend.register_backend("replaced", load(library).backend)
    with pytest.raises(RuntimeError, match="supports cpu memory only"):
        dist.init_process_group(
            "cuda:replaced", store=dist.HashStore(), rank=0, world_size=1
        )

    def create(*_):
        raise OSError("made by a function")

    dist.Backend.register_backend("replaced", create, devices=["cpu"])
    with pytest.raises(OSError, match="made by a function"):
        dist.init_process_group(
            "replaced", store=dist.HashStore(), rank=0, world_size=1
        )
