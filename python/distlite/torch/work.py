# SPDX-License-Identifier: BSD-3-Clause
"""The works of torch that stand for operations of distlite."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

import distlite
from distlite import futures

from .errors import as_torch

__all__ = ["ENDED", "EndedWork", "WorkDistlite"]

_OWN = timedelta(0)


class WorkDistlite(torch.distributed.Work):
    """An operation of distlite that torch waits for."""

    def __init__(self, work: distlite.Work):
        super().__init__()
        self._work = work

    def __repr__(self) -> str:
        return f"<distlite.torch.WorkDistlite: {self.__dict__.get('_work')!r}>"

    def wait(self, timeout: timedelta = _OWN) -> bool:
        """Waits and returns True once the operation has succeeded; raises its error."""
        try:
            self._work.wait(timeout)
        except distlite.DistError as error:
            raise as_torch(error) from error
        return True

    def synchronize(self) -> None:
        """Waits, as wait() does."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the operation has ended, with or without success."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Returns whether the operation has succeeded."""
        return self._work.is_success()

    def exception(self) -> BaseException | None:
        """Returns the exception of the operation, or None."""
        error = self._work.exception()
        return None if error is None else as_torch(error)

    def result(self) -> list[Any]:
        """The tensors that the operation has written."""
        return list(self._work.result())

    def source_rank(self) -> int:
        """Returns the rank in the group of a message's sender."""
        return self._work.source_rank()

    _source_rank = source_rank

    def _get_op_type(self) -> int:
        return self._work._get_op_type()

    def get_future(self) -> Any:
        """Returns a future of result().

        Hooks of DDP wait for a future inside a callback of another one. The callback
        runs on the thread of callbacks, which could then not complete the second
        future: there, the wait is for the operation itself.
        """
        if threading.current_thread() is futures._thread:
            self.wait()
        if self.is_success():
            return EndedWork(self.result()).get_future()
        begun: Any = torch.futures.Future()

        # A callback that raises makes a future that has failed in C++ as well, which
        # set_exception() would not.
        def take(_: Any) -> list[Any]:
            self.wait()
            return self.result()

        taken = begun.then(take)
        self._work.get_future().add_done_callback(lambda _: begun.set_result(None))
        return taken


class EndedWork(torch.distributed.Work):
    """An operation that has succeeded."""

    def __init__(self, outputs: list[Any] | None = None):
        super().__init__()
        self._outputs = [] if outputs is None else outputs

    def wait(self, timeout: timedelta = _OWN) -> bool:
        """True."""
        return True

    def synchronize(self) -> None:
        """Returns at once: the operation has ended."""

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> None:
        """None."""

    def result(self) -> list[Any]:
        """The tensors that the operation has written."""
        return self._outputs

    def get_future(self) -> Any:
        """Returns a future that is done."""
        future: Any = torch.futures.Future()
        future.set_result(self._outputs)
        return future


# The result for functions of torch that wait at once, and use nothing else of it.
ENDED = EndedWork()


def let_reducers_keep_works() -> None:
    """Makes DDP's reducer keep a work that Python hands to it, as `join()` does.

    The reducer, which is written in C++, keeps the part of the work that is torch's.
    The part in Python ends with its last reference there, and takes wait() with it.  A
    work that torch makes of the future has no part in Python.
    """
    reducer: Any = torch.distributed.Reducer
    take = reducer._set_forward_pass_work_handle

    def _set_forward_pass_work_handle(
        self: Any, work: Any, use_static_world_size: bool
    ) -> None:
        if isinstance(work, WorkDistlite | EndedWork):
            work = torch._C._distributed_c10d._create_work_from_future(
                work.get_future()
            )
        take(self, work, use_static_world_size)

    reducer._set_forward_pass_work_handle = _set_forward_pass_work_handle


let_reducers_keep_works()
