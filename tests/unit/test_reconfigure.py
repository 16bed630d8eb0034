# SPDX-License-Identifier: BSD-3-Clause
"""Reconfiguring a group of one process, and what is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest

import distlite as dist
from distlite.distributed_c10d import (
    BackendType,
    ErrorType,
    ReconfigureOptions,
    _get_reconfigure_handle,
    _reconfigure,
    _supports_reconfigure,
)
from distlite.groups.communicators import (
    CAN_GROW,
    CAN_SHRINK,
    IS_READY,
    Row,
    ranks_to_exclude,
)


@pytest.fixture
def store() -> dist.Store:
    return dist.HashStore()


@pytest.fixture
def group(store: dist.Store) -> Iterator[dist.ProcessGroup]:
    dist.init_process_group(
        "gloo", store=store, rank=2, world_size=3, timeout=20, enable_reconfigure=True
    )
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_one_process_alone(group, store):
    assert (group.rank(), group.size(), group.name()) == (2, 3, "gloo")
    assert "rank 2 of 3, gloo" in repr(group)
    work = _reconfigure(7, {_get_reconfigure_handle()})
    assert work.wait() and work.is_success() and work.result() == []
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert dist.group.WORLD is group
    assert group.group_name == "0" and group.timeout == timedelta(seconds=20)
    values = np.ones(2)
    dist.all_reduce(values)
    assert values.tolist() == [1.0, 1.0]
    # Only the list stays, so that the number is not used again.
    assert store.list_keys() == ["reconfigure/7/members"]


def test_groups_made_of_it_are_left(group):
    _reconfigure(1, [_get_reconfigure_handle()])
    first = dist.new_group([0])
    dist.barrier(first)
    _reconfigure(2, [_get_reconfigure_handle()])
    with pytest.raises(dist.DistBackendError, match="is closed"):
        dist.barrier(first)
    second = dist.new_group([0])
    dist.barrier(second)
    assert dist.agree(True).result
    assert dist.get_process_group_ranks(second) == [0]


@pytest.mark.parametrize(
    ("handles", "error"),
    [
        ("text", "handles must be a list or a set of str, not str"),
        ([1], "a handle is a str, not 1"),
        (["a:b:c"], "'a:b:c' is not of get_reconfigure_handle"),
        ([], "is not in the list"),
        (["h:1:-:x-0"], "is not in the list \\[pid 1 on host h\\]: each attempt needs"),
        (["h:1:-:x-0", "h:1:-:x-0"], "a handle is twice in the list"),
    ],
)
def test_handles_that_cannot_be(group, handles, error):
    with pytest.raises((TypeError, ValueError), match=error):
        _reconfigure(1, handles)
    with pytest.raises(TypeError):
        _reconfigure("1", [_get_reconfigure_handle()])
    with pytest.raises(ValueError, match="has more than 64 bits"):
        _reconfigure(1 << 63, [_get_reconfigure_handle()])
    _reconfigure(-1, [_get_reconfigure_handle()])
    assert group.get_error() == ErrorType.SUCCESS


def test_what_another_program_wrote_is_named(group, store):
    for uuid, value in enumerate(["x", "{}", "[1]", "[" * 100_000]):
        store.set(f"reconfigure/{uuid}/members", value)
        with pytest.raises(dist.DistStoreError, match=r"/members of the .* another"):
            _reconfigure(uuid, [_get_reconfigure_handle()])
    _reconfigure(9, [_get_reconfigure_handle()])


def test_other_groups_cannot_be_reconfigured(group):
    other = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
    assert not other.supports_reconfigure and not _supports_reconfigure(other)
    with pytest.raises(RuntimeError, match="init_process_group\\(enable_reconfigure="):
        other.get_reconfigure_handle()
    with pytest.raises(RuntimeError, match="init_process_group\\(enable_reconfigure="):
        other.reconfigure(ReconfigureOptions())
    assert _supports_reconfigure()


def test_several_backends_cannot_be_reconfigured():
    group = dist.ProcessGroup(0, 1)
    for device, kind in (("cpu", BackendType.GLOO), ("cuda", BackendType.NCCL)):
        made = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
        group._register_backend(device, kind, made)
    message = "multiple backends"
    with pytest.raises(RuntimeError, match=message):
        group.supports_reconfigure  # noqa: B018
    with pytest.raises(RuntimeError, match=message):
        group.get_reconfigure_handle()
    with pytest.raises(RuntimeError, match=message):
        group.reconfigure(ReconfigureOptions())


def test_backends_that_do_not_support_it():
    with pytest.raises(RuntimeError, match="backend fake cannot be reconfigured"):
        dist.init_process_group(
            "fake",
            store=dist.HashStore(),
            rank=0,
            world_size=1,
            enable_reconfigure=True,
        )
    assert not dist.is_initialized()


def test_options():
    opts = ReconfigureOptions()
    assert (opts.uuid, opts.handles, opts.timeout, opts.hints) == (0, [], None, {})
    assert repr(opts).startswith("ReconfigureOptions(uuid=0, handles=[], ")


CAN = CAN_SHRINK | CAN_GROW


def old(*ranks: int, of: int = 3, number: int = 7, has: int = CAN) -> list[Row]:
    return [Row(number, rank, of, has | IS_READY, -1) for rank in ranks]


def new(device: int = 0, has: int = CAN, number: int = 0) -> list[Row]:
    return [Row(number, 0, 3, has, device)]


@pytest.mark.parametrize(
    ("rows", "excluded"),
    [
        (old(0, 2), [1]),
        (old(2), [0, 1]),
        (old(0, 1, 2), None),
        (old(2, 0), None),
        (old(0) + old(2, has=CAN_GROW), None),
        (old(0) + old(2, number=8), None),
        (old(0) + new(), None),
        (new(number=7) + old(2), None),
        (new(number=7), None),
        (old(0, 1, 2) + new(), []),
        (old(0, 1, 2) + new() + new(1), []),
        (old(0, 1, 2) + old(0, number=8), None),
        (old(0, 1, 2) + new(-1), None),
        (old(0, 1, 2) + new(has=CAN_SHRINK), None),
        (old(0, 1) + new() + old(2), None),
        (old(0, 2, 1) + new(), None),
        (old(0, 1) + new(number=7) + new(), None),
        (new() + new(), None),
    ],
)
def test_what_a_communicator_is_made_of(rows, excluded):
    assert ranks_to_exclude(rows) == excluded
