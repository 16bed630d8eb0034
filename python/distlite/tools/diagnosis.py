# SPDX-License-Identifier: BSD-3-Clause
"""Finds problems in the facts of all ranks, and writes them for ``distlite doctor``."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from distlite.tools.store_facts import describe
from distlite.tools.text import show

Facts = dict[str, Any]
# Open files beside one or two connections per peer: the store's, and Python's own.
FILES_PER_RANK, FILES_AT_LEAST = 4, 256


@dataclass
class Diagnosis:
    """What all ranks have found out: `problem` is why there is no group."""

    ranks: list[Facts]
    links: list[Facts]
    problem: str | None
    store: Facts | None = None

    def errors(self) -> Iterator[str]:
        """Yields why the ranks cannot work together."""
        if self.problem is not None:
            yield f"no group can be made: {self.problem}"
        several = len({facts["stack"] for facts in self.ranks}) > 1
        for facts in self.ranks:
            chosen = facts["addresses"]["chosen"]
            if chosen is None:
                yield f"{_name(facts)} has no address: {facts['addresses']['why']}"
            elif several and ipaddress.ip_address(chosen).is_loopback:
                yield (
                    f"{_name(facts)} would give other hosts the address {chosen}; set "
                    "GLOO_SOCKET_IFNAME to an interface they can reach"
                )
        for link in self.links:
            if link["error"] is not None:
                yield f"rank {link['from']} to rank {link['to']}: {link['error']}"

    def warnings(self) -> Iterator[str]:
        """Yields why the ranks are slow or limited."""
        wanted = max(FILES_AT_LEAST, FILES_PER_RANK * len(self.ranks))
        for facts in self.ranks:
            files, cores, here = (
                facts[name] for name in ("open_files", "cores", "ranks_here")
            )
            if files is not None and files < wanted:
                yield (
                    f"{_name(facts)} may open only {files} files; raise the limit "
                    f"(ulimit -n {wanted})"
                )
            if cores < here:
                yield (
                    f"{_name(facts)}: {here} ranks of this host share {cores} core(s): "
                    "they take turns instead of running at the same time"
                )
        for what in ("distlite", "python"):
            versions = {facts["versions"][what] for facts in self.ranks}
            if len(versions) > 1:
                yield f"ranks have different versions of {what}: {sorted(versions)}"

    def write(self, as_json: bool, file: TextIO) -> None:
        """Writes the diagnosis as JSON or as tables."""
        errors, warnings = list(self.errors()), list(self.warnings())
        if as_json:
            facts = {"ranks": self.ranks, "links": self.links, "store": self.store}
            text = json.dumps({**facts, "errors": errors, "warnings": warnings})
            print(text, file=file, flush=True)
            return
        headers = ("rank", "host", "address", "because", "cores/ranks", "open files")
        rows = [_rank_row(facts) for facts in self.ranks]
        show("Ranks", headers, rows, file)
        if self.links:
            headers = ("from", "to", "host", "connect", "latency", "bandwidth")
            rows = [_link_row(x) for x in self.links if x["from"] < x["to"]]
            show("\nLinks", headers, rows, file)
        rows = [
            (facts["host"], name, version or "not found")
            for facts in self.ranks
            for name, version in (facts["libraries"] or {}).items()
        ]
        show("\nLibraries", ("host", "library", "version"), rows, file)
        if self.store is not None:
            line = describe(self.store)  # its units keep their capitals
            print(f"\n{line[0].upper()}{line[1:]}", file=file)
        found = [f"error: {text}" for text in errors]
        found += [f"warning: {text}" for text in warnings]
        text = "\n".join(found or ["No problems were found."])
        print(f"\n{text}", file=file, flush=True)


def _name(facts: Facts) -> str:
    return f"rank {facts['rank']} on {facts['host']}"


def _rank_row(facts: Facts) -> tuple[str, ...]:
    addresses, files = facts["addresses"], facts["open_files"]
    interface = addresses.get("interface")
    chosen = ", ".join([addresses["chosen"] or "none", *addresses.get("others", ())])
    return (
        str(facts["rank"]),
        facts["host"],
        f"{chosen} ({interface})" if interface else chosen,
        addresses["why"],
        f"{facts['cores']}/{facts['ranks_here']}",
        "no limit" if files is None else str(files),
    )


def _link_row(link: Facts) -> tuple[str, ...]:
    connect, latency, speed = (
        link.get(name) for name in ("connect_ms", "latency_us", "mb_per_s")
    )
    return (
        str(link["from"]),
        str(link["to"]),
        "same" if link["same_host"] else "other",
        "failed" if connect is None else f"{connect:.2f} ms",
        "-" if latency is None else f"{latency:.1f} us",
        "-" if speed is None else f"{speed / 1e3:.2f} GB/s",
    )
