# SPDX-License-Identifier: BSD-3-Clause
"""The pytest plugin of distlite.testing: tests that run as several ranks.

    @pytest.mark.ranks(4)
    def test_total(rank):
        x = np.array([float(rank)])
        dist.all_reduce(x)
        assert x[0] == 6

The test runs as 4 processes with a default group, and fails with the traceback and the
output of each rank that failed.  `rank` and `world_size` are the rank's own; values of
other fixtures are pickled into the ranks.  Options of the mark: `timeout=60` seconds,
`backend="gloo"` (None: the test makes its group), `env={}`, and `threads=True` for
ranks that are threads of pytest's own process, which share the fixtures' values.

It is a module of its own, so that a run of pytest without such tests does not import
distlite.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distlite.testing import Outcome

OPTIONS = {"timeout": 60.0, "backend": "gloo", "env": None, "threads": False}


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line(
        "markers",
        "ranks(world_size, timeout=60, backend='gloo', env=None, threads=False): "
        "run the test as this number of ranks (distlite)",
    )


@pytest.fixture
def rank() -> int:
    """The rank of this process in a test marked with `ranks`; 0 in others."""
    return 0


@pytest.fixture
def world_size(request: pytest.FixtureRequest) -> int:
    """The number of ranks of the test; 1 without the mark `ranks`."""
    mark = request.node.get_closest_marker("ranks")
    return 1 if mark is None else _options_of(mark)[0]


def _options_of(mark: pytest.Mark) -> tuple[int, dict[str, Any]]:
    unknown = set(mark.kwargs) - set(OPTIONS)
    if len(mark.args) != 1 or not isinstance(mark.args[0], int) or unknown:
        pytest.fail(
            "@pytest.mark.ranks takes the number of ranks, then keyword options: "
            f"{', '.join(OPTIONS)}",
            pytrace=False,
        )
    return mark.args[0], {**OPTIONS, **mark.kwargs}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a marked test as its ranks."""
    mark = pyfuncitem.get_closest_marker("ranks")
    if mark is None:
        return None
    size, options = _options_of(mark)
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        # Calling a coroutine function would not run its body.
        pytest.fail(
            "@pytest.mark.ranks is for functions, not for coroutines: write a function "
            "that calls asyncio.run()",
            pytrace=False,
        )
    names = pyfuncitem._fixtureinfo.argnames
    values = {name: pyfuncitem.funcargs[name] for name in names if name != "rank"}
    run = _run_threads if options["threads"] else _run_processes
    _report(pyfuncitem, run(pyfuncitem, size, values, options))
    return True


def _run_threads(
    item: pytest.Function, size: int, values: dict[str, Any], options: dict[str, Any]
) -> list[Outcome]:
    from distlite import testing

    if options["env"]:
        pytest.fail(
            "@pytest.mark.ranks: env is not allowed with threads, which share "
            "one environment"
        )
    limits = {"timeout": options["timeout"], "backend": options["backend"]}
    with testing.world(size, **limits) as ranks:
        return ranks.outcomes(functools.partial(item.obj, **values))


def _run_processes(
    item: pytest.Function, size: int, values: dict[str, Any], options: dict[str, Any]
) -> list[Outcome]:
    from distlite import testing

    # A method is called on an object of its class, which each rank makes.
    function = getattr(item.obj, "__func__", item.obj)
    backend, env, timeout = (options[name] for name in ("backend", "env", "timeout"))
    values.pop("world_size", None)  # the ranks get it as a parameter
    words = (function, size, backend, env, None, timeout, values)
    with testing.Job(*words, rewrites=True) as job:
        return job.wait(timeout)


def _report(item: pytest.Function, outcomes: list[Outcome]) -> None:
    """Raises the failure or the skip of the test, if there is one."""
    from distlite import DistError
    from distlite.testing.processes import describe_failed

    for outcome in outcomes:
        if isinstance(outcome.exception, pytest.skip.Exception):
            outcome.skip_reason = str(outcome.exception)
        if outcome.is_good and outcome.output:
            sys.stdout.write(outcome.describe() + "\n")
    reasons = [each.skip_reason for each in outcomes if each.skip_reason is not None]
    # Other ranks may have failed only because the skipping one left.
    if reasons and all(
        each.is_good
        or each.skip_reason is not None
        or isinstance(each.exception, DistError)
        for each in outcomes
    ):
        pytest.skip(reasons[0])
    if failed := describe_failed(item.name, outcomes):
        pytest.fail(failed, pytrace=False)
