# SPDX-License-Identifier: BSD-3-Clause
"""What the launchers of clusters say about a process: Slurm's srun, and the mpirun or
mpiexec of Open MPI, MVAPICH, MPICH and Intel MPI.

Under `env://` this stands in where RANK is not set.  Slurm names the hosts of a job, so
its first one serves the store, on a port made of the job's number.  The others name no
hosts: ranks of one host meet through a file, and several hosts need MASTER_ADDR.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

from ._C import TCPStore

# Below the range of ephemeral ports.
FIRST_PORT, PORT_COUNT = 15000, 15000
LOOPBACK = "127.0.0.1"
POLL_INTERVAL = 0.01

# Rank, size, rank on the host, size on the host.  Slurm comes last: under it, an MPI's
# own helpers, whose environment its ranks inherit, are tasks of Slurm's.
LAUNCHERS = {
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MVAPICH": (
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
}

# Ports of the stores that this process serves, by rendezvous file: a second default
# group uses the first one's store.
_ports: dict[str, int] = {}


class Member:
    """One process of a job that such a launcher has started."""

    def __init__(self, launcher: str, environment: Mapping[str, str]) -> None:
        self.launcher = launcher
        self._environment = environment
        rank, size, local_rank, self._local_size = LAUNCHERS[launcher]
        self.variable = rank
        self.rank = self._number(rank)
        step = environment.get("SLURM_STEP_NUM_TASKS") if launcher == "Slurm" else ""
        self.world_size = int(step) if step else self._number(size)
        self.local_rank = int(environment.get(local_rank) or -1)

    def _number(self, name: str) -> int:
        text = self._environment.get(name, "")
        if not text.isdecimal():
            raise ValueError(
                f"{self.launcher} has set {self.variable}, and {name} must be a "
                f"number, but is {text!r}; correct it, or set RANK and WORLD_SIZE"
            )
        return int(text)

    def is_alone(self) -> bool:
        """Returns whether all ranks are known to be on this host."""
        if self.launcher == "Slurm":
            return len(expand(self._nodes())) == 1
        return self._environment.get(self._local_size) == str(self.world_size)

    def _nodes(self) -> str:
        names = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        return next((self._environment[n] for n in names if n in self._environment), "")

    def address(self) -> str | None:
        """Returns rank 0's address; None if the ranks are to meet through a file."""
        if self.launcher == "Slurm" and (nodes := expand(self._nodes())):
            return nodes[0] if len(nodes) > 1 else LOOPBACK
        if self.is_alone():
            return None
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: "
            f"{self.launcher} ({self.variable}) does not say where rank 0 of its "
            f"{self.world_size} ranks is; set MASTER_ADDR to that host and MASTER_PORT "
            "to a free port there, for all ranks"
        )

    def port(self) -> int | None:
        """Returns the store's port, which all ranks compute alike; None without a job
        number."""
        if self.launcher != "Slurm":
            return None
        job = self._environment.get("SLURM_JOB_ID", "")
        step = self._environment.get("SLURM_STEP_ID", "")
        numbers = [int(text) for text in (job, step) if text.isdecimal()]
        return FIRST_PORT + sum(numbers) % PORT_COUNT if numbers else None


def find_member(environment: Mapping[str, str] = os.environ) -> Member | None:
    """Returns this process's place in the job, if such a launcher has started it."""
    for launcher, names in LAUNCHERS.items():
        if environment.get(names[0]):
            return Member(launcher, environment)
    return None


def expand(hosts: str) -> list[str]:
    """Returns the names in a host list of Slurm, such as 'gpu[01-03,7]-ib,login'."""
    names: list[str] = []
    for item in _split(hosts):
        names += _expand_one(item)
    return names


def _split(text: str) -> list[str]:
    """Splits a host list at the commas outside of brackets."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    return [item for item in items if item]


def _expand_one(item: str) -> list[str]:
    before, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    ranges, _, after = rest.partition("]")
    numbers: list[str] = []
    for span in ranges.split(","):
        first, _, last = span.partition("-")
        width = len(first)
        numbers += [
            str(number).zfill(width)
            for number in range(int(first), int(last or first) + 1)
        ]
    return [before + number + end for number in numbers for end in _expand_one(after)]


def store_of_host(member: Member, timeout: timedelta, use_libuv: bool) -> TCPStore:
    """Returns the store of a job whose ranks are all on this host.

    Rank 0 serves it on any free port and writes the port to a file that is named after
    the job's launcher."""
    from ._C import TCPStore

    path = _rendezvous_file(member)
    size = member.world_size
    if member.rank != 0:
        port = _ports.get(path) or _read_port(path, member, timeout.total_seconds())
        _ports[path] = port
        return TCPStore(LOOPBACK, port, size, timeout=timeout, wait_for_workers=False)
    store = TCPStore(
        LOOPBACK,
        _ports.get(path, 0),
        size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
        use_libuv=use_libuv,
    )
    if path not in _ports:
        _ports[path] = store.port
        _write_port(path, store.port)
    return store


def _rendezvous_file(member: Member) -> str:
    # Named after the nearest ancestor that is not itself a rank: the launcher.
    pid = os.getppid()
    try:
        while pid > 1 and member.variable in environment_of(pid):
            pid = int(stat_of(pid)[1])
        started = stat_of(pid)[19]
    except OSError as error:
        raise ValueError(
            f"{member.launcher} ({member.variable}) does not say where rank 0 is, and "
            f"its own process cannot be inspected ({error}); set MASTER_ADDR and "
            "MASTER_PORT for all ranks"
        ) from None
    folder = os.environ.get("TMPDIR") or "/tmp"
    return f"{folder}/distlite-{os.geteuid()}-{pid}-{started}"


def environment_of(pid: int) -> dict[str, str]:
    """Returns the environment with which a process was started, or raises OSError."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    pairs = (entry.partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def stat_of(pid: int) -> list[str]:
    """Returns the fields of /proc/<pid>/stat, from the state on, or raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _write_port(path: str, port: int) -> None:
    import atexit
    import contextlib

    # The rename makes the file appear complete; a symbolic link of that name, which
    # another user may have made, is not followed.
    draft = f"{path}-{os.getpid()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w") as file:
        file.write(str(port))
    os.rename(draft, path)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.unlink(path)

    atexit.register(remove)


def _read_port(path: str, member: Member, seconds: float) -> int:
    import time

    from ._C import DistStoreError

    deadline = time.monotonic() + seconds
    while True:
        try:
            if os.stat(path, follow_symlinks=False).st_uid == os.geteuid():
                with open(path) as file:
                    return int(file.read())
        except FileNotFoundError:
            pass
        if seconds >= 0 and time.monotonic() > deadline:
            raise DistStoreError(
                f"rank {member.rank} of {member.world_size} ({member.launcher}) waited "
                f"{seconds:g} s for rank 0, which has not opened the job's store "
                f"(it would say so in {path})"
            )
        time.sleep(POLL_INTERVAL)
