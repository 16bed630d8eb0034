# SPDX-License-Identifier: BSD-3-Clause
"""Backends, meshes and registered groups beside torch, in worlds of fake ranks."""

import numpy as np
import pytest
from test_default_group import BOTH, agree, clean, init  # noqa: F401

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")
# torch's fake ranks come with it.
pytest.importorskip("torch.testing._internal.distributed.fake_pg")

pytestmark = pytest.mark.filterwarnings("ignore")

CONFIGS = "gloo nccl ucc mpi xccl fake undefined bogus cpu:gloo cpu:gloo,cuda:nccl"
DEVICES = ["cpu", "cuda", "cuda:0", "xpu", "mps"]


@pytest.mark.parametrize("word", CONFIGS.split())
def test_configurations(word):
    def call(dist):
        config = dist.distributed_c10d.BackendConfig(dist.Backend(word))
        return repr(config), config.get_device_backend_map()

    agree(call)


@pytest.mark.parametrize("word", ["gloo", "GLOO", "fake", "xyz", "cpu:gloo", "cpu:xyz"])
def test_available(word):
    agree(lambda dist: dist.is_backend_available(word))


def test_tables():
    agree(lambda dist: dist.Backend.backend_list[:7])
    agree(lambda dist: [dist.get_default_backend_for_device(d) for d in DEVICES])
    agree(lambda dist: dist.get_default_backend_for_device("meta"))
    agree(lambda dist: dist.Backend(5))

    def types(dist):
        table = {name: int(t) for name, t in dist.Backend.backend_type_map.items()}
        # In torch's table once another test has imported distlite.torch.
        table.pop("distlite", None)
        return table

    agree(types)


def fake(dist):
    init(dist, "fake", rank=1, world_size=4)


MESHES = {
    "repr": lambda dist, mesh: (repr(mesh), repr(mesh["tp"]), repr(mesh["dp"])),
    "shape": lambda dist, mesh: (mesh.shape, mesh.ndim, mesh.size(), mesh.size(1)),
    "place": lambda dist, mesh: (
        *(mesh.get_rank(), mesh.get_coordinate(), mesh.get_local_rank("tp")),
    ),
    "mesh": lambda dist, mesh: np.asarray(mesh["dp"].mesh).tolist(),
    "groups": lambda dist, mesh: [
        (group.group_desc, dist.get_process_group_ranks(group))
        for group in mesh.get_all_groups()
    ],
    "no dimension": lambda dist, mesh: mesh.get_group(),
    "no local rank": lambda dist, mesh: mesh.get_local_rank(),
    "name": lambda dist, mesh: mesh["zz"],
    "order": lambda dist, mesh: mesh["tp", "dp"],
    "twice": lambda dist, mesh: mesh["dp", "dp"],
    "no group": lambda dist, mesh: mesh.get_group("zz"),
    "too far": lambda dist, mesh: mesh.get_group(9),
    "too big": lambda dist, mesh: dist.DeviceMesh("cpu", list(range(8))),
    "names": lambda dist, mesh: dist.init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("a", "a")
    ),
    "lengths": lambda dist, mesh: dist.init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("a",)
    ),
    "override": lambda dist, mesh: dist.init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override={"c": "fake"}
    ),
    "from nothing": lambda dist, mesh: dist.DeviceMesh.from_group([], "cpu", [0]),
    "from": lambda dist, mesh: repr(
        dist.DeviceMesh.from_group(mesh.get_group("tp"), "cpu")
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_meshes(name):
    def call(dist):
        fake(dist)
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return MESHES[name](dist, mesh)

    agree(call)


@pytest.mark.parametrize(
    "arguments",
    [([],), (5,), ([0], None, 7)],
    ids=str,
)
def test_what_shrink_refuses(arguments):
    for dist in BOTH:
        fake(dist)
    agree(lambda dist: dist.shrink_group(*arguments))
    agree(lambda dist: dist.split_group(None, None))


def test_a_registered_group_is_called_alike():
    def call(dist):
        calls = []

        class Mine(dist.ProcessGroup):
            def __init__(self, rank, size):
                super().__init__(rank, size)

            def _done(self, *noted):
                calls.append(noted)
                future = (torch.futures if dist is not distlite else dist).Future()
                future.set_result([])
                make = dist.distributed_c10d
                if dist is not distlite:
                    make = torch._C._distributed_c10d
                return make._create_work_from_future(future)

            def allreduce(self, tensors, opts):
                return self._done("allreduce", len(tensors), int(opts.reduceOp.op))

            def broadcast(self, tensors, opts):
                return self._done("broadcast", opts.rootRank, opts.rootTensor)

            def allgather(self, outputs, inputs, opts):
                return self._done("allgather", len(outputs), len(outputs[0]))

            def barrier(self, opts):
                return self._done("barrier", opts.device_ids, opts.timeout)

            def send(self, tensors, dst, tag):
                return self._done("send", len(tensors), dst, tag)

        def create(store, rank, size, timeout):
            return Mine(rank, size)

        dist.Backend.register_backend("mine", create, devices=["cpu"])
        init(dist, "mine")
        x = torch.ones(2)
        results = [
            dist.all_reduce(x, dist.ReduceOp.MAX),
            dist.broadcast(x, 0),
            dist.all_gather([x, x], x),
            dist.barrier(),
            dist.isend(x, 0, tag=3) is None,
            (dist.get_backend(), dist.get_backend_config()),
        ]
        return calls, results

    agree(call)
