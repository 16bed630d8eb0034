# SPDX-License-Identifier: BSD-3-Clause
"""Finds problems in the facts of all ranks, and writes them for ``distlite doctor``."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any, TextIO

from distlite.tools.store_facts import describe
from distlite.tools.text import show

Facts = dict[str, Any]
# Open files beside one or two connections per peer: the store's, and Python's own.
FILES_PER_RANK, FILES_AT_LEAST = 4, 256


class Diagnosis:
    """`tried` are the connections, `measured` the links: [rank, rank, numbers]."""

    def __init__(
        self,
        ranks: list[Facts],
        tried: list[Facts],
        measured: list[list[Any]],
        problem: str | None,
        store: Facts | None = None,
    ) -> None:
        self.ranks = ranks
        self.store = store
        self.links = _links(ranks, tried, measured)
        self.problem = problem
        # With errors the ranks cannot work together; with warnings they are slow or
        # limited.
        self.errors = list(self._find_errors())
        self.warnings = [w for facts in ranks for w in self._find_in(facts)]
        self.warnings += self._find_versions()

    def facts(self) -> Facts:
        """Returns the facts for the JSON output."""
        return {
            "world_size": len(self.ranks),
            "hosts": self.hosts(),
            "ranks": self.ranks,
            "links": self.links,
            "libraries": self.libraries(),
            "store": self.store,
            "errors": self.errors,
            "warnings": self.warnings,
        }

    def hosts(self) -> list[str]:
        """Returns each host once, in the order of the ranks."""
        return list(dict.fromkeys(facts["host"] for facts in self.ranks))

    def libraries(self) -> dict[str, dict[str, str | None]]:
        """Returns the libraries by host."""
        return {
            facts["host"]: facts["libraries"]
            for facts in self.ranks
            if facts["libraries"] is not None
        }

    def _find_versions(self) -> Iterator[str]:
        for what in ("distlite", "python"):
            versions = {facts["versions"][what] for facts in self.ranks}
            if len(versions) > 1:
                yield f"ranks have different versions of {what}: {sorted(versions)}"

    def _find_errors(self) -> Iterator[str]:
        if self.problem is not None:
            yield f"no group can be made: {self.problem}"
        for facts in self.ranks:
            if facts["addresses"]["chosen"] is None:
                name = f"rank {facts['rank']} on {facts['host']}"
                yield f"{name} has no address: {facts['addresses']['why']}"
        for link in self.links:
            if link["error"] is not None:
                yield f"rank {link['from']} to rank {link['to']}: {link['error']}"
        if len({facts["stack"] for facts in self.ranks}) < 2:
            return
        for facts in self.ranks:
            chosen = facts["addresses"]["chosen"]
            if chosen is not None and ipaddress.ip_address(chosen).is_loopback:
                yield (
                    f"rank {facts['rank']} on {facts['host']} would give other hosts "
                    f"the address {chosen}; set GLOO_SOCKET_IFNAME to an interface "
                    "they can reach"
                )

    def _find_in(self, facts: Facts) -> Iterator[str]:
        name = f"rank {facts['rank']} on {facts['host']}"
        wanted = max(FILES_AT_LEAST, FILES_PER_RANK * len(self.ranks))
        files = facts["limits"]["open_files"]
        if files is not None and files < wanted:
            yield (
                f"{name} may open only {files} files; raise the limit "
                f"(ulimit -n {wanted})"
            )
        cores = facts["cores"]
        if cores["usable"] < cores["ranks"]:
            usable, others = cores["usable"], cores["ranks"] - 1
            yield (
                f"{name} shares {usable} core{'s' * (usable != 1)} with {others} other "
                f"rank{'s' * (others != 1)}: they take turns instead of running at the "
                "same time"
            )


def _links(
    ranks: list[Facts], tried: list[Facts], measured: list[list[Any]]
) -> list[Facts]:
    numbers = {(first, second): found for first, second, found in measured}
    nothing: Facts = {"latency_us": None, "mb_per_s": None, "times_us": []}
    return [
        {
            **link,
            "same_host": ranks[link["from"]]["stack"] == ranks[link["to"]]["stack"],
            **numbers.get(_pair(link), nothing),
        }
        for link in tried
    ]


def _pair(link: Facts) -> tuple[int, int]:
    low, high = sorted((link["from"], link["to"]))
    return low, high


def write(diagnosis: Diagnosis, as_json: bool, file: TextIO) -> None:
    """Writes the diagnosis as JSON or as tables."""
    if as_json:
        print(json.dumps(diagnosis.facts()), file=file, flush=True)
        return
    ranks = [_rank_row(facts) for facts in diagnosis.ranks]
    headers = ("rank", "host", "address", "because", "cores/ranks", "open files")
    show("Ranks", (*headers, "memory"), ranks, file)
    if diagnosis.links:
        rows = [
            _link_row(link) for link in diagnosis.links if link["from"] < link["to"]
        ]
        headers = ("from", "to", "host", "connect", "latency", "bandwidth")
        show("\nLinks", headers, rows, file)
    libraries = [
        (host, name, version or "not found")
        for host, found in diagnosis.libraries().items()
        for name, version in found.items()
    ]
    show("\nLibraries", ("host", "library", "version"), libraries, file)
    if diagnosis.store is not None:
        line = describe(diagnosis.store)  # its units keep their capitals
        print(f"\n{line[0].upper()}{line[1:]}", file=file)
    print("\n" + "\n".join(_conclusion(diagnosis)), file=file, flush=True)


def _conclusion(diagnosis: Diagnosis) -> list[str]:
    found = [f"error: {text}" for text in diagnosis.errors]
    found += [f"warning: {text}" for text in diagnosis.warnings]
    return found or ["No problems were found."]


def _rank_row(facts: Facts) -> tuple[str, ...]:
    cores, limits, addresses = facts["cores"], facts["limits"], facts["addresses"]
    memory = [m for m in (limits["memory"], limits["available"]) if m is not None]
    interface = addresses.get("interface")
    chosen = ", ".join([addresses["chosen"] or "none", *addresses.get("others", ())])
    return (
        str(facts["rank"]),
        facts["host"],
        f"{chosen} ({interface})" if interface else chosen,
        addresses["why"],
        f"{cores['usable']}/{cores['ranks']}",
        "no limit" if limits["open_files"] is None else str(limits["open_files"]),
        f"{min(memory) / 2**30:.1f} GiB" if memory else "?",
    )


def _link_row(link: Facts) -> tuple[str, ...]:
    connect, latency, speed = (
        link[name] for name in ("connect_ms", "latency_us", "mb_per_s")
    )
    return (
        str(link["from"]),
        str(link["to"]),
        "same" if link["same_host"] else "other",
        "failed" if connect is None else f"{connect:.2f} ms",
        "-" if latency is None else f"{latency:.1f} us",
        "-" if speed is None else f"{speed / 1e3:.2f} GB/s",
    )
