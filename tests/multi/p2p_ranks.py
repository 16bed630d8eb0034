# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of messages between two of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
from group_ranks import init
from operations import once_in, wait_until_ahead
from reducer_ranks import join

import distlite

LARGE = 700_001


def failure_of(call: Any) -> tuple[str, str, float]:
    """The class and text of what `call` raises, and the seconds it took."""
    began = time.monotonic()
    try:
        call()
    except BaseException as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "", "", time.monotonic() - began


def tags_out_of_order(rank: int, world_size: int, init_method: str) -> list:
    init(rank, world_size, init_method)
    got = []
    if rank == 0:
        works = [distlite.isend(np.array([tag]), 1, tag=tag) for tag in range(50)]
        assert [work.wait() for work in works] == [True] * 50
    elif rank == 1:
        for tag in reversed(range(50)):
            value = np.zeros(1, np.int64)
            assert distlite.recv(value, 0, tag=tag) == 0
            got.append(int(value[0]))
    distlite.destroy_process_group()
    return got


def any_source(rank: int, world_size: int, init_method: str) -> list:
    """Rank 0 hears from everybody, in the order of each."""
    init(rank, world_size, init_method)
    got: dict[int, list[int]] = {}
    for step in range(20 * (world_size - 1)):
        value = np.zeros(1, np.int64)
        if rank == 0:
            got.setdefault(distlite.recv(value), []).append(int(value[0]))
        elif step % (world_size - 1) == rank - 1:
            value[0] = step
            assert distlite.send(value, 0) is None
    distlite.destroy_process_group()
    return sorted(got.items())


def misfit(rank: int, world_size: int, init_method: str) -> list:
    init(rank, world_size, init_method)
    results = []
    for count in (20, LARGE):
        array = np.zeros(count if rank == 0 else 10)
        call = (
            (lambda a=array: distlite.send(a, 1))
            if rank == 0
            else (lambda a=array: distlite.recv(a, 0))
        )
        results.append(failure_of(call))
    narrow = np.zeros(10, np.float32 if rank == 0 else np.float64)
    call = distlite.send if rank == 0 else distlite.recv
    results.append(failure_of(lambda: call(narrow, 1 - rank)))
    last = np.full(3, 7.0 if rank == 0 else 0.0)
    call(last[: 2 + rank], 1 - rank)
    results.append(last.tolist())
    distlite.barrier()
    distlite.destroy_process_group()
    return results


