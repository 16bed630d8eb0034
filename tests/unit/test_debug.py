# SPDX-License-Identifier: BSD-3-Clause
"""The debug level, and monitored_barrier where there is nobody to wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta

import pytest

import distlite as dist


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = dist.get_debug_level()
    yield
    dist.set_debug_level(before)


def test_levels_have_torchs_values_and_looks():
    assert [(level.name, level.value, int(level)) for level in dist.DebugLevel] == [
        ("OFF", 0, 0),
        ("INFO", 1, 1),
        ("DETAIL", 2, 2),
    ]
    assert repr(dist.DebugLevel.INFO) == "<DebugLevel.INFO: 1>"


def test_a_level_can_be_set():
    for level in dist.DebugLevel:
        dist.set_debug_level(level)
        assert dist.get_debug_level() is level


@pytest.mark.parametrize("wrong", [1, "INFO", None])
def test_only_a_level_can_be_set(wrong):
    with pytest.raises(TypeError, match="level must be a DebugLevel"):
        dist.set_debug_level(wrong)


def test_the_environment_is_read_in_any_case(monkeypatch):
    for word, level in [("detail", "DETAIL"), ("Info", "INFO"), ("OFF", "OFF")]:
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", word)
        dist.set_debug_level_from_env()
        assert dist.get_debug_level().name == level
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG")
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.OFF


@pytest.mark.parametrize("wrong", ["", "2", "verbose"])
def test_a_wrong_word_changes_nothing(monkeypatch, wrong):
    dist.set_debug_level(dist.DebugLevel.INFO)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", wrong)
    with pytest.raises(ValueError, match="must be OFF, INFO, or DETAIL."):
        dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.INFO


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_environment_is_read_at_import():
    code = (
        "import distlite as dist, sys; print(dist.get_debug_level());"
        "print([name for name in ('logging', 'pdb') if name in sys.modules])"
    )
    done = run_python(code, TORCH_DISTRIBUTED_DEBUG="info", TORCH_CPP_LOG_LEVEL="INFO")
    assert done.stdout == "DebugLevel.INFO\n[]\n"
    done = run_python("import distlite", TORCH_DISTRIBUTED_DEBUG="2")
    assert done.returncode == 1
    assert "ValueError: The value of TORCH_DISTRIBUTED_DEBUG must be" in done.stderr


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_one_rank_passes_a_monitored_barrier(alone):
    assert dist.monitored_barrier() is None
    assert dist.monitored_barrier(alone, timedelta(seconds=1), True) is None
    assert dist.monitored_barrier(timeout=0.5, wait_all_ranks=False) is None


def test_arguments_of_a_monitored_barrier_are_checked(alone):
    with pytest.raises(TypeError, match="timeout"):
        dist.monitored_barrier(timeout="soon")
    with pytest.raises(TypeError, match="wait_all_ranks"):
        dist.monitored_barrier(wait_all_ranks="yes")
    with pytest.raises(ValueError, match="is not initialized in the world group map"):
        dist.monitored_barrier(5)


def test_monitored_barrier_needs_a_group():
    with pytest.raises(ValueError, match="Default process group has not been init"):
        dist.monitored_barrier()


def test_outsiders_are_warned(alone):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dist.monitored_barrier(dist.GroupMember.NON_GROUP_MEMBER) is None
    assert "Running monitored_barrier on global rank 0" in str(caught[0].message)


def test_a_group_of_one_works_at_detail():
    import numpy as np

    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        data = np.ones(3)
        dist.all_reduce(data)
        assert data.tolist() == [1, 1, 1]
        assert dist.all_reduce(data, async_op=True).wait()
    finally:
        dist.destroy_process_group()


def test_a_fake_group_has_nobody_to_compare_with():
    import numpy as np

    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.ProcessGroup(dist.HashStore(), 1, 8, backend="fake")
    dist.all_reduce(np.ones(3), group=group)
    dist.monitored_barrier(group)
    group.shutdown()
