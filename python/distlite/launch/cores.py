# SPDX-License-Identifier: BSD-3-Clause
"""How many cores this process may use: affinity mask and cgroup quota, whichever is
tighter.  A container with a quota of two cores on a machine of 64 has two."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

CGROUP_ROOT = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """At least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def cgroup_quota(
    membership: Path = Path("/proc/self/cgroup"), root: Path = CGROUP_ROOT
) -> float | None:
    """The tightest quota on the way from our cgroup to the root, in cores."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            quotas += _quotas_upwards(root, path, _unified_quota)
        elif "cpu" in names:
            quotas += _quotas_upwards(root / "cpu", path, _legacy_quota)
            quotas += _quotas_upwards(root / controllers, path, _legacy_quota)
    return min(quotas, default=None)


def _quotas_upwards(
    mount: Path, path: str, read: Callable[[Path], float | None]
) -> list[float]:
    # Inside a container the path may be the host's and not exist here: the root of
    # the mount, which is our own group then, is looked at in any case.
    relative = PurePosixPath(path.lstrip("/"))
    folders = [mount / relative, *(mount / parent for parent in relative.parents)]
    found = (read(folder) for folder in folders)
    return [quota for quota in found if quota is not None]


def _unified_quota(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _legacy_quota(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
