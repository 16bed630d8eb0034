# SPDX-License-Identifier: BSD-3-Clause
"""Programs of torch.distributed, each run over gloo and over distlite.

Usage: torch_backend_ranks.py FOLDER RANK SIZE.  Writes what the programs computed to
FOLDER/RANK.json: {backend: {program: result}}.  A result is a list of numbers and
texts.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distlite.torch

PROGRAMS: dict[str, Any] = {}
FOLDER = Path()


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


def own(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values that differ between ranks and places."""
    count = int(torch.tensor(shape).prod())
    values = torch.arange(count) * 7 % 11 + 13 * dist.get_rank() + 1
    return values.to(dtype).reshape(shape)


def flat(*tensors: torch.Tensor) -> list[Any]:
    return [each for tensor in tensors for each in tensor.reshape(-1).tolist()]


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def data(step: int) -> torch.Tensor:
    torch.manual_seed(100 * dist.get_rank() + step)
    return torch.randn(8, 6)


def parameters_of(module: nn.Module) -> list[Any]:
    return flat(*(each.detach() for each in module.parameters()))


def train(model: Any, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(data(step)).pow(2).mean().backward()
        optimizer.step()


@program
def reductions() -> list[Any]:
    found = []
    for op in ("SUM", "PRODUCT", "MIN", "MAX"):
        for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
            tensor = own(5, dtype=dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            found += flat(tensor)
    for op in ("BAND", "BOR", "BXOR"):
        tensor = own(5, dtype=torch.int32)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        found += flat(tensor)
    average = own(4)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    number = torch.complex(own(3), -own(3))
    dist.all_reduce(number)
    rooted = own(3)
    dist.reduce(rooted, dst=1)
    found += flat(average, torch.view_as_real(number))
    return found + (flat(rooted) if dist.get_rank() == 1 else [])


@program
def blocks() -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    copied = own(3)
    dist.broadcast(copied, src=1)
    gathered = [torch.zeros(2, 2) for _ in range(size)]
    dist.all_gather(gathered, own(2, 2))
    joined = torch.zeros(2 * size, 2)
    dist.all_gather_single(joined, own(2, 2))
    at_root = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    dist.gather(own(3), at_root, dst=0)
    part = torch.zeros(2)
    parts = [own(2) + 100 * i for i in range(size)] if rank == 1 else None
    dist.scatter(part, parts, src=1)
    mine, whole = torch.zeros(2), torch.zeros(3)
    dist.reduce_scatter(mine, [own(2) + i for i in range(size)])
    dist.reduce_scatter_single(whole, own(3 * size))
    swapped, uneven = torch.zeros(size), torch.zeros(sum(range(1, size + 1)))
    dist.all_to_all_single(swapped, own(size))
    dist.all_to_all_single(
        uneven,
        own((rank + 1) * size),
        list(range(1, size + 1)),
        [rank + 1] * size,
    )
    lists = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(lists, [own(2) + i for i in range(size)])
    found = flat(copied, *gathered, joined, part, mine, whole, swapped, uneven, *lists)
    return found + flat(*(at_root or []))


@program
def works_and_futures() -> list[Any]:
    tensor = own(4)
    work = dist.all_reduce(tensor, async_op=True)
    kept = [work.wait(), work.is_completed(), work.is_success()]
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    both = torch.futures.collect_all([future, doubled]).wait()
    request = dist.barrier(async_op=True)
    kept.append(request.wait(timedelta(seconds=60)))
    return kept + flat(both[0].value()[0], both[1].value())


@program
def methods_by_name() -> list[Any]:
    """The forms of torch's methods with words."""
    world = dist.group.WORLD
    most, summed, copied, same = own(3), own(3), own(3), own(2)
    world.allreduce(tensor=most, op=dist.ReduceOp.MAX).wait()
    world.allreduce(tensors=[summed], op=dist.ReduceOp.SUM).wait()
    world.broadcast(tensor=copied, root=1).wait()
    kinds = [
        dist.all_reduce(same, async_op=True),
        dist.broadcast(same, 0, async_op=True),
        dist.barrier(async_op=True),
    ]
    for work in kinds:
        work.wait()
    return [
        *flat(most, summed, copied),
        *(int(work._get_op_type()) for work in kinds),
    ]


@program
def coalesced() -> list[Any]:
    tensors = [own(3), own(2, 2)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        dist.all_reduce_coalesced(tensors)
    return flat(*tensors)


@program
def messages() -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    got, other = torch.zeros(3), torch.zeros(2)
    if rank == 0:
        dist.send(own(3), following, tag=4)
        sender = dist.recv(got, previous, tag=4)
    else:
        sender = dist.recv(got, previous, tag=4)
        dist.send(own(3), following, tag=4)
    operations = [
        dist.P2POp(dist.isend, own(2), following),
        dist.P2POp(dist.irecv, other, previous),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    any_sender = -1
    if rank == 0:
        found = torch.zeros(1)
        any_sender = dist.recv(found)
    elif rank == 1:
        dist.send(own(1), 0)
    return [sender, any_sender, *flat(got, other)]


@program
def objects() -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, {"rank": rank})
    shared = ["a", 3] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, src=0)
    one: list[Any] = [None]
    dist.scatter_object_list(one, [f"for {i}" for i in range(size)], src=0)
    return [str(every), str(shared), str(one)]


@program
def groups() -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    some = dist.new_group([0, 1], group_desc="pair")
    alone, _ = dist.new_subgroups(group_size=1)
    found: list[Any] = [dist.get_rank(some), dist.get_process_group_ranks(alone)]
    if rank < 2:
        tensor = own(2)
        dist.all_reduce(tensor, group=some)
        copied = own(2)
        dist.broadcast(copied, src=1, group=some)
        found += [some.group_desc, *flat(tensor, copied)]
    single = own(2)
    dist.all_reduce(single, group=alone)
    dist.destroy_process_group(some)
    return [*found, *flat(single), size]


@program
def leaves_and_sparse() -> list[Any]:
    rank = dist.get_rank()
    leaf = own(3).requires_grad_()
    dist.all_reduce(leaf)
    # Ranks have different numbers of elements.
    places = torch.tensor([[rank, 3, 4, 5][: 2 + rank]])
    values = torch.arange(2.0 + rank) + 1
    sparse = torch.sparse_coo_tensor(places, values, (6,), check_invariants=True)
    dist.all_reduce(sparse)
    return flat(leaf.detach(), sparse.to_dense())


@program
def ddp() -> list[Any]:
    model = DistributedDataParallel(network())
    train(model)
    return parameters_of(model)


@program
def ddp_static_graph() -> list[Any]:
    model = DistributedDataParallel(network(), static_graph=True)
    train(model)
    return parameters_of(model)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.spare = network(), nn.Linear(6, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.body(values)
        return made + self.spare(values) if dist.get_rank() == 0 else made


@program
def ddp_unused_parameters() -> list[Any]:
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    train(model)
    return parameters_of(model)


@program
def ddp_accumulation() -> list[Any]:
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0001)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(2):
        optimizer.zero_grad()
        with model.no_sync():
            model(data(2 * step)).pow(2).mean().backward()
        model(data(2 * step + 1)).pow(2).mean().backward()
        optimizer.step()
    return parameters_of(model)


@program
def ddp_hooks() -> list[Any]:
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        powerSGD_hook,
    )

    found = []
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    for given, hook in (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (state, powerSGD_hook.powerSGD_hook),
    ):
        model = DistributedDataParallel(network())
        model.register_comm_hook(given, hook)
        train(model)
        found += parameters_of(model)
    model = DistributedDataParallel(network())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    train(model)
    return found + parameters_of(model)


@program
def ddp_sparse_embedding() -> list[Any]:
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Embedding(7, 2, sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.tensor([dist.get_rank(), step, 5])).sum().backward()
        optimizer.step()
    return parameters_of(model)


@program
def sync_batch_norm_join_sampler() -> list[Any]:
    model = DistributedDataParallel(network())
    sampler = torch.utils.data.DistributedSampler(range(10), seed=3)
    with model.join():
        for step in range(2 + dist.get_rank()):
            model(data(step)).sum().backward()
    return [*parameters_of(model), *sampler]


@program
def ddp_join_divides_by_the_ranks_that_are_left() -> list[Any]:
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join(divide_by_initial_world_size=False):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            model(data(step)).pow(2).mean().backward()
            optimizer.step()
    return parameters_of(model)


@program
def sharded_optimizer() -> list[Any]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        model(data(step)).pow(2).mean().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(0)
    return parameters_of(model)


@program
def averaged_models() -> list[Any]:
    from torch.distributed.algorithms.model_averaging import averagers

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
    for step in range(4):
        optimizer.zero_grad()
        model(data(step)).pow(2).mean().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    return flat(*(each.detach() for each in model.parameters()))


@program
def ddp_compiled() -> list[Any]:
    model = DistributedDataParallel(network())
    # The backend runs what was captured as it is: no compiler of C++ is needed.
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled)
    torch._dynamo.reset()
    return parameters_of(model)


