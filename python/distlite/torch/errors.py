# SPDX-License-Identifier: BSD-3-Clause
"""Errors that are both torch's and distlite's.

A program of torch catches `torch.distributed.DistBackendError`; the text, which names
the ranks that caused the failure, is distlite's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch.distributed

import distlite

P = ParamSpec("P")
T = TypeVar("T")

__all__ = [
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "as_torch",
    "raises_as_torch",
]


class DistBackendError(torch.distributed.DistBackendError, distlite.DistBackendError):
    """A collective operation or a message failed."""


class DistNetworkError(torch.distributed.DistNetworkError, distlite.DistNetworkError):
    """A connection could not be made, or was lost."""


class DistStoreError(torch.distributed.DistStoreError, distlite.DistStoreError):
    """A store timed out, was closed, or refused a request."""


_KINDS = (
    (distlite.DistBackendError, DistBackendError),
    (distlite.DistNetworkError, DistNetworkError),
    (distlite.DistStoreError, DistStoreError),
)


def as_torch(error: BaseException) -> BaseException:
    """Returns the same error in a class that programs of torch catch."""
    if isinstance(error, torch.distributed.DistError):
        return error
    for ours, both in _KINDS:
        if isinstance(error, ours):
            made = both(*error.args)
            made.__cause__ = error
            return made
    return error


def raises_as_torch(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps a function so that its errors of distlite are torch's as well."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except distlite.DistError as error:
            raise as_torch(error) from error

    return guarded
