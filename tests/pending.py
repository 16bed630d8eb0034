# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous operations that are known not to have begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import distlite


def hold_back(pair: Sequence[distlite.ProcessGroup]) -> Callable[[], None]:
    """Holds back all later operations of the first of two groups, which are the ranks
    of one group, behind a barrier, until the result is called."""
    first = distlite.barrier(pair[0], async_op=True)

    def let_begin() -> None:
        distlite.barrier(pair[1])
        assert first is not None
        first.wait()

    return let_begin
