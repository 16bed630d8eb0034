# SPDX-License-Identifier: BSD-3-Clause
"""A TCPStore between hosts: only clients of the server's own take its Unix socket."""

from __future__ import annotations

import netns
import pytest
from workers import run_ranks


@pytest.fixture(autouse=True)
def _only_where_possible() -> None:
    netns.skip_unless_possible()


def relay(port: int, target: tuple[str, int], name: str) -> None:
    """Serves one client at the server's own port, and a user's socket with its name."""
    import socket
    import threading

    def copy(source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        server = socket.create_connection(target)
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()

    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    if name:
        usurper = socket.socket(socket.AF_UNIX)
        usurper.bind(f"\0{name}")
        usurper.listen()
        threading.Thread(target=usurper.accept, daemon=True).start()


def count(rank: int, world_size: int, address: str, usurps: bool) -> tuple[int, int]:
    """Rank 0 serves, 1 is on its host, 2 on another one, and 3 there behind a relay."""
    import os

    from store_bytes import unix_names

    from distlite import TCPStore

    where = (address, 29500)
    if rank == 0:
        server = TCPStore(*where, is_master=True, timeout=60)
        (name,) = unix_names(os.getpid())
        server.set("name", name)
    elif rank == 3:
        with TCPStore(*where, timeout=60) as direct:
            name = direct.get("name").decode()
        relay(29500, where, name if usurps else "")
        where = ("127.0.0.1", 29500)
    store = server.clone() if rank == 0 else TCPStore(*where, timeout=60)
    before = 0
    for turn in range(1, world_size):
        store.barrier(f"before {turn}", world_size)
        if turn == rank:
            before = store.stats()["unix_clients"]
            for _ in range(64):
                store.add("n", 1)
            after = store.stats()["unix_clients"]
        store.barrier(f"after {turn}", world_size)
    store.barrier("end", world_size)
    if rank == 0:
        assert store.add("n", 0) == 64 * (world_size - 1)
        return 0, 0
    return before, after


@pytest.mark.parametrize("usurps", [False, True])
def test_only_clients_of_the_servers_host_move(usurps):
    with netns.Network(2) as network:
        first, second = network.hosts
        hosts = [first, first, second, second]
        found = run_ranks(count, 4, hosts=hosts, address=first.address, usurps=usurps)
    moved = [after - before for before, after in found]
    assert moved == [0, 1, 0, 0]
