# SPDX-License-Identifier: BSD-3-Clause
"""Several hosts on one machine: network namespaces of their own, joined by cables.

    with Network(2) as network:  # as root only: skip_unless_possible()
        first, second = network.hosts
        run_ranks(job, 4, hosts=[first, first, second, second],
                  init_method=f"tcp://{first.address}:29500")
        second.unplug()

A host has a name of its own, a loopback, and one interface `eth0` with `address` (and
`address6`); all of its ports are free.  With `cables=2` two hosts have `eth1` as well,
in a network of its own.  `host.command([...])` is what to run instead of a command so
that it runs there: it becomes that command, with the same process id.

The namespaces of this process do not change, and nothing is left however the test ends:
a namespace exists as long as the process that keeps it, which ends when this process
closes its end of a pipe.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

INTERFACE = "eth0"


@dataclass
class Host:
    """One network stack, and a host name."""

    name: str
    number: int  # from 1
    has_ipv4: bool = True
    has_ipv6: bool = True
    hosts_file: str | None = None  # in place of /etc/hosts
    _keeper: subprocess.Popen[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        script = f"hostname {self.name} && ip link set lo up && echo ready && exec cat"
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None and self._keeper.stderr is not None
        if self._keeper.stdout.readline() != "ready\n":
            error = self._keeper.stderr.read().strip()
            self.close()
            raise OSError(f"making a network namespace: {error}")

    @property
    def pid(self) -> int:
        """Of the process that keeps the namespace."""
        return self._keeper.pid

    @property
    def address(self) -> str:
        """The IPv4 address, or the IPv6 address of a host without IPv4."""
        return f"10.77.0.{self.number}" if self.has_ipv4 else self.address6

    @property
    def address6(self) -> str:
        return f"fd77::{self.number}"

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` on this host."""
        folder = f"/proc/{self.pid}/ns"
        if self.hosts_file is not None:
            script = 'mount --bind "$0" /etc/hosts && exec "$@"'
            command = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                script,
                self.hosts_file,
                *command,
            ]
        return ["nsenter", f"--net={folder}/net", f"--uts={folder}/uts", "--", *command]

    def run(self, *command: str, timeout: float = 60) -> str:
        """Its output; CalledProcessError shows the one of a command that failed."""
        done = subprocess.run(
            self.command(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            text = f"{' '.join(command)} on {self.name}: {done.stdout.strip()}"
            raise OSError(text)
        return done.stdout

    def set_up(self, interface: str = INTERFACE) -> None:
        """Gives the first interface its addresses, and switches it on."""
        if self.has_ipv4:
            self.run("ip", "addr", "add", f"{self.address}/24", "dev", interface)
        if self.has_ipv6:
            # Without the second in which others could claim it.
            address = f"{self.address6}/64"
            self.run("ip", "addr", "add", address, "dev", interface, "nodad")
        self.run("ip", "link", "set", interface, "up")

    def further_address(self, number: int) -> str:
        """Of `eth{number}`."""
        return f"10.{77 + number}.0.{self.number}"

    def set_up_further(self, number: int) -> None:
        """The same for `eth{number}`."""
        interface = f"eth{number}"
        address = f"{self.further_address(number)}/24"
        self.run("ip", "addr", "add", address, "dev", interface)
        self.run("ip", "link", "set", interface, "up")

    def unplug(self) -> None:
        """Drops all packets from now on, in both directions."""
        self.run("ip", "link", "set", INTERFACE, "down")

    def plug(self) -> None:
        self.run("ip", "link", "set", INTERFACE, "up")

    def close(self) -> None:
        """Ends the keeper; the kernel takes the rest away with the last process."""
        for stream in (self._keeper.stdin, self._keeper.stdout, self._keeper.stderr):
            if stream is not None:
                stream.close()
        self._keeper.kill()
        self._keeper.wait()


class Network:
    """Hosts that reach each other: two by one cable, more through a switch."""

    def __init__(
        self, count: int, *, ipv4: bool = True, ipv6: bool = True, cables: int = 1
    ) -> None:
        self.hosts: list[Host] = []
        self.switch: Host | None = None  # between more than two
        try:
            for number in range(1, count + 1):
                self.hosts.append(Host(f"host{number}", number, ipv4, ipv6))
            self.lay(cables)
        except BaseException:
            self.close()
            raise

    def lay(self, cables: int) -> None:
        """Joins the hosts and gives them their addresses."""
        assert cables == 1 or len(self.hosts) == 2
        if len(self.hosts) == 2:
            self._connect(self.hosts[0], INTERFACE, self.hosts[1])
        else:
            self._connect_all()
        for host in self.hosts:
            host.set_up()
        for cable in range(1, cables):
            name = f"eth{cable}"
            self._connect(self.hosts[0], name, self.hosts[1], name)
            for host in self.hosts:
                host.set_up_further(cable)

    @staticmethod
    def _connect(near: Host, name: str, far: Host, far_name: str = INTERFACE) -> None:
        """A cable from `name` on one to eth0 on the other, made inside the first."""
        far_end = ["peer", "name", far_name, "netns", str(far.pid)]
        near.run("ip", "link", "add", name, "type", "veth", *far_end)

    def _connect_all(self) -> None:
        switch = self.switch = Host("switch", 0, False, False)
        switch.run("ip", "link", "add", "bridge", "type", "bridge")
        switch.run("ip", "link", "set", "bridge", "up")
        for host in self.hosts:
            port = f"port{host.number}"
            self._connect(switch, port, host)
            switch.run("ip", "link", "set", port, "master", "bridge")
            switch.run("ip", "link", "set", port, "up")

    def name_hosts_as_debian(self, folder: Path) -> None:
        """Gives each host a hosts file as Debian's: its own name is 127.0.1.1, and
        those of the others are their addresses."""
        for host in self.hosts:
            lines = ["127.0.0.1 localhost", f"127.0.1.1 {host.name}"]
            lines += [f"{h.address} {h.name}" for h in self.hosts if h is not host]
            file = folder / f"hosts of {host.name}"
            file.write_text("\n".join(lines) + "\n")
            host.hosts_file = str(file)

    def close(self) -> None:
        for host in [*self.hosts, *([self.switch] if self.switch else [])]:
            host.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def skip_unless_possible() -> None:
    """Skips the test, with the reason, if namespaces cannot be made."""
    import pytest  # benchmarks do without

    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        with Network(2):
            pass
    except (OSError, FileNotFoundError) as error:
        pytest.skip(f"no network namespaces here: {error}")
