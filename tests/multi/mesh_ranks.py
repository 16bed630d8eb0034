# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of DeviceMesh.  Does not import pytest."""

from __future__ import annotations

import pickle
from typing import Any

from collective_ranks import error_of
from subgroup_ranks import init, sum_in

import distlite
from distlite import DeviceMesh, get_process_group_ranks as ranks_of, init_device_mesh


def grid(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Four ranks as (dp=2, tp=2)."""
    init(rank, world_size, init_method)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    found: dict[str, Any] = {
        "shape": (mesh.shape, mesh.ndim, mesh.size(), mesh.size(0), mesh.device_type),
        "mesh": mesh.mesh.tolist(),
        "repr": (repr(mesh), repr(mesh["tp"]), repr(mesh["dp"])),
        "place": (mesh.get_rank(), mesh.get_coordinate(), mesh.get_local_rank("tp")),
        "ranks": [ranks_of(group) for group in mesh.get_all_groups()],
        "names": [group.group_desc for group in mesh.get_all_groups()],
        "sums": [sum_in(mesh.get_group(dim), rank) for dim in (0, "tp")],
        "slice": (mesh["tp"].mesh.tolist(), mesh["tp"].get_coordinate()),
        "same": mesh["dp"].get_group() is mesh.get_group("dp"),
        "whole": mesh["dp", "tp"] is mesh,
    }
    flat = mesh._flatten("all")
    found["flat"] = (repr(flat), mesh["all"] is flat, sum_in(flat.get_group(), 1.0))
    found["by name"] = mesh.get_group("all") is flat.get_group()
    equal = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    found["equal"] = (mesh == equal, hash(mesh) == hash(equal), mesh == mesh["dp"])
    whole = pickle.loads(pickle.dumps(mesh))
    copy = pickle.loads(pickle.dumps(mesh["tp"]))
    found["pickled"] = (
        (whole == mesh, whole.get_all_groups() == mesh.get_all_groups()),
        (copy == mesh["tp"], copy.get_group() is mesh.get_group("tp")),
        copy.get_coordinate(),
    )
    # Another rank finds its own groups in it.
    sent = [mesh["tp"] if rank == 0 else None]
    distlite.broadcast_object_list(sent, src=0)
    found["sent"] = error_of(sent[0].get_group) if rank > 1 else sent[0].get_rank()
    found["errors"] = refused(mesh)
    return found


def refused(mesh: DeviceMesh) -> list[str]:
    """What a grid of four does not do."""
    return [
        error_of(mesh.get_group),
        error_of(mesh.get_local_rank),
        error_of(mesh.__getitem__, "zz"),
        error_of(mesh.__getitem__, ("tp", "dp")),
        error_of(mesh.__getitem__, ("dp", "dp")),
        error_of(mesh.get_group, "zz"),
        error_of(mesh.get_group, 9),
        error_of(DeviceMesh, "cpu", list(range(8))),
        error_of(DeviceMesh, "cpu", [0, 0]),
        error_of(DeviceMesh, "cpu"),
    ]


def shapes(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Three dimensions on one, a part of the world, groups that were there."""
    init(rank, world_size, init_method)
    line = init_device_mesh("cpu", (4,))
    cube = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
    found: dict[str, Any] = {
        "line": (repr(line), line.get_group() is distlite.group.WORLD),
        "slice": error_of(line.__getitem__, "x"),
        "cube": [ranks_of(group) for group in cube.get_all_groups()],
        "two": (repr(cube["a", "c"]), cube["a", "c"].mesh.tolist()),
        "b": sum_in(cube["b"].get_group(), rank),
    }
    flat = cube["a", "b"]._flatten()
    found["flat"] = (flat.mesh_dim_names, ranks_of(flat.get_group()))
    part = DeviceMesh("cpu", [2, 0])
    found["part"] = (part.get_coordinate(), part.get_rank(), part.size())
    if part.get_coordinate() is None:
        found["outside"] = [
            error_of(part.get_group),
            error_of(part.get_local_rank),
            error_of(part.get_all_groups),
        ]
    else:
        found["inside"] = sum_in(part.get_group(), rank), part.get_local_rank()
    other = init_device_mesh("cpu", (2, 2), backend_override={1: "fake"})
    found["override"] = [group.name() for group in other.get_all_groups()]
    groups = cube["a", "c"].get_all_groups()
    made = DeviceMesh.from_group(
        groups, "cpu", [[0, 1], [2, 3]], mesh_dim_names=("x", "y")
    )
    found["from"] = made.get_group("y") is groups[1], repr(made)
    single = DeviceMesh.from_group(groups[0], "cpu")
    found["single"] = single.mesh.tolist(), single.get_group() is groups[0]
    found["refused"] = [
        error_of(DeviceMesh.from_group, groups[0], "cpu", [5, 6]),
        error_of(DeviceMesh.from_group, groups, "cpu"),
        error_of(DeviceMesh.from_group, groups, "cpu", [[0, 1], [2, 3]]),
        error_of(DeviceMesh.from_group, [], "cpu"),
        error_of(
            DeviceMesh.from_group, groups, "cpu", [0, 1, 2, 3], mesh_dim_names=("x",)
        ),
    ]
    return found
