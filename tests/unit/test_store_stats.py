# SPDX-License-Identifier: BSD-3-Clause
"""`Store.stats()`, and what the tools make of it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from distlite import DistStoreError, FileStore, HashStore, PrefixStore, Store, TCPStore
from distlite.tools import store_facts
from distlite.tools.job import Job

SERVER = """
import resource, sys, time
from distlite import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "1")
store.set("key", "value")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(store.port, flush=True)
sys.stdin.readline()
# Its thread may not have come to the last connections yet.
while (count := store.stats()["refusals"]["connections"]) == 0:
    time.sleep(0.01)
print(count, flush=True)
"""


@pytest.mark.parametrize("use_libuv", [True, False])
def test_a_server_tells_what_it_holds_and_refused(monkeypatch, use_libuv):
    monkeypatch.setenv("DISTLITE_STORE_KEYS", "3")
    with TCPStore("127.0.0.1", 0, is_master=True, use_libuv=use_libuv) as store:
        before = store.stats()
        assert before["keys"] == 0 and before["clients"] == 1
        store.multi_set(["a", "b"], ["1", "2"])
        store.queue_push("queue", "item")
        with pytest.raises(MemoryError):
            store.set("c", "3")
        with socket.create_connection(("127.0.0.1", store.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
            assert stranger.recv(100) == b""
        told = store.stats()
    assert told["keys"] == 2 and told["names"] == 3 and told["waiters"] == 0
    assert told["bytes"] > before["bytes"]
    assert told["requests"] >= before["requests"] + 4
    assert told["refusals"]["keys"] == 1 and told["refusals"]["bytes"] == 0
    assert told["closed"]["protocol"] == 1
    assert len(told["identity"]) == 32 and told["identity"] == before["identity"]
    assert told["replies"]["slots"] > 0 and told["replies"]["repeated"] == 0
    assert told["uptime_ms"] >= before["uptime_ms"] and told["slowest_turn_us"] > 0
    assert set(told["refusals"]) == {
        *("validate", "stall", "connections", "keys", "bytes", "pending"),
        "replies",
    }


@pytest.mark.parametrize("use_libuv", ["1", "0"])
def test_connections_that_have_to_wait_for_descriptors_are_counted(use_libuv):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, use_libuv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    port = int(process.stdout.readline())
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            stack.enter_context(client)
        count, _ = process.communicate("\n", timeout=60)
    assert int(count) > 0


def test_other_kinds_of_stores(tmp_path):
    store = HashStore()
    store.set("key", "value")
    told = store.stats()
    assert (told["keys"], told["names"], told["waiters"]) == (1, 1, 0)
    assert PrefixStore("view", store).stats() == told
    with pytest.raises(NotImplementedError, match="FileStore has no stats"):
        FileStore(str(tmp_path / "file")).stats()
    store.close()
    with pytest.raises(DistStoreError, match="closed"):
        store.stats()


def test_a_store_in_python_may_have_its_own():
    class Counting(Store):
        def stats(self):
            return {"keys": 7}

    store = Counting()
    assert store.stats() == {"keys": 7}
    with pytest.raises(NotImplementedError, match="Not implemented: .* has no stats"):
        PrefixStore("view", store).stats()


class Recording:
    """As much of a recording as finding the store takes."""

    rank = 0
    groups = ()

    def __init__(self, pid: int) -> None:
        self.pid = pid


def ask_for(environment: dict[str, str]) -> store_facts.Facts | None:
    rank = subprocess.Popen(
        ["sh", "-c", "echo started; read line"],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"started\n"
    try:
        return store_facts.store_of(Job([Recording(rank.pid)], lambda _: "running"))
    finally:
        rank.communicate()


def test_the_store_of_a_job_is_found_by_its_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert ask_for({}) is None
    with TCPStore("127.0.0.1", 0, is_master=True, token="secret") as store:
        store.set("key", "value")
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        told = ask_for({**place, "DISTLITE_TOKEN": "secret"})
        assert told is not None and told["keys"] == 1
        line = store_facts.describe(told)
        assert line.startswith(f"store 127.0.0.1:{store.port}: 1 keys, ")
        assert "2 clients, 0 waiting; " in line and "refusals" not in line
        path = tmp_path / "token"
        path.write_text("secret\n")
        told = ask_for({**place, "DISTLITE_TOKEN_FILE": str(path)})
        assert told is not None and told["keys"] == 1
        refused = ask_for(place)
        assert refused is not None and "asks for the job's token" in refused["error"]
        assert store_facts.describe(refused).endswith(refused["error"])
        assert store.stats()["closed"]["denied"] == 1


def test_what_was_refused_is_shown():
    facts = {
        **{"keys": 1, "bytes": 5 << 20, "clients": 2, "waiters": 0, "requests": 3},
        **{"uptime_ms": 1500, "slowest_turn_us": 120},
        **{"input_bytes": 10, "output_bytes": 3 << 30},
        **{"refusals": {"keys": 2, "bytes": 0}, "closed": {"protocol": 4}},
    }
    assert store_facts.describe(facts) == (
        "store: 1 keys, 5.0 MiB; 2 clients, 0 waiting; 3 requests in 1.5 s; slowest "
        "turn 120 us; 10 B half received, 3.0 GiB not "
        "read; refusals: keys 2; closed: protocol 4"
    )
