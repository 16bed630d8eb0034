# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of one job on this host: what each of them does, and which ranks it waits
for.

The ranks are not asked. A collective waits for the members of its group that have begun
fewer collectives in it, by their recordings; a message waits for its peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from distlite import _C
from distlite.tools.recording import Group, Operation, Recording

GONE = "gone"


@dataclass(frozen=True)
class Awaited:
    """A rank that an operation waits for."""

    rank: int | None  # in the job; None: not known here
    group_rank: int
    state: str  # of its process; "unseen": it has no recording on this host

    def __str__(self) -> str:
        name = f"rank {self.rank}"
        if self.rank is None:
            name = f"rank {self.group_rank} of the group"
        return name if self.state == "running" else f"{name} ({self.state})"


@dataclass
class Member:
    """One process of the job."""

    recording: Recording
    state: str

    @property
    def rank(self) -> int | None:
        """The rank in the job; without a default group, that in the process's first
        group."""
        if self.recording.rank is None and self.recording.groups:
            return self.recording.groups[0].rank
        return self.recording.rank


class Job:
    """Processes of one job, by rank."""

    def __init__(
        self,
        recordings: Iterable[Recording],
        state_of: Callable[[Recording], str] = Recording.process_state,
    ) -> None:
        members = [Member(r, state_of(r)) for r in recordings]
        members.sort(key=lambda m: (m.rank is None, m.rank or 0, m.recording.pid))
        self.members = members
        self._seats: dict[tuple[str, bool, int], tuple[Member, Group]] = {}
        for member in members:
            for group in member.recording.groups:
                self._seat_member(member, group)

    def _seat_member(self, member: Member, group: Group) -> None:
        key = (group.name, group.is_on_device, group.rank)
        held = self._seats.get(key)
        # Groups that are made again have the same names; the last one counts.
        if held is None or (group.is_open, group.serial) >= (
            held[1].is_open,
            held[1].serial,
        ):
            self._seats[key] = (member, group)

    @property
    def name(self) -> str:
        """The random name of the job; empty without a default group."""
        return self.members[0].recording.job

    @property
    def size(self) -> int | None:
        """The number of ranks of the whole job, on all hosts."""
        sizes = [m.recording.size for m in self.members if m.recording.size]
        return max(sizes, default=None)

    def is_alive(self) -> bool:
        """Returns whether any of its processes on this host is running."""
        return any(member.state != GONE for member in self.members)

    def unseen(self) -> list[int]:
        """Returns the ranks without a recording here: on other hosts, or after a normal
        end."""
        seen = {member.rank for member in self.members}
        return [rank for rank in range(self.size or 0) if rank not in seen]

    def waits_for(self, operation: Operation) -> list[Awaited]:
        """Returns the ranks that an operation waits for; empty if all have begun it."""
        group = operation.group
        if group is None or operation.state != "running":
            return []
        if operation.is_message:
            ranks = [] if operation.root is None else [operation.root]
            return [self._awaited(group, rank) for rank in ranks]
        others = [rank for rank in range(group.size) if rank != group.rank]
        return [
            self._awaited(group, rank)
            for rank in others
            if self._is_behind(group, rank, operation.sequence or 0)
        ]

    def _is_behind(self, group: Group, rank: int, sequence: int) -> bool:
        seat = self._seats.get((group.name, group.is_on_device, rank))
        return seat is not None and seat[1].begun < sequence

    def _awaited(self, group: Group, rank: int) -> Awaited:
        seat = self._seats.get((group.name, group.is_on_device, rank))
        if seat is None:
            return Awaited(None, rank, "unseen")
        member, its_group = seat
        state = member.state
        if state == "running" and not its_group.is_open:
            state = "left the group"
        return Awaited(member.rank, rank, state)


def jobs_of(recordings: Sequence[Recording]) -> list[Job]:
    """Returns the jobs of some recordings, in the order in which they began."""
    by_name: dict[str, list[Recording]] = {}
    for recording in recordings:
        name = recording.job or f"process {recording.pid}"
        by_name.setdefault(name, []).append(recording)
    groups = sorted(by_name.values(), key=lambda job: min(r.created for r in job))
    return [Job(group) for group in groups]


def none_found(jobs: Iterable[Job], name: str | None) -> str:
    """Explains why none of `jobs` has a name that begins with `name`."""
    names = ", ".join(job.name or "a job without a default group" for job in jobs)
    if name and names:
        return f"no job here has a name that begins with {name!r}; jobs are: {names}"
    folders = ", ".join(_C._recording_folders())
    return f"no ranks of this user run on this host (looked in {folders})"
