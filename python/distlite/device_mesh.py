# SPDX-License-Identifier: BSD-3-Clause
"""Processes laid out in a grid, with a group along each of its dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _C
from ._C import ProcessGroup
from .groups.backends import best_backend
from .groups.lifecycle import init_process_group
from .groups.subgroups import new_group
from .groups.world import (
    get_process_group_ranks,
    get_rank,
    get_world_size,
    is_initialized,
    world as _world,
)
from .shared import sizes_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Names = tuple[str, ...]

__all__ = ["DeviceMesh", "init_device_mesh"]

_MANY = "Found the DeviceMesh have {} dimensions"
_WHICH = (
    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
    "If you want to get the list of all the ProcessGroups in the DeviceMesh,"
    "please use `get_all_groups()` instead.",
)


class DeviceMesh:
    """A grid of ranks, with a group for each line of ranks along each dimension.

    All processes of the default group construct it, with the same arguments, even if
    their rank is not in `mesh`. If there is no default group, `init_process_group()`
    makes it. `mesh["model"]` is the mesh of that dimension alone that contains this
    process.

    Args:
        device_type: Where the arrays will be: "cpu", or "cuda" where there is CUDA.
        mesh: The ranks, as an array of any number of dimensions.
        mesh_dim_names: A name for each dimension.
        backend_override: The backend of each dimension, as (name, options) or (None,
            None).

    Raises:
        RuntimeError: The arguments do not fit each other or the default group.

    Example:
        >>> mesh = dist.DeviceMesh("cpu", [[0, 1]], mesh_dim_names=("data", "model"))
        >>> mesh.shape, mesh["model"].size()
        ((1, 2), 2)
    """

    def __init__(
        self,
        device_type: str,
        mesh: ArrayLike | None = None,
        *,
        mesh_dim_names: Names | None = None,
        backend_override: tuple[tuple[str | None, Any], ...] | None = None,
        _init_backend: bool = True,
        _rank: int | None = None,
    ) -> None:
        if mesh is None:
            raise TypeError("The mesh argument is required")
        ranks = np.array(mesh, dtype=np.int32, ndmin=1)
        check_names(mesh_dim_names or None, ranks.shape)
        self._start(device_type, ranks, mesh_dim_names)
        self._root = self
        if _init_backend:
            self._meet(backend_override)
        self._find(get_rank() if _rank is None else _rank)

    def _start(self, device_type: str, ranks: Any, names: Names | None) -> None:
        self.device_type = device_type
        self.mesh: np.ndarray[Any, Any] = ranks
        self.mesh_dim_names = None if names is None else tuple(names)
        self._groups: list[ProcessGroup | None] = []
        # Meshes made of several dimensions, by the names that _flatten() gave them.
        self._flattened: dict[str, DeviceMesh] = {}

    def _meet(self, override: tuple[tuple[str | None, Any], ...] | None) -> None:
        """Makes the groups of all dimensions, which every process makes in the same
        order."""
        if not is_initialized():
            # Without a backend's name, the default group serves arrays of the CPU only.
            is_named = any(name for name, _ in override or ())
            if self.device_type == "cuda" and not is_named:
                init_process_group(f"cpu:gloo,cuda:{best_backend('cuda')}")
            else:
                init_process_group()
        size = get_world_size()
        if self.mesh.size > size:
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {size}, but found "
                f"{self.mesh.size} ranks!"
            )
        for dim in range(self.mesh.ndim):
            backend, options = override[dim] if override else (None, None)
            self._groups.append(self._group_along(dim, backend, options))

    def _group_along(self, dim: int, backend: Any, options: Any) -> ProcessGroup | None:
        lines = np.moveaxis(self.mesh, dim, -1).reshape(-1, self.mesh.shape[dim])
        is_world = sorted(self.mesh.flat) == list(range(get_world_size()))
        if self.mesh.ndim == 1 and is_world and backend is None:
            return _world.require_default()
        names = self.mesh_dim_names
        label = f"mesh_{names[dim] if names else f'dim_{dim}'}"
        own: ProcessGroup | None = None
        for line in lines.tolist():
            made = new_group(
                line, backend=backend, pg_options=options, group_desc=label
            )
            if get_rank() in line:
                own = made
        return own

    def _find(self, rank: int) -> None:
        """Finds this process's coordinates in the mesh."""
        places = (self.mesh == rank).nonzero()
        is_inside = len(places[0]) == 1
        self._coordinate = (
            tuple(int(place[0]) for place in places) if is_inside else None
        )
        if not is_inside:
            self._groups = []

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self.mesh.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each dimension."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """Returns the number of ranks, in all or along one dimension.

        Args:
            mesh_dim: The number of the dimension; None is all of them.
        """
        return int(self.mesh.size) if mesh_dim is None else self.shape[mesh_dim]

    def get_rank(self) -> int:
        """Returns the global rank of this process."""
        return get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Returns the indices of this process in the mesh, None outside of it."""
        return self._coordinate

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Returns the rank of this process along a dimension.

        Args:
            mesh_dim: The number or the name of the dimension; needed if there are
                several.

        Raises:
            RuntimeError: There are several dimensions, and none is named.
        """
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError((_MANY.format(self.ndim), _WHICH[0]))
        return self.get_group(mesh_dim).rank()

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Returns the group of this process along one dimension.

        Args:
            mesh_dim: The number or the name of the dimension; needed if there are
                several.

        Raises:
            RuntimeError: There are several dimensions, and none is named.
            IndexError: This process is not in the mesh.
        """
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError((_MANY.format(self.ndim), *_WHICH))
        if isinstance(mesh_dim, str) and mesh_dim in self._root._flattened:
            return self._root._flattened[mesh_dim].get_group()
        dim = self._dim_of(mesh_dim) if isinstance(mesh_dim, str) else mesh_dim or 0
        group = self._groups[dim]
        if group is None:
            raise RuntimeError(
                f"{self} has no group along dimension {dim} here: it comes from a "
                "pickle, and no group of this process has its ranks"
            )
        return group

    def get_all_groups(self) -> list[ProcessGroup]:
        """Returns the groups of this process along all dimensions.

        Example:
            >>> mesh = dist.DeviceMesh("cpu", [[0, 1]])
            >>> [group.size() for group in mesh.get_all_groups()]
            [1, 2]
        """
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _dim_of(self, name: str) -> int:
        names = self.mesh_dim_names
        if names is None or name not in names:
            raise KeyError(
                f"Mesh dimension '{name}' does not exist.",
                f"Available mesh dimensions are: mesh_dim_names={names}",
            )
        return names.index(name)

    def __getitem__(self, mesh_dim_names: str | Names) -> DeviceMesh:
        """Returns the mesh of the named dimensions through this process, in their
        order."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        one = isinstance(mesh_dim_names, str)
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else mesh_dim_names
        if names == self.mesh_dim_names:
            return self
        if one and names[0] in self._root._flattened:
            return self._root._flattened[names[0]]
        return self._slice(self._check_names(tuple(names)))

    def _check_names(self, names: Names) -> Names:
        known = list(self.mesh_dim_names or ())
        if len(set(names)) < len(names):
            raise RuntimeError(f"Slicing overlapping dim_names {names} is not allowed.")
        if not set(names) <= set(known):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. "
                f"Valid mesh_dim_names are {known}."
            )
        if sorted(names, key=known.index) != list(names):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. "
                "Mesh dim indices should be in ascending order."
            )
        return names

    def _slice(self, names: Names) -> DeviceMesh:
        dims = [self._dim_of(name) for name in names]
        # A process outside of the mesh gets the slice through the first rank.
        here = self._coordinate or (0,) * self.ndim
        ranks = self.mesh[
            tuple(slice(None) if i in dims else here[i] for i in range(self.ndim))
        ]
        groups = [self._groups[dim] for dim in dims] if self._groups else []
        return self._derived(ranks, names, groups)

    def _derived(
        self, ranks: Any, names: Names | None, groups: list[ProcessGroup | None]
    ) -> DeviceMesh:
        made = DeviceMesh.__new__(DeviceMesh)
        made._start(self.device_type, ranks, names)
        made._root = self._root
        made._groups = groups
        made._find(get_rank())
        return made

    def _flatten(
        self, mesh_dim_name: str | None = None, backend_override: Any = None
    ) -> DeviceMesh:
        """Returns a mesh with all dimensions as one, called `mesh_dim_name` or by all
        their names.

        Every process calls it. The root mesh then finds it by its name.
        """
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        known = self._root._flattened.get(name)
        if known is not None:
            return known
        if name in (self._root.mesh_dim_names or ()) and self.ndim > 1:
            raise ValueError(f"{name} already exists for submesh of {self._root}.")
        if self.ndim == 1:
            return self._derived(self.mesh, (name,), list(self._groups))
        own: ProcessGroup | None = None
        for part in self._root._parts_like(self):
            made = new_group(part, group_desc=f"mesh_{name}", sort_ranks=False)
            if get_rank() in part:
                own = made
        groups = [own] if self._coordinate is not None else []
        flat = self._derived(self.mesh.reshape(-1), (name,), groups)
        self._root._flattened[name] = flat
        return flat

    def _parts_like(self, part: DeviceMesh) -> list[list[int]]:
        """Returns the ranks of `part`, a slice of this mesh, and of all slices parallel
        to it."""
        if part is self or part.mesh_dim_names is None:
            return [part.mesh.reshape(-1).tolist()]
        dims = [self._dim_of(name) for name in part.mesh_dim_names]
        moved = np.moveaxis(self.mesh, dims, range(-len(dims), 0))
        lines: list[list[int]] = moved.reshape(-1, part.mesh.size).tolist()
        return lines

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup],
        device_type: str,
        mesh: ArrayLike | None = None,
        *,
        mesh_dim_names: Names | None = None,
    ) -> DeviceMesh:
        """Makes a mesh of existing groups.

        Args:
            group: The group, or a list with one for each dimension of `mesh`.
            device_type: Where the arrays will be: "cpu", or "cuda" where there is CUDA.
            mesh: The ranks, which are needed for several dimensions.
            mesh_dim_names: A name for each dimension.

        Example:
            >>> mesh = dist.DeviceMesh.from_group(dist.new_group([0, 1]), "cpu")
            >>> mesh.size()
            2
        """
        is_one = not isinstance(group, (list, tuple))
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        mesh = _ranks_of(groups, mesh, is_one, mesh_dim_names)
        made = DeviceMesh(
            device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False
        )
        if made.ndim != len(groups):
            raise ValueError(
                "Expects mesh with ndim equal to number of ProcessGroups but got mesh "
                f"{made.mesh.tolist()} and {len(groups)} ProcessGroups"
            )
        made._groups = list(groups) if made._coordinate is not None else []
        return made

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        del state["_groups"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Finds the groups of this process, which need not be the one of the pickle, by
        their ranks."""
        self.__dict__.update(state)
        self._groups = []
        self._coordinate = None
        if is_initialized():
            self._find(get_rank())
        if self._coordinate is not None:
            for dim in range(self.ndim):
                here = self._coordinate[:dim], self._coordinate[dim + 1 :]
                line = self.mesh[(*here[0], slice(None), *here[1])].tolist()
                self._groups.append(_group_of(line))

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        if names is None:
            shape = str(self.shape)
        else:
            pairs = zip(names, self.shape, strict=True)
            shape = f"({', '.join(f'{name}={size}' for name, size in pairs)})"
        return f"DeviceMesh({shape}, '{self.device_type}', stride={self._strides()})"

    def _strides(self) -> tuple[int, ...]:
        """Returns the distance of neighbours along each dimension of the root mesh, in
        ranks."""
        flat = self._root.mesh.reshape(-1).tolist()
        strides = []
        for dim in range(self.ndim):
            first = self.mesh[(0,) * self.ndim]
            step = tuple(int(i == dim) for i in range(self.ndim))
            is_one = self.shape[dim] == 1
            far = math.prod(self.shape[dim + 1 :]) if is_one else 0
            near = 0 if is_one else flat.index(self.mesh[step]) - flat.index(first)
            strides.append(far + near)
        return tuple(strides)

    def _key(self) -> tuple[object, ...]:
        flat = tuple(self.mesh.reshape(-1).tolist())
        return flat, self.shape, self.device_type, self.mesh_dim_names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _group_of(ranks: list[int]) -> ProcessGroup | None:
    """Returns the first group of this process that has these global ranks."""
    orders = ranks, sorted(ranks)
    found = (group for group, info in _world.groups.items() if info.ranks in orders)
    return next(found, None)