def wrong_calls(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    init(rank, world_size, init_method)
    one = np.zeros(1)
    frozen = np.zeros(1)
    frozen.setflags(write=False)
    results = {
        "self": failure_of(lambda: distlite.send(one, rank)),
        "self recv": failure_of(lambda: distlite.recv(one, rank)),
        "range": failure_of(lambda: distlite.isend(one, 9)),
        "negative": failure_of(lambda: distlite.irecv(one, group_src=-1)),
        "wide": failure_of(lambda: distlite.irecv(one, group_src=2**32 + 1 - rank)),
        "wide send": failure_of(lambda: distlite.isend(one, 2**32 + 1 - rank)),
        "tag": failure_of(lambda: distlite.send(one, 1 - rank, tag=-1)),
        "recv tag": failure_of(lambda: distlite.recv(one, 1 - rank, tag=-1)),
        "isend tag": failure_of(lambda: distlite.isend(one, 1 - rank, tag=-(2**40))),
        "any tag": failure_of(lambda: distlite.irecv(one, tag=-1)),
        "none": failure_of(lambda: distlite.send(one)),
        "both": failure_of(lambda: distlite.recv(one, 1 - rank, group_src=1 - rank)),
        "frozen": failure_of(lambda: distlite.recv(frozen, 1 - rank)),
        "array": failure_of(lambda: distlite.send([1], 1 - rank)),
        "op": failure_of(lambda: distlite.P2POp(distlite.send, one, 1 - rank)),
        "op array": failure_of(lambda: distlite.P2POp(distlite.isend, 3, 1 - rank)),
        "op peer": failure_of(lambda: distlite.P2POp(distlite.isend, one)),
        "batch": failure_of(lambda: distlite.batch_isend_irecv([3])),
        "empty": failure_of(lambda: distlite.batch_isend_irecv([])),
        "outside": failure_of(lambda: distlite.send(one, 0, group=-100)),
        "repr": repr(distlite.P2POp(distlite.isend, one, 1 - rank)),
    }
    distlite.barrier()
    distlite.destroy_process_group()
    return results


def batch(rank: int, world_size: int, init_method: str) -> list[int]:
    init(rank, world_size, init_method)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    got = np.zeros(2, np.int64)
    ops = [
        distlite.P2POp(distlite.isend, np.array([rank]), after, tag=1),
        distlite.P2POp(distlite.irecv, got[:1], group_peer=before, tag=1),
        distlite.P2POp(distlite.isend, np.array([rank + 100]), after, tag=2),
        distlite.P2POp(distlite.irecv, got[1:], before, tag=2),
    ]
    works = distlite.batch_isend_irecv(ops)
    assert len(works) == 4
    for work in works:
        work.wait()
        work.wait()
    distlite.barrier()
    distlite.destroy_process_group()
    return got.tolist()


def dead_peer(rank: int, world_size: int, init_method: str, how: str) -> Any:
    """Rank 1 is killed while the others wait for it."""
    init(rank, world_size, init_method)
    pids = np.zeros(world_size, np.int64)
    distlite.all_gather_single(pids, np.array([os.getpid()]))
    array, other, one = np.zeros(LARGE), np.zeros(LARGE), np.zeros(1)
    if rank == 1:
        wait_until_ahead(set(range(world_size)) - {1})
        os.kill(os.getpid(), signal.SIGKILL)
    calls = {
        "recv": lambda: distlite.recv(array, 1),
        "any": lambda: distlite.recv(array),
        "send": lambda: distlite.send(array, 1),
        "irecv": lambda: distlite.irecv(array, 1).wait(),
        "sendrecv": lambda: distlite.sendrecv(array, other, 1, 1),
        "small sendrecv": lambda: distlite.sendrecv(one, other[:1], 1, 1),
    }
    first = failure_of(calls[how])
    again = failure_of(calls[how])
    # The others still reach each other.
    peer, value = 2 - rank, np.full(1, float(rank))
    work = distlite.isend(value, peer, tag=8)
    distlite.recv(one, peer, tag=8)
    work.wait()
    return int(pids[1]), first, again, float(one[0])


def killed_in_the_middle(rank: int, world_size: int, init_method: str) -> Any:
    """Rank 1 is killed while arrays that no ring holds go both ways."""
    init(rank, world_size, init_method)
    array, other = np.zeros(20 * LARGE), np.ones(20 * LARGE)
    pids = np.zeros(world_size, np.int64)
    distlite.all_gather_single(pids, np.array([os.getpid()]))
    if rank == 1:
        # Ends somewhere in it: the other thread waits for the first bytes.
        def end() -> None:
            while array[0] == 0:
                time.sleep(0)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=end, daemon=True).start()
        distlite.sendrecv(array, other, 0, 0)
        time.sleep(60)
    first = failure_of(lambda: distlite.sendrecv(array, other, 1, 1))
    if not first[0]:  # all of it was there before the death
        first = failure_of(lambda: distlite.sendrecv(array, other, 1, 1))
    return int(pids[1]), first


def late(rank: int, world_size: int, init_method: str) -> list:
    init(rank, world_size, init_method)
    group = distlite.group.WORLD
    results = []
    if rank == 0:
        group.set_timeout(timedelta(seconds=0.3))
        one = np.zeros(1)
        # A small one would have ended.
        results.append(failure_of(lambda: distlite.send(np.zeros(LARGE), 1, tag=4)))
        results.append(failure_of(lambda: distlite.recv(one, 1, tag=4)))
        work = distlite.irecv(one, 1, tag=4)
        results.append(failure_of(work.wait))
        results.append(failure_of(work.wait))
        group.set_timeout(timedelta(seconds=60))
    distlite.barrier()
    distlite.destroy_process_group()
    return results


