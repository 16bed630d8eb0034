# SPDX-License-Identifier: BSD-3-Clause
"""Reads the contents of a process's recorder (csrc/pg/record/recording.h) as
objects."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distlite import _C
from distlite.cluster import stat_of
from distlite.launch.errors import names_in

HEADER = struct.Struct("=Q16sQQQQqQQqqqQqq48s64s144s")
RECORD = struct.Struct("=QqqqqQII BBBBi")
GROUP = struct.Struct("=QQQqIIQ16s64s")
SITE = struct.Struct("=QQ64s176s")
WAIT = struct.Struct("=QqQ104s")
_Row = tuple[int, ...]

# By their numbers in the recording: operations, with whether they reduce; dtypes, with
# their sizes; reductions; how operations end.
OPS, DTYPES, REDUCE_OPS, STATUSES = _C._recording_names()
MESSAGES = ("send", "recv", "recv_any")
ROOTS = {
    "broadcast": "from",
    "reduce": "to",
    "gather": "to",
    "gather_v": "to",
    "scatter": "from",
    "scatter_v": "from",
    "send": "to",
    "recv": "from",
    "broadcast_object_list": "from",
    "gather_object": "to",
    "scatter_object_list": "from",
}
WITHOUT_DATA = (*("barrier", "window"), *(name for name, _ in OPS if "object" in name))
PF_EXITING = 4  # a flag of the kernel in /proc/<pid>/stat, see proc(5)
STATES = {1: "queued", 2: "running", 3: "ended"}


@dataclass(frozen=True)
class Site:
    """A line of the program."""

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


@dataclass
class Group:
    """A group that the process is or was in; `rank` is the process's rank in it.

    A group that serves arrays on devices is there twice, once for the CPU and once for
    the devices, because they count their operations separately.
    """

    serial: int
    name: str
    backend: str
    rank: int
    size: int
    is_open: bool
    begun: int  # collectives
    last_ended: int  # nanoseconds on the monotonic clock; 0 if none has ended

    @property
    def is_on_device(self) -> bool:
        """Returns whether this is the entry for arrays on devices."""
        return self.backend == "nccl"


@dataclass
class Operation:
    """One operation; times are nanoseconds on the monotonic clock, 0: not yet."""

    op: str
    group: Group | None  # None: closed long ago
    state: str  # queued, running, ended
    status: str  # ok, timeout, ...: of one that has ended
    sequence: int | None  # None for messages, and while queued
    tag: int | None  # of messages
    root: int | None  # rank in the group: the root, or a message's peer
    count: int
    dtype: str
    item_size: int
    reduce_op: str | None
    queued: int
    started: int
    ended: int
    site: Site | None

    @property
    def is_message(self) -> bool:
        """Returns whether the operation is a message between two ranks, and not a
        collective."""
        return self.op in MESSAGES

    @property
    def since(self) -> int:
        """Returns the time of the call."""
        return self.queued or self.started

    def describe(self) -> str:
        """Returns the text used in errors: ``all_reduce(1000 x float32, SUM) #17``."""
        parts = []
        if self.op not in WITHOUT_DATA:
            parts.append(f"{self.count} x {self.dtype}" if self.count else self.dtype)
        if self.reduce_op is not None:
            parts.append(self.reduce_op)
        if self.root is not None:
            parts.append(f"{ROOTS[self.op]} rank {self.root}")
        if self.tag:
            parts.append(f"tag {self.tag}")
        number = "" if self.sequence is None else f" #{self.sequence}"
        return f"{self.op}({', '.join(parts)}){number}"


@dataclass
class Wait:
    """What a thread waits for outside of operations: a store, a probe, joining."""

    text: str
    since: int  # nanoseconds on the monotonic clock
    site: Site | None


@dataclass
class Recording:
    """A snapshot of one process; `path` is empty for this process."""

    path: str
    pid: int
    process_start: int
    pid_namespace: int
    created: int
    to_wall_clock: int
    taken: int
    dropped: int
    rank: int | None
    size: int | None
    job: str
    host: str
    command: str
    groups: list[Group] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)  # oldest first
    waits: list[Wait] = field(default_factory=list)  # oldest first

    def unfinished(self) -> list[Operation]:
        """Returns the operations that run or wait for their turn, oldest first."""
        return [o for o in self.operations if o.state != "ended"]

    def last_ended(self) -> Operation | None:
        """Returns the operation that ended last."""
        ended = [o for o in self.operations if o.state == "ended"]
        return max(ended, key=lambda o: o.ended, default=None)

    def process_state(self) -> str:
        """Returns running, stopped, traced or gone; unknown for a process of another
        container."""
        if self.pid_namespace != _pid_namespace():
            return "unknown"
        return _process_state(self.pid, self.process_start)


