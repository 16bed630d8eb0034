# SPDX-License-Identifier: BSD-3-Clause
"""The arrays and numbers that distlite makes itself, as results of its own."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["Kind", "kind_named", "kind_of"]


class Kind:
    """A kind of array; this one is NumPy's.  Operations read what `show` returns and
    fill what `copy` or `empty` returns; `give` turns that into the caller's result."""

    name = "numpy"

    def is_kind_of(self, x: object) -> bool:
        return isinstance(x, (np.ndarray, np.generic))

    def check(self, x: Any, where: str) -> None:
        """Raises ValueError if no operation takes the array.  It is called before
        anything is sent: a later error would leave the other ranks waiting."""
        if isinstance(x, np.ma.MaskedArray):
            raise ValueError(
                f"{where}: the array is masked, and its mask would not be sent; fill "
                "the masked elements, as with x.filled(0), or pass x.data and x.mask "
                "in two calls"
            )

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def show(self, x: Any) -> Any:
        return np.asanyarray(x)

    def copy(self, x: Any) -> Any:
        return np.array(x, order="C", subok=True)

    def describe(self, x: Any) -> tuple[Any, ...]:
        """Returns what `empty` needs beside the shape; an array means its dtype."""
        return (np.empty(0, x.dtype),)

    def empty(self, shape: tuple[int, ...], of: Any) -> Any:
        return np.empty(shape, of.dtype)

    def empty_like(self, x: Any, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, x.dtype)

    def give(self, result: Any, x: Any) -> Any:
        """Returns the caller's result; `x` is the caller's array, or None without
        one."""
        return result


class _Number(Kind):
    """Numbers of Python, as arrays without dimensions: integers of 64 bits, and double
    precision."""

    name = "number"

    def is_kind_of(self, x: object) -> bool:
        return isinstance(x, (bool, int, float, complex))

    def shape(self, x: Any) -> tuple[int, ...]:
        return ()

    def show(self, x: Any) -> Any:
        for kind, dtype in ((bool, "?"), (int, "i8"), (float, "f8")):
            if isinstance(x, kind):
                return np.array(x, dtype)  # OverflowError for integers out of range
        return np.array(x, "c16")

    def copy(self, x: Any) -> Any:
        # As in Python, booleans are added up like integers.
        return self.show(int(x) if isinstance(x, bool) else x)

    def describe(self, x: Any) -> tuple[Any, ...]:
        return super().describe(self.show(x))

    def empty_like(self, x: Any, shape: tuple[int, ...]) -> Any:
        return super().empty_like(self.show(x), shape)

    def give(self, result: Any, x: Any) -> Any:
        return result if result.ndim else result.item()


class _Torch(Kind):
    name = "torch"

    def is_kind_of(self, x: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, torch.Tensor)

    def check(self, x: Any, where: str) -> None:
        if x.requires_grad:
            raise ValueError(
                f"{where}: the tensor requires grad, and no gradient would flow "
                "through the result: pass x.detach()"
            )
        if x.layout is not self._torch().strided:
            raise ValueError(
                f"{where}: sparse tensors are not supported: pass x.to_dense()"
            )

    def show(self, x: Any) -> Any:
        # A conjugation or change of sign that torch has put off is done now.
        return x.resolve_conj().resolve_neg()

    def copy(self, x: Any) -> Any:
        shown = self.show(x)
        return shown.clone(memory_format=self._torch().contiguous_format)

    def describe(self, x: Any) -> tuple[Any, ...]:
        return str(x.dtype).removeprefix("torch."), x.device.type

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Any = "cpu") -> Any:
        torch = self._torch()
        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)

    def empty_like(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.new_empty(shape)

    def _torch(self) -> Any:
        import torch

        return torch


class _Jax(Kind):
    """JAX's arrays cannot be written to, so operations work on NumPy copies on the
    host."""

    name = "jax"

    def is_kind_of(self, x: object) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(x, jax.Array)

    def check(self, x: Any, where: str) -> None:
        if isinstance(x, sys.modules["jax"].core.Tracer):
            raise TypeError(
                f"{where}: JAX traces this function, as jax.jit does, and the array "
                "has no elements yet: call it outside, or by jax.experimental."
                "io_callback"
            )
        if len(x.devices()) > 1:
            raise ValueError(
                f"{where}: the array lies on {len(x.devices())} devices of this "
                "process: pass one of its addressable_shards"
            )

    def show(self, x: Any) -> Any:
        return np.asarray(x)

    def copy(self, x: Any) -> Any:
        return np.array(x)

    def give(self, result: Any, x: Any) -> Any:
        import jax

        device = None if x is None else next(iter(x.devices()))
        given = jax.device_put(result, device)
        if given.dtype != result.dtype:
            raise ValueError(
                f"JAX converts {result.dtype} to {given.dtype} on this rank: enable "
                "jax_enable_x64, as on the sending rank"
            )
        return given


class _Cupy(Kind):
    name = "cupy"

    def is_kind_of(self, x: object) -> bool:
        cupy = sys.modules.get("cupy")
        return cupy is not None and isinstance(x, cupy.ndarray)

    def show(self, x: Any) -> Any:
        return x

    def copy(self, x: Any) -> Any:
        return x.copy("C")

    def empty(self, shape: tuple[int, ...], of: Any) -> Any:
        import cupy

        return cupy.empty(shape, of.dtype)

    def empty_like(self, x: Any, shape: tuple[int, ...]) -> Any:
        import cupy

        return cupy.empty(shape, x.dtype)


# NumPy's first: its float64 is a float of Python as well.
_KINDS = (Kind(), _Torch(), _Number(), _Jax(), _Cupy())


def kind_of(x: object, where: str) -> Kind:
    for kind in _KINDS:
        if kind.is_kind_of(x):
            kind.check(x, where)
            return kind
    name = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
    raise TypeError(
        f"{where}: a number or an array of NumPy, torch, JAX or CuPy is needed, not "
        f"{name}: convert it, as with numpy.asarray(x)"
    )


def kind_named(name: str) -> Kind:
    for kind in _KINDS:
        if kind.name == name:
            return kind
    raise ValueError(f"arrays of kind {name!r} are not known to this version")
