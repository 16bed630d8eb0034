# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over the backend that distlite.torch registers, beside gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch_backend_ranks as programs

# All programs run within the first test; the compiler alone takes long to import.
pytestmark = pytest.mark.limit(300)

RANKS = Path(programs.__file__)
# Their results do not depend on the order in which three numbers are added.
EXACT = (
    *("blocks", "messages", "objects", "groups", "functional", "works_and_futures"),
    *("coalesced", "leaves_and_sparse", "scripted_object", "differentiable"),
    "methods_by_name",
)


def run_ranks(folder: Path, size: int, *only: str) -> list[dict[str, Any]]:
    """What each rank computed: {backend: {program: result}}."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANKS), str(folder), str(rank), str(size), *only],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [rank.communicate(timeout=280)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * size, "\n".join(said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(tmp_path_factory.mktemp("three"), 3, *EXACT)


def assert_equal(ranks: list[dict[str, Any]], name: str) -> None:
    for found in ranks:
        assert "Traceback" not in str(found["gloo"][name])
        assert found["distlite"][name] == found["gloo"][name]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_two_ranks_compute_what_they_compute_with_gloo(two, name: str):
    assert_equal(two, name)


@pytest.mark.parametrize("name", EXACT)
def test_three_ranks_compute_what_they_compute_with_gloo(three, name: str):
    assert_equal(three, name)


def own(ranks: list[dict[str, Any]], name: str) -> list[list[Any]]:
    """The results of a program of distlite's, by rank."""
    return [found["distlite"][name] for found in ranks]


def test_the_group_has_the_names_that_torch_gives_it(two):
    for found in own(two, "names"):
        assert found[:4] == ["distlite", "cpu:distlite", "distlite", "0"]
        assert found[4] != "0"
        assert found[5:] == ["two", ["cpu"], ["distlite", True], True]


def test_split_group_is_called_by_its_ranks_alone(two):
    expected = [[1, f"half{rank}", True, 0.0, 0.0] for rank in range(2)]
    assert own(two, "split") == expected


def test_methods_take_all_forms_of_their_arguments(two):
    expected = [
        *(None, 15.0, 14.0, 21.0, 14.0, 21.0),
        *(1.0, 8.0, 14.0, 21.0, 7.5, 14.5),
    ]
    assert own(two, "methods") == [expected] * 2


def test_differing_calls_are_told_on_both_ranks(two):
    for is_both, text in own(two, "differing_calls"):
        assert is_both
        assert "all_reduce" in text and "broadcast" in text


def test_a_root_that_leaves_first_learns_of_a_differing_call(two):
    for (text,) in own(two, "destroyed_ahead_of_others"):
        assert "rank 0 called broadcast(5 x float32" in text
        assert "rank 1 called broadcast(4 x float32" in text


def test_mistakes_with_sparse_tensors_are_told(two):
    for rank, (shapes, several) in enumerate(own(two, "sparse_mistakes")):
        assert f"do not match: rank {rank} in group" in shapes
        assert f"shape {(2 + rank,) * 2} with 2" in shapes
        assert shapes.endswith(f"are on ranks {[1 - rank]}")
        assert "several sparse tensors" in several


def test_a_timeout_names_the_rank_that_did_not_come(two):
    found, _ = own(two, "timeouts")
    assert found[0] == "DistBackendError"
    for text in (found[1], found[3], found[6]):
        assert "timed out after 500ms" in text
        assert "rank 1" in text
    assert found[4:6] == [True, False]


def test_monitored_barrier_names_the_rank_that_is_absent(two):
    (text,), others = own(two, "monitored")
    assert "1" in text and "monitored" in text.lower()
    assert others == []


def test_abort_ends_operations(two):
    (text,), _ = own(two, "aborted")
    assert "abort" in text


def test_a_step_of_ddp_that_fails_names_the_rank(two):
    (text,), _ = own(two, "failed_ddp_step")
    assert "timed out" in text and "rank 1" in text


def test_other_devices_have_backends_of_torch(two):
    for found in own(two, "other_devices"):
        assert found[0] == ["cpu", "cuda"]
        assert found[1:3] == ["ProcessGroupDistlite", "ProcessGroupGloo"]
        assert "No backend type associated with device type meta" in found[3]
        assert found[4:] == [15.0, 29.0]


def test_a_negated_view_is_refused(two):
    for (text,) in own(two, "negated_view"):
        assert "resolve_conj()" in text


def test_distlite_alone_does_not_import_torch():
    code = "import distlite, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
