# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on one machine whose links have a rate, a delay and losses.

The hosts are those of tests/netns.py.  The rate is the qdisc tbf's, at both ends of
every cable; a delay or a loss needs relay.c between TUN devices in place of the cables,
for kernels without netem.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from measure import REPOSITORY
from processes import build

sys.path.insert(0, str(REPOSITORY / "tests"))
from netns import Host, Network

# More than one packet of 64 KiB, which cards are given at a time.
BURST = 256 << 10


@dataclass(frozen=True)
class Shape:
    """The properties of a link, each way."""

    mbit: int = 0  # per second; 0: no limit
    delay_us: int = 0
    loss_percent: float = 0
    congestion: str = "cubic"  # Linux's default

    @property
    def is_relayed(self) -> bool:
        """Whether packets go through relay.c."""
        return self.delay_us > 0 or self.loss_percent > 0

    @property
    def text(self) -> str:
        """Returns the description of the link for titles."""
        rate = f"{self.mbit / 1000:g} Gbit/s" if self.mbit else "no limit"
        loss = f", {self.loss_percent:g} % lost" if self.loss_percent else ""
        return f"{rate}, {self.delay_us / 1000:g} ms each way{loss}, {self.congestion}"


class ShapedNetwork(Network):
    """Hosts that reach each other over such links."""

    def __init__(self, count: int, shape: Shape, *, cables: int = 1) -> None:
        self.shape = shape
        self._relays: list[subprocess.Popen[str]] = []
        super().__init__(count, ipv6=False, cables=cables)

    def lay(self, cables: int) -> None:
        """Makes the cables or relays, and sets their rates."""
        interfaces = [f"eth{number}" for number in range(cables)]
        if self.shape.is_relayed:
            for interface in interfaces:
                self._relay(interface)
            for host in self.hosts:
                host.set_up()
                for number in range(1, cables):
                    host.set_up_further(number)
        else:
            super().lay(cables)
        for host in self.hosts:
            for number, interface in enumerate(interfaces):
                self._limit(host, interface)
                self._control(host, interface, f"10.{77 + number}.0.0/24")
            if self.switch is not None:
                self._limit(self.switch, f"port{host.number}")

    def _relay(self, interface: str) -> None:
        shape = self.shape
        words = [build("relay"), interface, shape.mbit or 100_000, shape.delay_us]
        words += [shape.loss_percent, *(host.pid for host in self.hosts)]
        relay = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._relays.append(relay)
        assert relay.stdout is not None
        if relay.stdout.readline() != "ready\n":
            raise OSError("relay.c could not make its devices")

    def _limit(self, host: Host, interface: str) -> None:
        if self.shape.mbit:
            rate = f"{self.shape.mbit}mbit"
            words = ["rate", rate, "burst", str(BURST), "latency", "50ms"]
            host.run("tc", "qdisc", "add", "dev", interface, "root", "tbf", *words)

    def _control(self, host: Host, interface: str, network: str) -> None:
        """Sets the congestion control by route, because the setting of a namespace
        allows few algorithms."""
        words = [network, "dev", interface, "congctl", self.shape.congestion]
        host.run("ip", "route", "change", *words)

    def close(self) -> None:
        """The relays end with their standard input."""
        for relay in self._relays:
            relay.communicate()
        self._relays = []
        super().close()
