# SPDX-License-Identifier: BSD-3-Clause
"""How many cores this process may use: affinity mask and cgroup quota, whichever is
tighter.  A container with a quota of two cores on a machine of 64 has two."""

from __future__ import annotations

import os

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
        lines = read_text(membership).splitlines()
    except OSError:
        return None
    # The older kind of control groups has lines with names of controllers.
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    parts = [part for part in path.split("/") if part]
    # Inside a container the path may be the host's and not exist here: the root of the
    # mount is then this process's own group, so it is always read.
    folders = ["/".join([os.fspath(root), *parts[:i]]) for i in range(len(parts) + 1)]
    found = (_quota_in(folder) for folder in folders)
    return min((quota for quota in found if quota is not None), default=None)


def _quota_in(folder: str) -> float | None:
    try:
        quota, period = read_text(f"{folder}/cpu.max").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def read_text(path: str | os.PathLike[str]) -> str:
    """Returns the contents of a file of the kernel."""
    with open(path) as file:
        return file.read()
