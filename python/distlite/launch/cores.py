# SPDX-License-Identifier: BSD-3-Clause
"""How many cores this process may use: affinity mask and cgroup quota, whichever is
tighter.  A container with a quota of two cores on a machine of 64 has two."""

from __future__ import annotations

import os
from collections.abc import Callable

CGROUP_ROOT = "/sys/fs/cgroup"


def usable_cores() -> int:
    """Returns the number of cores that this process may use, at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def gpu_count() -> int:
    """Returns the number of NVIDIA's GPUs that CUDA_VISIBLE_DEVICES makes visible."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return 0
    prefix = "nvidia"
    count = sum(n.startswith(prefix) and n[len(prefix) :].isdecimal() for n in names)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return count
    return min(count, len([name for name in shown.split(",") if name.strip()]))


def cgroup_quota(
    membership: str | os.PathLike[str] = "/proc/self/cgroup",
    root: str | os.PathLike[str] = CGROUP_ROOT,
) -> float | None:
    """Returns the tightest quota on the way from this process's cgroup to the root, in
    cores."""
    try:
        lines = _read(membership).splitlines()
    except OSError:
        return None
    mount = os.fspath(root)
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            quotas += _quotas_upwards(mount, path, _unified_quota)
        elif "cpu" in names:
            quotas += _quotas_upwards(f"{mount}/cpu", path, _legacy_quota)
            quotas += _quotas_upwards(f"{mount}/{controllers}", path, _legacy_quota)
    return min(quotas, default=None)


def _quotas_upwards(
    mount: str, path: str, read: Callable[[str], float | None]
) -> list[float]:
    # Inside a container the path may be the host's and not exist here: the root of the
    # mount is then this process's own group, so it is always read.
    parts = [part for part in path.split("/") if part]
    folders = ["/".join([mount, *parts[:i]]) for i in range(len(parts), -1, -1)]
    found = (read(folder) for folder in folders)
    return [quota for quota in found if quota is not None]


def _read(path: str | os.PathLike[str]) -> str:
    with open(path) as file:
        return file.read()


def _unified_quota(folder: str) -> float | None:
    try:
        quota, period = _read(f"{folder}/cpu.max").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _legacy_quota(folder: str) -> float | None:
    try:
        quota = int(_read(f"{folder}/cpu.cfs_quota_us"))
        period = int(_read(f"{folder}/cpu.cfs_period_us"))
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
