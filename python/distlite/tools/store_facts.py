# SPDX-License-Identifier: BSD-3-Clause
"""The statistics of the server of a job's store, for ``distlite ps`` and ``doctor``."""

from __future__ import annotations

from typing import Any

import distlite as dist
from distlite.cluster import environment_of
from distlite.tools.job import Job
from distlite.tools.text import seconds
from distlite.tools.worlds import find_worlds

Facts = dict[str, Any]
# Seconds that a tool waits for a server that is stopped or cannot be reached.
TIMEOUT_SECONDS = 2.0
RUNNING = ("running", "stopped", "traced")


def store_of(job: Job) -> Facts | None:
    """Asks the store that the ranks' environment names; None if it names none."""
    for member in job.members:
        if member.state in RUNNING:
            try:
                found = environment_of(member.recording.pid)
            except OSError:  # it has ended meanwhile
                continue
            if "MASTER_ADDR" in found and found.get("MASTER_PORT", "").isdecimal():
                return _ask(found)
    return None


def _token(environment: dict[str, str]) -> str | None:
    if environment.get("DISTLITE_TOKEN"):
        return environment["DISTLITE_TOKEN"]
    path = environment.get("DISTLITE_TOKEN_FILE")
    if not path:
        return None
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read().strip()


def _ask(environment: dict[str, str]) -> Facts:
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    facts: Facts = {"address": f"{host}:{port}"}
    try:
        store = dist.TCPStore(
            *(host, port),
            timeout=TIMEOUT_SECONDS,
            wait_for_workers=False,
            token=_token(environment),
        )
        with store:
            facts.update(store.stats())
            facts["worlds"] = find_worlds(store)
    except (RuntimeError, ValueError, OSError) as error:
        facts["error"] = str(error)
    return facts


def stats_of(store: dist.Store) -> Facts | None:
    """Returns the statistics of a store; None if its server has none."""
    try:
        return dict(store.stats())
    except NotImplementedError:
        return None


def describe(facts: Facts) -> str:
    """Returns one line, without counts of 0."""
    where = f"store {facts['address']}" if "address" in facts else "store"
    if "error" in facts:
        return f"{where}: {facts['error']}"
    parts = [
        f"{facts['keys']} keys, {_size(facts['bytes'])}",
        f"{facts['clients']} clients, {facts['waiters']} waiting",
        f"{facts['requests']} requests in {seconds(facts['uptime_ms'] * 10**6)}",
        f"slowest turn {seconds(facts['slowest_turn_us'] * 1000)}",
    ]
    if facts["input_bytes"] or facts["output_bytes"]:
        sizes = _size(facts["input_bytes"]), _size(facts["output_bytes"])
        parts.append("{} half received, {} not read".format(*sizes))
    for group in ("refusals", "closed"):
        counts = [f"{k} {n}" for k, n in facts.get(group, {}).items() if n]
        if counts:
            parts.append(f"{group}: {', '.join(counts)}")
    return f"{where}: {'; '.join(parts)}"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