def check_names(names: Names | None, shape: tuple[int, ...]) -> None:
    """Raises RuntimeError unless there is one name for each dimension."""
    if names is not None and len(set(names)) != len(names):
        raise RuntimeError(
            "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in "
            f"mesh_dim_names {names}"
        )
    if names is not None and len(names) != len(shape):
        raise RuntimeError(
            "mesh_shape and mesh_dim_names should have same length! "
            f"Found len(mesh_dim_names): {len(names)} and len(mesh_shape):{len(shape)}."
        )


def _ranks_of(
    groups: list[ProcessGroup], mesh: ArrayLike | None, is_one: bool, names: object
) -> ArrayLike:
    """Returns the ranks of a mesh that is made of groups."""
    if not groups:
        raise ValueError("Expects at least one ProcessGroup to be passed")
    if not is_one and mesh is None:
        raise ValueError("Must pass mesh if passing multiple ProcessGroups")
    if not is_one and names is None:
        raise ValueError("Must pass mesh_dim_names if passing multiple ProcessGroups")
    if mesh is not None and not is_one:
        return mesh
    ranks = get_process_group_ranks(groups[0])
    if mesh is not None and np.array(mesh).tolist() != ranks:
        raise ValueError(
            f"Invalid mesh {np.array(mesh).tolist()} for ProcessGroup with ranks "
            f"{ranks}"
        )
    return ranks


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


DeviceMesh.__module__ = "distlite"