@program
def fsdp2() -> list[Any]:
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model)
    return flat(*(each.full_tensor().detach() for each in model.parameters()))


@program
def fsdp2_in_low_precision() -> list[Any]:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    size = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("copies", "shards"))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    model = network()
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    model.set_requires_gradient_sync(False)
    model(data(0)).pow(2).mean().backward()
    model.set_requires_gradient_sync(True)
    model(data(1)).pow(2).mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    gradients = (each.grad.full_tensor() for each in model.parameters())
    return flat(norm.full_tensor(), *gradients)


@program
def tensor_parallel() -> list[Any]:
    from torch.distributed.tensor import parallel

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh, plan)
    torch.manual_seed(3)
    made = model(torch.randn(5, 6))
    made.pow(2).sum().backward()
    gradients = [each.grad.full_tensor() for each in model.parameters()]
    return flat(made.detach(), *gradients)


@program
def pipeline() -> list[Any]:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layer = nn.Linear(6, 6)
    stage = PipelineStage(layer, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    losses: list[torch.Tensor] = []
    torch.manual_seed(7)
    inputs, target = torch.randn(4, 6), torch.randn(4, 6)
    given = (inputs,) if rank == 0 else ()
    wanted = {"target": target, "losses": losses} if rank == size - 1 else {}
    schedule.step(*given, **wanted)
    return flat(*(each.grad for each in layer.parameters()), *losses)


@program
def mesh_of_two_dimensions() -> list[Any]:
    size = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"))
    tensor = own(2)
    dist.all_reduce(tensor, group=mesh.get_group("a"))
    alone = own(2)
    dist.all_reduce(alone, group=mesh["b"].get_group())
    joined = mesh[("a", "b")]._flatten()
    whole = own(2)
    dist.all_reduce(whole, group=joined.get_group())
    ranks = dist.get_process_group_ranks(mesh.get_group("a"))
    return [*flat(tensor, alone, whole), *ranks, *mesh.get_coordinate(), joined.size()]


@program
def dtensors() -> list[Any]:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("a",))
    torch.manual_seed(1)
    whole = torch.randn(6, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    product = rows @ columns.redistribute(mesh, [Replicate()])
    turned = rows.redistribute(mesh, [Shard(1)])
    return [
        *flat(product.full_tensor(), turned.full_tensor(), rows.sum().full_tensor()),
        *mesh.get_coordinate(),
        mesh["a"].size(),
    ]


@program
def functional() -> list[Any]:
    import torch.distributed._functional_collectives as funcol

    ranks = list(range(dist.get_world_size()))
    reduced = funcol.all_reduce(own(3), "sum", ranks)
    gathered = funcol.all_gather_tensor(own(2), 0, ranks)
    part = funcol.reduce_scatter_tensor(own(2 * len(ranks)), "sum", 0, ranks)
    copied = funcol.broadcast(own(2), 1, ranks)
    swapped = funcol.all_to_all_single(own(len(ranks)), None, None, ranks)
    several = funcol.all_reduce_coalesced([own(2), own(3)], "sum", ranks)
    # One that is still being computed goes into a function of the module.
    waiting = funcol.all_reduce(own(3), "sum", ranks)
    dist.all_reduce(waiting)
    return flat(reduced, gathered, part, copied, swapped, *several, waiting)


@program
def functional_compiled() -> list[Any]:
    import torch.distributed._functional_collectives as funcol

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(values: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(values * 2, "sum", dist.group.WORLD) + 1

    found = flat(step(own(3)))
    torch._dynamo.reset()
    return found


@program
def differentiable() -> list[Any]:
    import torch.distributed.nn.functional as differentiable_functions

    leaf = own(3).requires_grad_()
    total = differentiable_functions.all_reduce(leaf * 2, group=dist.group.WORLD)
    joined = torch.cat(differentiable_functions.all_gather(leaf, dist.group.WORLD))
    (total.sum() + joined.pow(2).sum()).backward()
    assert leaf.grad is not None
    return flat(leaf.grad, joined.detach())


@program
def checkpoint() -> list[Any]:
    from torch.distributed import checkpoint as saved
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    folder = FOLDER / f"checkpoint-{dist.get_backend()}"
    model = DistributedDataParallel(network())
    train(model, 1)
    state = get_model_state_dict(model)
    saved.save(state, checkpoint_id=folder)
    wanted = {name: torch.zeros_like(value) for name, value in state.items()}
    saved.load(wanted, checkpoint_id=folder)
    return flat(*wanted.values())


@program
def checkpoint_of_shards() -> list[Any]:
    from torch.distributed import checkpoint as saved
    from torch.distributed.checkpoint import state_dict
    from torch.distributed.fsdp import fully_shard

    folder = FOLDER / f"shards-{dist.get_backend()}"
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))

    def make() -> tuple[Any, Any]:
        model = fully_shard(network(), mesh=mesh)
        return model, torch.optim.Adam(model.parameters(), 0.01)

    def step_of(model: Any, optimizer: Any, number: int) -> None:
        optimizer.zero_grad()
        model(data(number)).pow(2).mean().backward()
        optimizer.step()

    model, optimizer = make()
    step_of(model, optimizer, 0)
    parts, moments = state_dict.get_state_dict(model, optimizer)
    state = {"model": parts, "optimizer": moments}
    saved.async_save(state, checkpoint_id=folder).result()
    other, its_optimizer = make()
    parts, moments = state_dict.get_state_dict(other, its_optimizer)
    state = {"model": parts, "optimizer": moments}
    saved.load(state, checkpoint_id=folder)
    state_dict.set_state_dict(
        other, its_optimizer, model_state_dict=parts, optim_state_dict=moments
    )
    step_of(other, its_optimizer, 1)
    return flat(*(each.full_tensor().detach() for each in other.parameters()))


