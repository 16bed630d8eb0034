# SPDX-License-Identifier: BSD-3-Clause
"""UCC with a stand-in for the library; TEST_UCC_LIBRARY names the real one instead."""

import os
import re

import pytest
import ucc_ranks
from doubles_build import nccl_doubles, ucc_double
from workers import SOON, rank_outcomes, run_ranks

import distlite

REAL = os.environ.get("TEST_UCC_LIBRARY")
GONE = "exited or was killed|exited, was killed, or left"
no_real = pytest.mark.skipif(
    REAL is not None, reason="only the stand-in can be stalled"
)


def library(**settings: object) -> dict[str, str]:
    given = {name: str(value) for name, value in settings.items()}
    return {"DISTLITE_UCC_LIBRARY": REAL, **given} if REAL else ucc_double(**settings)


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_everything(world_size):
    results = run_ranks(ucc_ranks.everything, world_size, env=library())
    assert results == [[]] * world_size


def test_windows():
    first, second = run_ranks(ucc_ranks.windows, 2, env=library())
    for part in (slice(50), slice(50, None)):
        assert sorted(first[part] + second[part]) == list(range(100))


def test_ranks_that_differ_or_are_late():
    found = run_ranks(ucc_ranks.failures, 2, env=library())
    calls = {
        "call": ("all_reduce(3 x float64, SUM)", "broadcast(3 x float64, from rank 1)"),
        "op": ("all_reduce(3 x float64, SUM)", "all_reduce(3 x float64, MAX)"),
        "root": (
            "broadcast(3 x float64, from rank 0)",
            "broadcast(3 x float64, from rank 1)",
        ),
        "sizes": ("rank 0 has 2 x float64 for rank 1, which expects 1 x float64",),
        "blocks": ("rank 1 has 3 x float64 for rank 0, which expects 2 x float64",),
    }
    for said in found:
        for name, texts in calls.items():
            assert said[name].startswith("DistBackendError: ")
            assert all(text in said[name] for text in texts), said[name]
            assert texts[0] in said[f"{name} again"]
            assert said[f"{name} took"] < SOON
        assert said["BAND"] == (
            "ValueError: all_reduce does not support BAND of float64, only of integers "
            "and bool"
        )
        assert said["AVG"].startswith("ValueError: AVG of int64")
        assert said["whole"] == said["then"] == [2.0] * 3
    first, second = (said["late"] for said in found)
    assert first.startswith("DistBackendError: all_reduce #1 in group ")
    assert "timed out after 400ms: waiting for rank 1" in first
    assert "timed out after 400ms: waiting for rank 1" in second


@no_real
def test_an_operation_that_ucc_does_not_complete():
    first, second = run_ranks(ucc_ranks.stuck, 2, env=library())
    text = "all_reduce #2 timed out after 400ms in group 0, rank 0 of 2"
    assert first["stuck"].startswith(f"DistBackendError: {text}")
    assert text in first["again"]
    assert "all_reduce #2 cannot end in group 0, rank 1 of 2" in second["stuck"]
    assert text in second["stuck"]
    for said in (first, second):
        assert "that is stuck in UCC, which breaks all groups" in said["shared"]


@no_real
def test_what_was_given_up_is_not_driven_by_other_groups():
    first, second, third = run_ranks(ucc_ranks.given_up_beside, 3, env=library())
    assert "all_reduce #1 timed out after 300ms in group " in first["stuck"]
    assert "all_reduce #1 timed out after 300ms in group " in second["stuck"]
    assert "that is stuck in UCC, which breaks all groups" in first["late"]
    assert "that is stuck in UCC, which breaks all groups" in third["late"]
    assert first["driven"] is False


@no_real
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_rank_that_leaves_in_order_is_not_lost(is_alone):
    """On the same host, or on another one."""
    found = run_ranks(
        ucc_ranks.outlast_a_rank_that_leaves, 2, env=library(), is_alone=is_alone
    )
    assert found == [[1.0] * 3] * 2


