# SPDX-License-Identifier: BSD-3-Clause
"""Which members elsewhere still live, by their beats; groups/members.py knows of those
on this machine."""

from __future__ import annotations

import time

__all__ = ["STALE", "Beats"]

# Seconds after which a process elsewhere that waits and does not beat is not counted.
STALE = 1.0


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
