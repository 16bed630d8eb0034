# SPDX-License-Identifier: BSD-3-Clause
"""How many cores a job may use, from the files of control groups."""

import os

import pytest

from distlite.launch.cores import cgroup_quota, usable_cores


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_there_is_at_least_one_core_and_no_more_than_allowed():
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("inner", "outer", "cores"),
    [
        ("max 100000", "max 100000", None),
        ("150000 100000", "max 100000", 1.5),
        ("800000 100000", "200000 100000", 2.0),
        ("nonsense", "300000 100000", 3.0),
    ],
)
def test_the_tightest_quota_on_the_way_up_counts(tmp_path, inner, outer, cores):
    membership = tmp_path / "membership"
    membership.write_text("0::/jobs/ours\n")
    write(tmp_path / "root/jobs/ours/cpu.max", inner + "\n")
    write(tmp_path / "root/jobs/cpu.max", outer + "\n")
    assert cgroup_quota(membership, tmp_path / "root") == cores


def test_a_path_of_the_host_means_the_root_in_a_container(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("0::/not/visible/here\n")
    write(tmp_path / "root/cpu.max", "400000 100000\n")
    assert cgroup_quota(membership, tmp_path / "root") == 4.0


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cgroup_quota(tmp_path / "absent", tmp_path) is None