@no_real
@pytest.mark.parametrize(
    "case", ["beside others", "alone", pytest.param("cut", marks=pytest.mark.slow)]
)
def test_a_rank_that_dies(tmp_path, case):
    """On a host with others, on one of its own, or such that UCC itself fails."""
    outcomes = rank_outcomes(
        ucc_ranks.survive_lost_rank, 3, env=library(), path=str(tmp_path), case=case
    )
    assert outcomes[1].returncode == -9
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.is_good, outcome.describe()
        said = outcome.value
        assert "all_reduce #2 cannot end in group 0" in said["inside"]
        assert "rank 1 (pid" in said["inside"]
        assert re.search(GONE, said["inside"])
        assert "rank 1 (pid" in said["between"]
        assert re.search(GONE, said["between"])
        assert said["took"] < SOON
        assert "that is stuck in UCC, which breaks all groups" in said["others"]
        assert said["left in"] < SOON


@pytest.mark.slow
@no_real
def test_groups_with_contexts_of_their_own():
    env = library(TORCH_UCC_SHARED_COMM=0)
    first, second = run_ranks(ucc_ranks.separate, 2, env=env)
    assert "all_reduce #2 timed out after 300ms" in first.pop("stuck")
    assert "all_reduce #2 timed out after 300ms" in second.pop("stuck")
    assert first == second == {"then": "2.0"}


@pytest.mark.slow
def test_nccl_beside_it_serves_devices():
    env = {**nccl_doubles(), **library()}
    found = run_ranks(ucc_ranks.beside_nccl, 2, env=env)
    assert found == [[[2.0] * 3, [4.0] * 3]] * 2


@pytest.mark.slow
def test_abort_frees_the_one_who_waits():
    first, _ = run_ranks(ucc_ranks.aborted, 2, env=library())
    text = "DistBackendError: group 0 was aborted: abort() was called"
    assert first == {"abort": text, "again": text}


@pytest.mark.slow
def test_an_interrupt():
    first, _ = run_ranks(ucc_ranks.interrupted, 2, env=library())
    assert first == "interrupted True"


@pytest.mark.slow
def test_a_rank_that_does_not_come():
    first, _ = run_ranks(ucc_ranks.absent, 2, env=library())
    assert "timed out after 400ms: waiting for rank 1, which has not joined" in first


def test_how_the_library_is_called():
    for found in run_ranks(ucc_ranks.settings, 2, env=ucc_double()):
        assert found == {
            **{"prefix": "TORCH", "threads": 2, "contexts": 1, "teams": 2},
            "settings": "TLS=self,ucp;CLS=basic;TL_UCP_TUNE=allreduce:0-4k:@0;"
            "LOG_LEVEL=fatal;LOG_FILE=/tmp/ucc.log;CONFIG_FILE=/etc/ucc.conf;",
            **{"contexts left": 0, "teams left": 0},
            "refused": "ValueError: ucc supports cpu and cuda memory only, not xpu; "
            'for arrays on devices use "cpu:ucc,cuda:nccl"',
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "at", "text"),
    [
        ("init", 0, "UCC failed in ucc_init: Memory failure (-4)"),
        ("context", 0, "UCC failed in ucc_context_create: Memory failure (-4)"),
        ("team", 0, "UCC failed in ucc_team_create_post: Memory failure (-4)"),
        ("collective", 2, "all_reduce: Operation is not supported in UCC 1.3"),
        ("post", 2, "UCC failed in all_reduce: Memory failure (-4)"),
        ("request", 2, "UCC failed in all_reduce: Timeout expired (-8)"),
    ],
)
def test_errors_have_ucc_s_names(where, at, text):
    env = ucc_double(DOUBLE_UCC_FAIL=where)
    for found in run_ranks(ucc_ranks.injured, 2, env=env):
        assert text in found[at]
        assert all(said == "no error" for said in found[:at])


