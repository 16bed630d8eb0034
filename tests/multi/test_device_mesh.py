# SPDX-License-Identifier: BSD-3-Clause
"""DeviceMesh: which groups a grid has, its slices, and what is refused."""

import mesh_ranks
import pytest
from workers import run_ranks

import distlite
from distlite import HashStore, init_device_mesh

MANY = "('Found the DeviceMesh have 2 dimensions', "


def test_a_grid():
    for rank, found in enumerate(run_ranks(mesh_ranks.grid, 4)):
        row, column = divmod(rank, 2)
        along = [[column, column + 2], [2 * row, 2 * row + 1]]
        errors = found.pop("errors")
        assert found == {
            "shape": ((2, 2), 2, 4, 2, "cpu"),
            "mesh": [[0, 1], [2, 3]],
            "repr": (
                "DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1))",
                "DeviceMesh((tp=2), 'cpu', stride=(1,))",
                "DeviceMesh((dp=2), 'cpu', stride=(2,))",
            ),
            "place": (rank, (row, column), column),
            "ranks": along,
            "names": ["mesh_dp", "mesh_tp"],
            "sums": [float(sum(ranks)) for ranks in along],
            "slice": (along[1], (column,)),
            "same": True,
            "whole": True,
            "flat": ("DeviceMesh((all=4), 'cpu', stride=(1,))", True, 4.0),
            "by name": True,
            "equal": (True, True, False),
            "pickled": ((True, True), (True, True), (column,)),
            "sent": rank if rank < 2 else "IndexError: list index out of range",
        }
        assert errors[0].startswith(f"RuntimeError: {MANY}'Optional kwarg `mesh_dim`")
        assert errors[1].startswith(f"RuntimeError: {MANY}'Optional kwarg `mesh_dim`")
        assert errors[2] == (
            "KeyError: \"Invalid mesh_dim_names ('zz',) specified. "
            "Valid mesh_dim_names are ['dp', 'tp'].\""
        )
        assert "Mesh dim indices should be in ascending order." in errors[3]
        assert errors[4] == (
            "RuntimeError: Slicing overlapping dim_names ('dp', 'dp') is not allowed."
        )
        assert errors[5].startswith("KeyError: (\"Mesh dimension 'zz' does not exist.")
        assert errors[6].startswith("IndexError")
        assert errors[7] == (
            "RuntimeError: Mesh should not be bigger than default world size 4, but "
            "found 8 ranks!"
        )
        assert errors[8].startswith("ValueError: ranks list must not contain duplicate")
        assert errors[9].startswith("TypeError: The mesh argument is required")


def test_other_shapes():
    for rank, found in enumerate(run_ranks(mesh_ranks.shapes, 4)):
        assert found["line"] == ("DeviceMesh((4,), 'cpu', stride=(1,))", True)
        assert found["slice"].endswith(
            "Cannot slice a DeviceMesh without " + ("mesh_dim_names!")
        )
        row, column = divmod(rank, 2)
        pair = [column, column + 2]
        assert found["cube"] == [pair, [rank], [2 * row, 2 * row + 1]]
        assert found["two"] == (
            "DeviceMesh((a=2, c=2), 'cpu', stride=(2, 1))",
            [[0, 1], [2, 3]],
        )
        assert (found["b"], found["flat"]) == (float(rank), (("a_b",), pair))
        if rank % 2:
            assert found["part"] == (None, rank, 2)
            assert {text.split(":")[0] for text in found["outside"]} == {"IndexError"}
        else:
            place = (2, 0).index(rank)
            assert found["part"] == ((place,), rank, 2)
            # As new_group() does, the group sorts them.
            assert found["inside"] == (2.0, (0, 2).index(rank))
        assert found["override"] == ["gloo", "fake"]
        assert found["from"] == (True, "DeviceMesh((x=2, y=2), 'cpu', stride=(2, 1))")
        assert found["single"] == (pair, True)
        assert [text.partition(" [")[0] for text in found["refused"]] == [
            "ValueError: Invalid mesh",
            "ValueError: Must pass mesh if passing multiple ProcessGroups",
            "ValueError: Must pass mesh_dim_names if passing multiple ProcessGroups",
            "ValueError: Expects at least one ProcessGroup to be passed",
            "ValueError: Expects mesh with ndim equal to number of ProcessGroups but "
            "got mesh",
        ]


@pytest.mark.parametrize(
    ("arguments", "keywords", "text"),
    [
        (("cpu", (1, 1)), {"mesh_dim_names": ("a", "a")}, "must be unique"),
        (("cpu", (1, 1)), {"mesh_dim_names": ("a",)}, "should have same length"),
        (("cpu:0", (1,)), {}, "Device type with index is not supported"),
        (("cpu", (0,)), {}, "dimensions must be positive"),
        (("cpu", (1,)), {"backend_override": {"c": "gloo"}}, "Found invalid keys"),
        (("cpu", (1,)), {"backend_override": {5: "gloo"}}, r"range \[0, 1\)"),
        (
            ("cpu", (1,)),
            {"mesh_dim_names": ("a",), "backend_override": {"a": "gloo", 0: "gloo"}},
            "Found redundant dim index 0 and name a",
        ),
    ],
)
def test_what_is_refused(arguments, keywords, text):
    with pytest.raises(RuntimeError, match=text):
        init_device_mesh(*arguments, **keywords)


@pytest.mark.parametrize(
    ("names", "text"), [(("a",), "should have same length"), (("a", "a"), "be unique")]
)
def test_names_that_do_not_fit_are_refused_before_any_group_is_made(names, text):
    with pytest.raises(RuntimeError, match=text):
        distlite.DeviceMesh("cpu", [[0, 1]], mesh_dim_names=names)
    assert not distlite.is_initialized()


def test_a_device_that_nothing_here_serves_is_refused(monkeypatch):
    monkeypatch.setenv("DISTLITE_NCCL_LIBRARY", "/nowhere/libnccl.so")
    monkeypatch.setenv("DISTLITE_CUDART_LIBRARY", "/nowhere/libcudart.so")
    with pytest.raises(
        RuntimeError, match="no available backend supports arrays on cuda"
    ):
        init_device_mesh("cuda", (1,))
    assert not distlite.is_initialized()
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        init_device_mesh("tape", (1,))
    for backend, text in (
        ("cpu:gloo", "takes arrays on cpu, but not on cuda"),
        ("gloo", "The CUDA runtime cannot be loaded|has no NVIDIA driver"),
    ):
        distlite.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        try:
            with pytest.raises(RuntimeError, match=text):
                init_device_mesh("cuda", (1,))
        finally:
            distlite.destroy_process_group()


def test_fake_ranks_have_meshes():
    distlite.init_process_group("fake", store=HashStore(), rank=5, world_size=8)
    try:
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        assert mesh.get_coordinate() == (1, 1)
        assert distlite.get_process_group_ranks(mesh.get_group("dp")) == [1, 5]
    finally:
        distlite.destroy_process_group()


def test_a_mesh_makes_the_world(monkeypatch):
    for name, value in (
        *(("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")),
        ("MASTER_PORT", "0"),
    ):
        monkeypatch.setenv(name, value)
    mesh = init_device_mesh("cpu", (1,))
    try:
        assert (distlite.get_backend(), mesh.get_local_rank()) == ("undefined", 0)
    finally:
        distlite.destroy_process_group()
