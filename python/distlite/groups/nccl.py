# SPDX-License-Identifier: BSD-3-Clause
"""NCCL: its options, and letting a group serve arrays on CUDA devices.

Such a group always has a backend for the CPU as well, for barriers and objects.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import _C
from .._C import DistError, ProcessGroup, Store

if TYPE_CHECKING:
    from .coalescing import _CoalescingManager

__all__ = [
    "NCCLConfig",
    "NCCLOptions",
    "ProcessGroupNCCL",
    "cuda_stream",
    "nccl_version",
]

# Seconds: torch's default for this backend.
DEFAULT_TIMEOUT = timedelta(minutes=10)

# The values are those of the core.
_NUMBERS = (
    *("blocking", "cga_cluster_size", "min_ctas", "max_ctas", "split_share"),
    *("traffic_class", "collnet_enable", "cta_policy", "shrink_share", "nvls_ctas"),
)
_TEXTS = ("net_name", "comm_name")

# The options of the groups that were made with some.
_given: WeakKeyDictionary[ProcessGroup, NCCLOptions] = WeakKeyDictionary()


class NCCLConfig:
    """The configuration of a communicator; None leaves a field to NCCL.

    `blocking`, `cga_cluster_size`, `min_ctas`, `max_ctas`, `net_name` and `split_share`
    are NCCL 2.18's, `traffic_class` is 2.26's, the others came with 2.27.  An older
    library ignores newer fields.
    """

    __slots__ = _NUMBERS + _TEXTS

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, None)

    def __repr__(self) -> str:
        given = [(name, getattr(self, name, None)) for name in self.__slots__]
        fields = ", ".join(f"{name}={v!r}" for name, v in given if v is not None)
        return f"{type(self).__name__}({fields})"

    def as_tuple(self, is_high_priority_stream: bool) -> tuple[Any, ...]:
        """Returns the fields for the core."""
        numbers = (getattr(self, name) for name in _NUMBERS)
        given = (None if number is None else int(number) for number in numbers)
        texts = (getattr(self, name) for name in _TEXTS)
        return (*given, *texts, bool(is_high_priority_stream))


class NCCLOptions:
    """``ProcessGroupNCCL.Options``: for `pg_options` of groups with NCCL."""

    backend = "nccl"

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = NCCLConfig()
        self._timeout = DEFAULT_TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"ProcessGroupNCCL.Options({fields})"


class ProcessGroupNCCL(ProcessGroup):
    """A group with NCCL, for arrays on CUDA devices, that is made by hand.

    Every rank constructs it with the same store. Arrays of the CPU are served as well.

    Args:
        store: A store that the ranks share.
        rank: The rank of this process in the group.
        size: The number of ranks.
        options: `ProcessGroupNCCL.Options()`.

    Raises:
        DistStoreError: The other ranks did not come within the timeout.
    """

    NCCLConfig = NCCLConfig
    Options = NCCLOptions

    def __new__(
        cls, store: Store, rank: int, size: int, options: NCCLOptions | None = None
    ) -> ProcessGroupNCCL:
        """Makes the group; every rank calls it with the same store."""
        given = NCCLOptions() if options is None else options
        name = given.group_name or "nccl"
        limit = given._timeout
        made = super().__new__(cls, store, rank, size, limit, name, backend="gloo")
        serve(made, given)
        return made


def nccl_version() -> tuple[int, int, int]:
    """Returns the version of the library; DistError if it is not found."""
    number = _C._nccl_version()
    return number // 10000, number // 100 % 100, number % 100


def serve(
    group: ProcessGroup,
    options: object = None,
    by: str = "nccl",
    takes_barriers: bool = True,
) -> None:
    """Lets `group` send arrays on CUDA devices through NCCL, or UCC, from now on.

    With `takes_barriers`, a barrier waits for the work on the devices' streams as well.
    """
    given = options if isinstance(options, NCCLOptions) else None
    fields = None
    if given is not None:
        fields = given.config.as_tuple(given.is_high_priority_stream)
    _C._device_serve(group, by, fields, takes_barriers)
    if given is not None:
        _given[group] = copy.deepcopy(given)


def options_of(group: ProcessGroup) -> NCCLOptions:
    """Returns a copy of the options with which `group` serves devices."""
    given = _given.get(group)
    return NCCLOptions() if given is None else copy.deepcopy(given)


def connect(group: ProcessGroup, device: object) -> None:
    """Makes the communicator now; `device` is 1, "cuda:1", or a torch.device."""
    _C._device_connect(group, index_of(device))


def index_of(device: object) -> int:
    """Returns the number of a CUDA device."""
    if isinstance(device, int):
        return device
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or not number.isdecimal():
        raise ValueError(
            "init_process_group device_id parameter must be an accelerator with an "
            f'index, such as "cuda:0", not {device!r}'
        )
    return int(number)


def default_timeout() -> timedelta:
    """Returns NCCL_TIMEOUT in seconds, or ten minutes."""
    seconds = os.environ.get("NCCL_TIMEOUT")
    return timedelta(seconds=float(seconds)) if seconds else DEFAULT_TIMEOUT


@contextmanager
def cuda_stream(stream: int | Any) -> Iterator[None]:
    """Orders the arrays of this thread by a CUDA stream, within a with statement.

    Use it for libraries that have no current stream; if a library has one, this stream
    replaces it. An argument `stream` of a call takes precedence.

    Args:
        stream: A cudaStream_t as a number, or an object that has it as `ptr`,
            `cuda_stream`, `handle` or `value`, or by `__cuda_stream__`.

    Example:
        >>> with dist.cuda_stream(0):  # the default stream
        ...     dist.barrier()
    """
    before = _C._set_cuda_stream(stream)
    try:
        yield
    finally:
        _C._set_cuda_stream(before)


@contextmanager
def batch(group: ProcessGroup, is_async: bool = False) -> Iterator[_CoalescingManager]:
    """Collects this thread's operations on devices in a block, and starts them together
    at its end."""
    from .coalescing import _CoalescingManager

    manager = _CoalescingManager()
    _C._batch_begin(group)
    try:
        yield manager
    except BaseException:
        # The exception of the body is more important.
        with suppress(DistError):
            _C._batch_end(group, True)
        raise
    manager.append(_C._batch_end(group, False))
    if not is_async:
        manager.wait()


NCCLOptions.__name__ = "Options"
NCCLOptions.__qualname__ = "ProcessGroupNCCL.Options"
for _public in (NCCLConfig, NCCLOptions, ProcessGroupNCCL, cuda_stream):
    _public.__module__ = "distlite"
