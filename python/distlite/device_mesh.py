# SPDX-License-Identifier: BSD-3-Clause
"""Making a grid of all processes: torch's module path of DeviceMesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _C
from .groups.backends import best_backend
from .groups.world import is_initialized, world as _world
from .mesh import DeviceMesh, check_names
from .shared import sizes_of

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: dict[int | str, Any] | None = None,
) -> DeviceMesh:
    """Makes a mesh of the ranks 0, 1, ... in a shape.

    The last dimension varies fastest. All processes of the default group call it. If
    there is no default group, `init_process_group()` makes it.

    Args:
        device_type: Where the arrays will be: "cpu", or "cuda" where there is CUDA.
        mesh_shape: The number of ranks along each dimension.
        mesh_dim_names: A name for each dimension.
        backend_override: The backends of dimensions, by their number or name.

    Returns:
        A `DeviceMesh`.

    Raises:
        RuntimeError: The names do not fit the shape, the mesh is larger than the
            default group, or no backend serves the device.

    Example:
        >>> names = ("data", "model")
        >>> mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=names)
        >>> mesh.get_group("model").size(), mesh.get_local_rank("model") == rank
        (2, True)
    """
    shape = sizes_of(mesh_shape, "mesh_shape")
    _check(device_type, shape, mesh_dim_names)
    override = _override_of(backend_override or {}, len(shape), mesh_dim_names)
    _check_served(device_type, any(backend for backend, _ in override))
    ranks = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    return DeviceMesh(
        device_type, ranks, mesh_dim_names=mesh_dim_names, backend_override=override
    )


def _check(
    device_type: str, shape: tuple[int, ...], names: tuple[str, ...] | None
) -> None:
    check_names(names, shape)
    if not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in "
            "'device.type'.",
        )
    if any(size < 1 for size in shape):
        raise RuntimeError(
            f"the sizes of a mesh's dimensions must be positive: {shape}"
        )


def _check_served(device_type: str, is_overridden: bool) -> None:
    """Refuses a mesh whose groups could take no array of its device."""
    if device_type == "cpu":
        return
    is_fake = False
    if is_initialized():
        world = _world.require_default()
        served = world._device_types
        is_fake = world.name() == "fake"
        if not is_overridden and device_type not in served and not is_fake:
            raise RuntimeError(
                f"the default process group takes arrays on {', '.join(served)}, but "
                f"not on {device_type}; name a backend for it, as in "
                "init_process_group('cpu:gloo,cuda:nccl')"
            )
    elif not is_overridden:
        best_backend(device_type)
    if device_type == "cuda" and not is_fake:
        _C._check_cuda()


def _override_of(
    given: dict[int | str, Any], ndim: int, names: Sequence[str] | None
) -> tuple[tuple[str | None, Any], ...]:
    """(backend, options) of each dimension."""
    found: list[tuple[str | None, Any]] = [(None, None)] * ndim
    rest = dict(given)
    for dim in range(ndim):
        name = names[dim] if names else None
        if dim in rest and name in rest:
            raise RuntimeError(
                f"Found redundant dim index {dim} and name {name} in backend_override"
            )
        value = rest.pop(dim, None) if dim in rest else rest.pop(name or "", None)
        if isinstance(value, str):
            found[dim] = (value, None)
        elif isinstance(value, tuple):
            found[dim] = value
        elif value is not None:
            found[dim] = (None, value)
    if rest:
        choice = f"integers in range [0, {ndim})" + (
            f" or one of {names}" if names else ""
        )
        raise RuntimeError(
            f"Found invalid keys in backend_override: got {list(rest)}, "
            f"expected {choice}"
        )
    return tuple(found)