@program
def scripted_object() -> list[Any]:
    file = io.BytesIO()
    torch.save(own(2), file)
    received: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(received, file.getvalue())
    return flat(*(torch.load(io.BytesIO(each)) for each in received))


OWN: dict[str, Any] = {}


def of_distlite(function: Any) -> Any:
    """Checks what gloo does otherwise, or not at all; run over distlite alone."""
    OWN[function.__name__] = function
    return function


@of_distlite
def names() -> list[Any]:
    world = dist.group.WORLD
    pair = dist.new_group(backend="distlite", group_desc="two")
    return [
        *(dist.get_backend(), dist.get_backend_config(), world.name()),
        *(world.group_name, pair.group_name, pair.group_desc),
        [str(device) for device in world._device_types],
        [pair.options.backend, pair.options._timeout == pair._timeout],
        isinstance(world.get_group_store(), dist.PrefixStore),
    ]


@of_distlite
def split() -> list[Any]:
    rank = dist.get_rank()
    half = dist.group.WORLD.split_group([rank], group_name=f"half{rank}")
    tensor = own(2)
    half.allreduce([tensor]).wait()
    other = dist.group.WORLD.split_group([1 - rank])
    return [half.size(), half.group_name, other is None, *flat(tensor - own(2))]


@of_distlite
def methods() -> list[Any]:
    """The forms of torch's methods that its functions do not use."""
    world, size = dist.group.WORLD, dist.get_world_size()
    limit = timedelta(seconds=20)
    first, second = own(2), own(2)
    world.allreduce(first, dist.ReduceOp.MAX, limit).wait()
    world.broadcast(second, 1, limit).wait()
    world.barrier(timeout=limit).wait()
    options = dist.AllreduceOptions()
    options.reduceOp, options.timeout = dist.ReduceOp.SUM, limit
    third = own(1)
    work = world.allreduce([third], options)
    work.synchronize()
    lists = [[torch.zeros(2) for _ in range(size)]]
    world.allgather(lists, [own(2)]).wait()
    scaled = own(2)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    return [work.exception(), *flat(*work.result(), first, second, *lists[0], scaled)]


