# SPDX-License-Identifier: BSD-3-Clause
"""What `distlite ps` shows of elastic worlds."""

import json
import os
import re
import subprocess
import sys

from launching import LIMIT, launched, wait_until, write_script

import distlite as dist
from distlite import elastic
from distlite.tools.worlds import describe, find_worlds, worlds_of

PS = "import sys; from distlite.launch.command import main; main(['ps', *sys.argv[1:]])"
# Two members that compute until the file exists, and one that finds no place.
WORLD = """
import distlite as dist
from distlite import elastic
with elastic.join(min_size=2, max_size=2, timeout=40) as member:
    print("is", os.getpid(), flush=True)
    while not os.path.exists(sys.argv[1]):
        view = member.next()
        print("member", os.getpid(), flush=True)
        try:
            with member.step((member.done or 0) + 1):
                while not os.path.exists(sys.argv[1]):
                    time.sleep(0.01)
        except dist.DistBackendError:
            pass
    member.finish()
"""


def ps(folder, *words):
    done = subprocess.run(
        [sys.executable, "-c", PS, *words],
        env={**os.environ, "DISTLITE_RUNTIME_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


def test_members_and_who_waits_for_a_place(tmp_path):
    script, over = write_script(tmp_path, WORLD), tmp_path / "over"
    runtime, out = tmp_path / "runtime", tmp_path / "out"
    runtime.mkdir(mode=0o700)
    env = {"DISTLITE_RUNTIME_DIR": str(runtime)}
    words = ["-n", 3, "--on-failure", "continue", script, over]
    with out.open("w") as file, launched(words, env=env, stdout=file) as (job, _):
        wait_until(lambda: out.read_text().count("member") == 2)

        def worlds():
            shown, *_ = json.loads(ps(runtime, "--json"))["jobs"]
            found = (shown["store"] or {}).get("worlds")
            return found if found and found[0]["spares"] else None

        [world] = wait_until(worlds)
        text = ps(runtime)
        over.touch()
        assert job.wait(LIMIT) == 0, job.stderr.read()
    pids = set(re.findall(r"is (\d+)", out.read_text()))
    members = set(re.findall(r"member (\d+)", out.read_text()))
    assert (world["name"], world["epoch"], world["done"]) == ("world", 1, None)
    assert {m["pid"] for m in world["members"]} == members
    assert not any(m["behind"] or m["dead"] for m in world["members"])
    [spare] = pids - members
    assert [who["pid"] for who in world["spares"]] == [spare]
    line = f"world world: epoch 1, 2 members; waiting: pid {spare} on host "
    assert line in text


def test_epochs_of_a_store():
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        assert worlds_of(store) == []
        member = elastic.join(store, "a", timeout=LIMIT)
        prefixed = elastic.join(dist.PrefixStore("x", store), "b", timeout=LIMIT)
        for each in (member, prefixed):
            each.next()
            with each.step(3):
                pass
            each.next(anew=True)
        prefixed.finish()
        before = sorted(store.list_keys())
        first, second = worlds_of(store)
        assert sorted(store.list_keys()) == before
        assert describe(first) == "world a: epoch 2, 1 members; begun after step 3"
        assert (second["epoch"], second["finished"]) == (2, True)
        assert "dead: rank 0 (pid " in describe(second)
        member.leave()


def test_who_is_behind_and_who_waits_for_the_next_epoch():
    names = [f"host:{pid}:-:ab" for pid in range(4)]
    record = elastic.ledger.Record(
        *(5, "x", names[:3], [0, 1, 2]), ready=names[:2], done=7
    )
    said = [
        elastic.ledger.Arrival(names[0], 5),
        elastic.ledger.Arrival(names[1], 5, is_leaving=True),
        elastic.ledger.Arrival(names[3], is_spare=True),
    ]
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        store.set("elastic/w/identity", "x")
        store.set("elastic/w/epoch", json.dumps(record.__dict__))
        lines = "".join(json.dumps(each.__dict__) + "\n" for each in said)
        store.set("elastic/w/arrivals/5", lines)
        [world] = worlds_of(store)
        assert describe(world) == (
            "world w: epoch 5, 3 members; begun after step 7; behind when it began: "
            "rank 2 (pid 2 on host host); waiting: pid 3 on host host; in next(): pid "
            "0 on host host"
        )
        store.set("elastic/w/epoch", b"\xff")
        [world] = find_worlds(store)
        assert describe(world) == "world w: its records are not of this version"