def parse(data: bytes | memoryview, path: str = "") -> Recording:
    """Returns the recording in a snapshot, which the extension has made and checked."""
    head = HEADER.unpack_from(data)
    record_count, group_count, site_count, wait_count = head[2:6]
    rank, size = head[13:15]
    texts = [_text(text) for text in head[15:]]
    identity = (rank, size, *texts) if rank >= 0 else (None, None, *texts)
    recording = Recording(path, *head[6:13], *identity)
    groups_at = HEADER.size + record_count * RECORD.size
    sites_at = groups_at + group_count * GROUP.size
    memory = memoryview(data)
    # Rows are reused, so they are not in the order of time.
    recording.groups = sorted(
        _groups(memory[groups_at:sites_at]), key=lambda group: group.serial
    )
    waits_at = sites_at + site_count * SITE.size
    sites = _Sites(memory[sites_at:waits_at])
    waits = _waits(memory[waits_at : waits_at + wait_count * WAIT.size], sites)
    recording.waits = sorted(waits, key=lambda wait: wait.since)
    rows = RECORD.iter_unpack(memory[HEADER.size : groups_at])
    operations = _operations(rows, recording.groups, sites)
    recording.operations = sorted(operations, key=lambda o: o.since)
    return recording


def read(path: str) -> Recording:
    """Reads a process's recording or a dump; raises OSError, or ValueError if it is
    neither."""
    try:
        data = _C._read_recording(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return parse(data, path)


def own() -> Recording | None:
    """Returns the recording of this process; None if it has had no group, or its
    recorder is off."""
    data = _C._recording()
    return None if data is None else parse(data)


def read_all() -> list[Recording]:
    """Reads the recordings of this user on this host, also of ended processes."""
    found = []
    for folder in _C._recording_folders():
        for job in sorted(names_in(folder)):
            path = os.path.join(folder, job)
            for name in sorted(names_in(path)):
                try:
                    found.append(read(os.path.join(path, name)))
                except (OSError, ValueError):
                    continue  # it has ended meanwhile, or the file is not a recording
    return found


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode(errors="replace").strip()


def _groups(rows: memoryview) -> Iterator[Group]:
    for row in GROUP.iter_unpack(rows):
        _, serial, begun, last_ended, rank, size, is_open, backend, name = row
        if serial:
            texts = _text(name), _text(backend)
            yield Group(serial, *texts, rank, size, bool(is_open), begun, last_ended)


class _Sites:
    """Lines of the program by their numbers, read when they are needed."""

    def __init__(self, rows: memoryview) -> None:
        self._rows = rows
        self._known: dict[int, Site | None] = {0: None}

    def __getitem__(self, number: int) -> Site | None:
        if number not in self._known:
            self._known[number] = self._read((number - 1) * SITE.size)
        return self._known[number]

    def _read(self, offset: int) -> Site | None:
        if offset + SITE.size > len(self._rows):
            return None
        _, line, function, file = SITE.unpack_from(self._rows, offset)
        return Site(_text(file), _text(function), line) if line else None


def _waits(rows: memoryview, sites: _Sites) -> Iterator[Wait]:
    for _, since, site, text in WAIT.iter_unpack(rows):
        if since:
            yield Wait(_text(text), since, sites[site])


def _operations(
    rows: Iterable[_Row], groups: list[Group], sites: _Sites
) -> Iterator[Operation]:
    by_serial = {group.serial: group for group in groups}
    for row in rows:
        _, queued, started, ended, sequence, count, serial, site = row[:8]
        code, dtype, reduce_op, state, root = row[8:]
        if state & 3 not in STATES:
            continue
        op, reduces = OPS[code] if code < len(OPS) else (f"operation {code}", False)
        is_message = op in MESSAGES
        name, item_size = DTYPES[dtype] if dtype < len(DTYPES) else ("?", 0)
        yield Operation(
            op=op,
            group=by_serial.get(serial),
            state=STATES[state & 3],
            status=STATUSES[state >> 2],
            sequence=None if is_message or not sequence else sequence,
            tag=sequence if is_message else None,
            root=root if op in ROOTS else None,
            count=count,
            dtype=name,
            item_size=item_size,
            reduce_op=REDUCE_OPS[reduce_op % len(REDUCE_OPS)] if reduces else None,
            queued=queued,
            started=started,
            ended=ended,
            site=sites[site],
        )


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _process_state(pid: int, start: int) -> str:
    try:
        fields = stat_of(pid)
    except OSError:
        return "gone"
    if int(fields[19]) != start:
        return "gone"  # another process has its number now
    if int(fields[6]) & PF_EXITING:
        return "gone"  # it is exiting, or a zombie
    return {"T": "stopped", "t": "traced"}.get(fields[0], "running")