@of_distlite
def differing_calls() -> list[Any]:
    group = dist.new_group()
    try:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.zeros(3), group=group)
        else:
            dist.broadcast(torch.zeros(3), 0, group=group)
    except dist.DistBackendError as error:
        return [isinstance(error, distlite.DistBackendError), str(error)]
    return ["no error"]


@of_distlite
def destroyed_ahead_of_others() -> list[Any]:
    """A root need not wait for the others, and learns of them as it leaves."""
    group, late = dist.new_group(), dist.new_group()
    try:
        dist.broadcast(torch.zeros(5 - dist.get_rank()), 0, group=group)
    except dist.DistBackendError as error:
        found = [str(error)]
    else:
        try:
            dist.destroy_process_group(group)
        except dist.DistBackendError as error:
            found = [str(error)]
    dist.barrier(late)
    return found


@of_distlite
def sparse_mistakes() -> list[Any]:
    group = dist.new_group()
    found: list[Any] = []
    identity = torch.eye(2 + dist.get_rank()).to_sparse()
    try:
        dist.all_reduce(identity, group=group)
    except RuntimeError as error:
        found.append(str(error))
    try:
        group.allreduce([identity, identity], dist.AllreduceOptions())
    except ValueError as error:
        found.append(str(error))
    dist.barrier(group)
    return found