@pytest.mark.parametrize(
    ("where", "is_new", "is_shared", "is_alone"),
    [
        ("init", False, True, False),
        ("context", False, True, False),
        ("context", False, True, True),
        ("team", False, True, False),
        ("team", True, True, True),
        ("team", True, False, False),
    ],
)
def test_who_cannot_make_the_group_tells_the_others(where, is_new, is_shared, is_alone):
    """And nobody waits for the others then, also not to leave; on one host, or with
    each rank on its own."""
    env = ucc_double(TORCH_UCC_SHARED_COMM=int(is_shared))
    found = run_ranks(
        ucc_ranks.refused, 3, env=env, where=where, is_new=is_new, is_alone=is_alone
    )
    for rank, (said, took) in enumerate(found):
        assert "Memory failure (-4)" in said, found
        told = re.search("rank 1 .*could not make the group: ", said)
        assert rank == 1 or told, found
        assert took < SOON


@no_real
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_rank_that_cannot_begin_an_operation_tells_those_that_have(is_alone):
    first, second = run_ranks(
        ucc_ranks.unsupported, 2, env=library(), is_alike=False, is_alone=is_alone
    )
    assert "Operation is not supported in UCC" in second["said"]
    assert "all_reduce #2 cannot end in group 0" in first["said"]
    assert re.search("rank 1 .* gave up .* not supported in UCC", first["said"])
    assert first["took"] < SOON


@no_real
def test_an_operation_that_no_rank_can_begin_breaks_the_group():
    found = run_ranks(ucc_ranks.unsupported, 2, env=library(), is_alike=True)
    for said in found:
        assert "all_reduce" in said["said"], found
        assert "Operation is not supported in UCC" in said["said"], found
        assert said["then"].startswith("DistBackendError: group 0 is broken: "), found
        assert "Operation is not supported in UCC" in said["then"], found
        assert said["took"] < SOON


@no_real
def test_ranks_with_other_versions_of_the_library():
    found = run_ranks(ucc_ranks.versions, 3, env=library())
    assert "rank 1 does not send 1 bytes to join the UCC context, as rank 0" in found[0]
    for said in found:
        assert "check that all ranks have the same version of the library" in said


@pytest.mark.parametrize("size", [2, 16])
def test_the_store_has_no_more_of_a_group_than_with_gloo(monkeypatch, size):
    """Addresses go over messages of the CPU backend; nothing stays in the store."""
    monkeypatch.setenv("DISTLITE_STORE_UNIX", "0")
    keys = {}
    with distlite.TCPStore("127.0.0.1", 0, is_master=True) as store:
        for backend in ("gloo", "ucc"):
            found = run_ranks(
                ucc_ranks.store_traffic,
                size,
                env=library(),
                port=store.port,
                prefix=backend,
                backend=backend,
            )
            for joining, then in found:
                assert joining[0] < 20 and joining[1] < 2_500
                assert then == (0, 0)
            start = f"{backend}/"
            own = [key for key in store.list_keys() if key.startswith(start)]
            keys[backend] = sorted(key.removeprefix(start) for key in own)
    assert keys["ucc"] == keys["gloo"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("-DANCIENT", "lacks the symbol ucc_collective_post"),
        ("-DNEXT", "is 2.3, but only 1.x is known; install UCC with apt"),
        (None, "DISTLITE_UCC_LIBRARY=/nowhere/libucc.so.1"),
    ],
)
def test_libraries_that_will_not_do(flag, text):
    env = {"DISTLITE_UCC_LIBRARY": "/nowhere/libucc.so.1"}
    found = run_ranks(ucc_ranks.injured, 1, env=ucc_double(flag) if flag else env)
    said = found[0][0]
    assert said.startswith("AssertionError: Unknown c10d backend type UCC; ")
    assert text in said


@pytest.mark.slow
def test_a_library_that_does_not_tell_its_version():
    assert run_ranks(ucc_ranks.injured, 1, env=ucc_double("-DOLD")) == [
        ["no error"] * 4
    ]


def test_arrays_on_devices_are_copied():
    cuda = nccl_doubles()["DISTLITE_CUDART_LIBRARY"]
    env = {"DISTLITE_CUDART_LIBRARY": cuda, **ucc_double()}
    assert run_ranks(ucc_ranks.on_devices, 2, env=env) == [[], []]