def interrupted(
    rank: int, world_size: int, init_method: str, times: int, both_ways: bool
) -> Any:
    """Ctrl-C in a receive, or in a sendrecv whose small send has ended."""
    init(rank, world_size, init_method)
    one = np.zeros(1)

    def call() -> None:
        if both_ways:
            distlite.sendrecv(one, np.full(1, 3.0), 1, 1)
        else:
            distlite.recv(one, 1)

    kinds: list[str] = []
    delays: list[float] = []
    for _ in range(times if rank == 0 else 0):
        sent: list[float] = []

        def interrupt(sent: list[float] = sent) -> None:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        kind, _, _ = failure_of(
            lambda interrupt=interrupt: (once_in("0", interrupt), call())
        )
        delays.append(time.monotonic() - sent[0])
        kinds.append(kind)
    distlite.barrier()
    # Nothing is broken: the one that was given up does not take this.
    value = np.full(1, 5.0)
    if rank == 0:
        distlite.recv(value, 1)
    else:
        distlite.send(value, 0)
    assert value[0] == 5 and one[0] == 0
    # What was sent before the interrupt was sent.
    for _ in range(times if both_ways and rank == 1 else 0):
        distlite.recv(value, 0)
        assert value[0] == 3
    distlite.destroy_process_group()
    return kinds, delays


def both_ways(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any]:
    """sendrecv: rings, halves that meet other calls, and what is refused."""
    join(rank, world_size, init_method, places)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    found: dict[str, Any] = {"ring": []}
    for count in (0, 1, 300, 5000, LARGE):
        sent = np.full((count, 2), rank, np.int32)[:, 0]
        got = np.full(2 * count, -1, np.int32)[::2]
        source = distlite.sendrecv(got, sent, after, before, tag=3)
        found["ring"].append(source == before and bool((got == before).all()))
    got = np.zeros(1)
    source = distlite.sendrecv(got, np.array([rank + 0.5]), after)
    found["any"] = source == before and got[0] == before + 0.5
    # A half of it meets a send or a receive.
    first = np.zeros(2)
    if rank == 0:
        found["halves"] = [distlite.sendrecv(first, np.arange(2.0), 1, 1, None, 4)]
    elif rank == 1:
        distlite.send(np.array([7.0, 8.0]), 0, tag=4)
        distlite.recv(first, 0, tag=4)
    found["values"] = first.tolist()
    call = distlite.sendrecv
    base = np.zeros(6)
    found["overlap"] = failure_of(lambda: call(base[:4], base[2:], after, before))
    found["itself"] = failure_of(lambda: call(base, np.ones(1), rank, before))
    found["no dst"] = failure_of(lambda: call(base, np.ones(1), src=before))
    found["list"] = failure_of(lambda: call(base, [1.0], after, before))
    base.flags.writeable = False
    found["fixed"] = failure_of(lambda: call(base, np.ones(1), after, before))
    # Nothing of these was sent.
    got = np.zeros(1)
    distlite.sendrecv(got, np.array([rank + 0.25]), after, before)
    found["after"] = got[0] == before + 0.25
    pair = distlite.new_group([0, 1])
    to = 1 - rank if rank < 2 else 0
    found["pair"] = distlite.sendrecv(got, np.ones(1), group=pair, group_dst=to)
    distlite.destroy_process_group()
    return found


def of_other_dtypes(
    rank: int, world_size: int, init_method: str, places: str
) -> tuple[str, float]:
    """Rank 1 sends what rank 0 has no room for; both go on."""
    join(rank, world_size, init_method, places)
    told = failure_of(
        lambda: distlite.sendrecv(
            np.zeros(3), np.zeros(3, np.int32 if rank else float), 1 - rank, 1 - rank
        )
    )
    got = np.zeros(1)
    distlite.sendrecv(got, np.array([rank + 1.0]), 1 - rank, 1 - rank)
    distlite.destroy_process_group()
    return told[1], float(got[0])