@of_distlite
def timeouts() -> list[Any]:
    group, late = dist.new_group(), dist.new_group()
    group.set_timeout(timedelta(seconds=0.5))
    found: list[Any] = []
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.zeros(3), group=group, async_op=True)
        future = work.get_future()
        for wait in (work.wait, future.wait):
            try:
                wait()
            except RuntimeError as error:
                found += [type(error).__name__, str(error)]
        found += [work.is_completed(), work.is_success(), str(work.exception())]
    dist.barrier(late)
    return found


@of_distlite
def monitored() -> list[Any]:
    group, late = dist.new_group(), dist.new_group()
    distlite.torch.monitored_barrier(group)
    found: list[Any] = []
    if dist.get_rank() == 0:
        try:
            distlite.torch.monitored_barrier(group, timedelta(seconds=0.5))
        except dist.DistBackendError as error:
            found.append(str(error))
    dist.barrier(late)
    return found


@of_distlite
def aborted() -> list[Any]:
    group, late = dist.new_group(), dist.new_group()
    found: list[Any] = []
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.zeros(3), group=group, async_op=True)
        group.abort()
        try:
            work.wait()
        except dist.DistBackendError as error:
            found.append(str(error))
    dist.barrier(late)
    return found


@of_distlite
def failed_ddp_step() -> list[Any]:
    group, late = dist.new_group(), dist.new_group()
    model = DistributedDataParallel(network(), process_group=group)
    group.set_timeout(timedelta(seconds=0.5))
    found: list[Any] = []
    if dist.get_rank() == 0:
        try:
            model(data(0)).sum().backward()
        except RuntimeError as error:
            found.append(str(error))
    dist.barrier(late)
    return found


@of_distlite
def other_devices() -> list[Any]:
    group = dist.new_group(backend="cuda:gloo,cpu:distlite")
    tensor = own(2)
    dist.all_reduce(tensor, group=group)
    found: list[Any] = [
        sorted(str(device) for device in group._device_types),
        type(group._get_backend(torch.device("cpu"))).__name__,
        type(group._get_backend(torch.device("cuda"))).__name__,
    ]
    try:
        dist.all_reduce(torch.zeros(2, device="meta"), group=group)
    except RuntimeError as error:
        found.append(str(error))
    return found + flat(tensor)


@of_distlite
def negated_view() -> list[Any]:
    view = torch.complex(own(2), own(2)).conj().imag
    assert view.is_neg()
    try:
        dist.broadcast(view, 0)
    except ValueError as error:
        return [str(error)]
    return ["no error"]


def run_all(backend: str, rank: int, size: int, only: list[str]) -> dict[str, Any]:
    store = dist.FileStore(str(FOLDER / f"store-{backend}"), size)
    limit = timedelta(seconds=30)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=limit
    )
    assert dist.get_backend() == backend
    if backend == "distlite":
        kind = distlite.torch.ProcessGroupDistlite
        assert isinstance(dist.group.WORLD, kind)
    found: dict[str, Any] = {}
    programs = PROGRAMS if backend == "gloo" else {**PROGRAMS, **OWN}
    for name, function in programs.items():
        if only and name not in only:
            continue
        try:
            found[name] = function()
        except Exception:
            found[name] = [traceback.format_exc()]
            print(name, *found[name], file=sys.stderr)
    dist.barrier()
    dist.destroy_process_group()
    return found


def main() -> None:
    global FOLDER
    FOLDER = Path(sys.argv[1])
    rank, size, only = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    found = {each: run_all(each, rank, size, only) for each in ("gloo", "distlite")}
    (FOLDER / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
