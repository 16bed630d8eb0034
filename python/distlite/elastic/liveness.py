# SPDX-License-Identifier: BSD-3-Clause
"""Which members still live: by the kernel on this machine, by beats elsewhere."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from ..groups.check_in import Presence

__all__ = ["STALE", "Beats", "MemberId", "is_known_dead"]

# Seconds after which a process elsewhere that waits and does not beat is not counted.
STALE = 1.0


class MemberId:
    """The name of this process as a member, and what shows that the process lives."""

    def __init__(self) -> None:
        nonce = os.urandom(8).hex()
        self.presence = Presence(nonce)
        place = _place() if Presence.shows(nonce) else "-"
        host = os.uname().nodename.replace(":", "_")
        self.text = f"{host}:{os.getpid()}:{place}:{nonce}"

    def close(self) -> None:
        self.presence.close()


def describe(member: str) -> str:
    host, pid, _, _ = member.split(":")
    return f"pid {pid} on host {host}"


def _place() -> str:
    """Returns what processes share that see each other's presences."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    network = os.stat("/proc/self/ns/net").st_ino
    return hashlib.sha1(f"{boot} {network} {os.geteuid()}".encode()).hexdigest()[:12]


def is_known_dead(member: str, own: str) -> bool:
    """Tells whether a process has ended, of which this one would know."""
    _, _, place, nonce = member.split(":")
    is_near = place != "-" and place == own.split(":")[2]
    return is_near and not Presence.shows(nonce, if_full=True)


class Beats:
    """What this process has seen of the beats of others, by its own clock."""

    def __init__(self) -> None:
        # By member: the beat, since when it is that, and whether it has ever changed.
        self._seen: dict[str, tuple[int, float, bool]] = {}

    def lives(self, member: str, beat: int) -> bool | None:
        """Returns None as long as it is open."""
        now = time.monotonic()
        last, since, has_changed = self._seen.setdefault(member, (beat, now, False))
        if beat != last:
            since, has_changed = now, True
            self._seen[member] = beat, now, True
        if now - since > STALE:
            return False
        return has_changed or None
