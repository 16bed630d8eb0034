# SPDX-License-Identifier: BSD-3-Clause
"""distlite.testing's ranks as processes, as our own tests want them.

Functions make their group themselves, of `rank`, `world_size` and, where they take it,
`init_method`; `hosts`, by rank, are where they run (see netns.py).

A module that ranks import pays for its imports in each of them: functions that many
tests run lie best in a module that does not import pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distlite.testing import Job, Outcome as Outcome, RanksFailed as RanksFailed
from distlite.testing.processes import check_outcomes

if TYPE_CHECKING:
    from netns import Host

# Seconds: more than an operation of some milliseconds takes on a busy machine, and less
# than a group's timeout, which is a minute in tests.
SOON = 5.0


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    hosts: Sequence[Host] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """What `function(rank, world_size, **kwargs)` returned, by rank."""
    with _start(function, world_size, env, hosts, kwargs) as job:
        outcomes = job.wait(timeout, is_ended_by_failure=True)
    check_outcomes(function, outcomes)
    return [outcome.value for outcome in outcomes]


def rank_outcomes(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    hosts: Sequence[Host] | None = None,
    **kwargs: Any,
) -> list[Outcome]:
    """Like run_ranks, where some ranks are meant to fail: what became of each rank."""
    with _start(function, world_size, env, hosts, kwargs) as job:
        return job.wait(timeout)


def _start(
    function: Callable[..., Any],
    world_size: int,
    env: dict[str, str] | None,
    hosts: Sequence[Host] | None,
    kwargs: dict[str, Any],
) -> Job:
    """Arguments of the function may have any names."""
    wrap = None if hosts is None else [host.command for host in hosts]
    return Job(function, world_size, None, env, wrap, None, kwargs)
