# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests that torch installs (torch.testing._internal) over one backend.

A process that has imported torch once, and has started no thread, is forked for each
rank of each test: importing torch anew takes longer than a test.  What torch's
decorators say of gloo decides which tests apply; the groups are then made with the
backend that is tested.  With "distlite alone" in place of a backend's name, the tests
call distlite's functions where they name those of torch.distributed.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
import types
import unittest
from collections.abc import Iterator
from typing import Any

# torch's tests read these as they are imported.
os.environ.update(BACKEND="gloo", WORLD_SIZE="4", TEMP_DIR="/tmp")
os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = "60"

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.testing._internal import common_distributed
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.distributed import (
    ddp_under_dist_autograd_test as under_autograd,
    distributed_test,
)
from torch.testing._internal.distributed.rpc import tensorpipe_rpc_agent_test_fixture

# torch leaves these out for gloo, which could not do all of them once.
# distlite can, so they are run.
RUN_ANYWAY = (
    *("test_all_to_all", "test_all_to_all_complex", "test_all_to_all_full_group"),
    *("test_all_to_all_group", "test_all_to_all_single_equal_split"),
    "test_all_to_all_single_equal_split_complex",
    "test_all_to_all_single_equal_split_full_group",
    "test_all_to_all_single_equal_split_group",
    "test_all_to_all_single_unequal_split",
    "test_all_to_all_single_unequal_split_complex",
    "test_all_to_all_single_unequal_split_full_group",
    "test_all_to_all_single_unequal_split_group",
    *("test_batch_isend_irecv_op_list_err", "test_broadcast_object_list"),
)
NEEDS_A_GPU = ("skip_if_lt_x_gpu", "skip_if_no_gpu")
# torch runs these with 8 ranks or more only.
NEEDS_EIGHT_RANKS = "skip_if_small_worldsize"


class Forked(MultiProcessTestCase):
    """Ranks are forked."""

    def setUp(self) -> None:
        super().setUp()
        fork = torch.multiprocessing.get_context("fork")
        self._start_processes(fork.Process)


class Distributed(
    Forked,
    distributed_test.TestDistBackend,
    distributed_test.DistributedTest._DistTestBase,
):
    """Collectives, messages, groups, DDP."""


class WithTensorPipe(tensorpipe_rpc_agent_test_fixture.TensorPipeRpcAgentTestFixture):
    """RPCs go through torch's own agent, beside the groups of the backend."""


class DdpUnderDistAutograd(
    WithTensorPipe, under_autograd.DdpUnderDistAutogradTest, Forked
):
    """DDP within a model that is spread by RPC."""


class DdpComparison(WithTensorPipe, under_autograd.DdpComparisonTest, Forked):
    """Gradients of DDP with distributed autograd and without."""


CLASSES = {
    each.__name__: each for each in (Distributed, DdpUnderDistAutograd, DdpComparison)
}


def run_anyway() -> None:
    """Takes the decorators that leave them out from the tests of RUN_ANYWAY."""
    for name in RUN_ANYWAY:
        test = inspect.unwrap(getattr(Distributed, name))
        # What torch.testing has skipped is the test itself, marked.
        vars(test).pop("__unittest_skip__", None)
        setattr(Distributed, name, test)


def is_of_torch_alone(name: str) -> bool:
    """Whether a test is of parts of torch that need its own groups, as DDP does."""
    source = source_of(Distributed, name)
    words = "DistributedDataParallel", "DDP", "ddp", "_compute_bucket"
    return any(word in source for word in words)


def source_of(kind: Any, name: str) -> str:
    """The text of a test with its decorators."""
    return inspect.getsource(inspect.unwrap(getattr(kind, name)))


def names_of(kind: Any) -> Iterator[str]:
    return (name for name in dir(kind) if name.startswith("test_"))


def catalogue() -> dict[str, str]:
    """Each test, as "Class.name", and why torch itself leaves it out: "" if it runs.

    Those that distlite can run alone are listed again, as "alone.name".
    """
    found = {}
    for kind in CLASSES.values():
        for name in names_of(kind):
            reason = ""
            if getattr(getattr(kind, name), "__unittest_skip__", False):
                reason = "torch: " + getattr(kind, name).__unittest_skip_why__
            elif any(each in source_of(kind, name) for each in NEEDS_A_GPU):
                reason = "needs a GPU"
            found[f"{kind.__name__}.{name}"] = reason
    for name in names_of(Distributed):
        if not found[f"Distributed.{name}"] and not is_of_torch_alone(name):
            found[f"alone.{name}"] = ""
    return found


class InPlace(types.ModuleType):
    """distlite, with what it does not have from torch.distributed."""

    def __getattr__(self, name: str) -> Any:
        import distlite

        return getattr(distlite if hasattr(distlite, name) else dist, name)


def use_alone() -> None:
    """Makes torch's tests call distlite."""
    from distlite import distributed_c10d

    in_place = InPlace("distlite in place of torch.distributed")
    distributed_test.dist = common_distributed.c10d = in_place
    for name, value in list(vars(distributed_test).items()):
        is_of_torch = getattr(dist.distributed_c10d, name, None) is value
        if is_of_torch and hasattr(distributed_c10d, name):
            setattr(distributed_test, name, getattr(distributed_c10d, name))


def use(backend: str) -> None:
    """Makes torch's tests use the backend, instead of gloo."""
    if backend == "gloo":
        return
    if backend == "distlite alone":
        use_alone()
        return
    import distlite.torch

    # Both are chosen by the backend's name in torch.
    dist.monitored_barrier = distlite.torch.monitored_barrier
    for each in (
        distributed_test.PROFILING_SUPPORTED_BACKENDS,
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
    ):
        each.append(backend)
    distributed_test.BACKEND = os.environ["BACKEND"] = backend
    init = dist.init_process_group

    def init_process_group(*args: Any, **named: Any) -> None:
        """Some tests name gloo and mean any backend."""
        assert named.pop("backend") in ("gloo", backend)
        init(backend, *args, **named)

    dist.init_process_group = init_process_group


def outcome_of(kind: Any, name: str) -> tuple[str, str]:
    """passed, skipped or failed, and why."""
    is_large = NEEDS_EIGHT_RANKS in source_of(kind, name)
    os.environ["WORLD_SIZE"] = "8" if is_large else "4"
    result = unittest.TestResult()
    try:
        kind(name).run(result)
    except Exception:
        return "failed", traceback.format_exc()
    if result.errors or result.failures:
        return "failed", (result.errors + result.failures)[0][1]
    return ("skipped", result.skipped[0][1]) if result.skipped else ("passed", "")


def main() -> None:
    """Prints the catalogue, or runs the tests that standard input names.

    Each is answered with a line of JSON; whatever the tests print goes to standard
    error.
    """
    run_anyway()
    if sys.argv[1] == "list":
        print(json.dumps(catalogue()))
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    use(sys.argv[1])
    for line in sys.stdin:
        kind, name = line.strip().split(".")
        tested = CLASSES.get(kind, Distributed)
        print(json.dumps(outcome_of(tested, name)), file=answers, flush=True)


if __name__ == "__main__":
    main()
