# SPDX-License-Identifier: BSD-3-Clause
"""Members of one world, for elastic.py: `elastic_peer.py KIND SIZE HOSTS OTHERS MIB`
prints what they saw, as a line of JSON.  `elastic_peer.py restart PEER FILE` is a
rank that a launcher starts again.

Members are forked from a process that has imported what they need.  All times are of
one clock, since all run on one host, which DISTLITE_HOST_HINT divides.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

# The step in which something happens, and how many steps follow.
EVENT, REST = 30, 10
LIMIT = 120.0
CALLS, BATCHES = 500, 7
FORK = multiprocessing.get_context("fork")


def serve(pipe: Any) -> None:
    import distlite as dist

    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        pipe.send(store.port)
        pipe.recv()


def live(kind: str, size: int, number: int, store: Any, member: Any, pipe: Any) -> None:
    """Works until some steps after a member was lost, or has come."""
    import distlite as dist

    state, x = {"x": np.zeros(1)}, np.zeros(256)
    is_after, last, first, left = False, None, None, REST
    while left:
        try:
            view = member.next()
            member.restore(view, state.update, lambda: state)
            is_after = is_after or bool(
                view.lost if kind == "lose" else view.size > size
            )
            step = (member.done or 0) + 1
            if step >= EVENT and view.size == size and not is_after:
                if kind == "lose" and number == size - 1:
                    pipe.send({"event": time.monotonic()})
                    os.kill(os.getpid(), signal.SIGKILL)
                if kind == "gain" and number == 0:
                    store.set("event", "")
            with member.step(step):
                dist.all_reduce(x, group=view.group)
        except dist.DistBackendError:
            continue
        now = time.monotonic()
        if not is_after:
            last = now
            continue
        if first is None:
            first = now
        left -= 1
    pipe.send({"first": first, "pause": first - last if last else None})


def bring_state(
    size: int, others: int, number: int, mib: int, member: Any
) -> tuple[dict[str, Any], Any]:
    """Brings a state to members that come at once. Returns it, with the seconds that
    it took, and the view."""
    import distlite as dist

    store = member._ledger.store
    state: dict[str, Any] = {"x": np.full(mib << 17, 1.0)} if number < size else {}
    if number < size:
        first = member.next()
        # Until all newcomers wait.
        while store.compare_set("arrivals/1", "", "").count(b"\n") < others:
            time.sleep(0.01)
        dist.barrier(first.group)
        view = member.next(anew=True)
    else:
        view = member.next()
    dist.barrier(view.group)
    began = time.monotonic()
    member.restore(view, state.update, lambda: state)
    state["seconds"] = time.monotonic() - began
    dist.barrier(view.group)
    return state, view


def copy(size: int, others: int, number: int, mib: int, member: Any, pipe: Any) -> None:
    """Brings a state to members that come at once, and sends as much as one message."""
    import distlite as dist

    state, view = bring_state(size, others, number, mib, member)
    began = time.monotonic()
    if view.rank == 0:  # of those that have come first
        dist.send(state["x"], group=view.group, group_dst=size)
    elif view.rank == size:
        dist.recv(np.empty_like(state["x"]), group=view.group, group_src=0)
        pipe.send({"message": time.monotonic() - began})
    if number >= size:
        pipe.send({"restore": state["seconds"]})
    dist.barrier(view.group)


def pay(member: Any, pipe: Any) -> None:
    """Compares steps that do nothing with the all_reduce that each of them has."""
    import distlite as dist

    view, flags = member.next(), np.zeros(3, np.int64)
    for _ in range(BATCHES):
        began = time.monotonic()
        for _ in range(CALLS):
            with member.step((member.done or 0) + 1):
                pass
        middle = time.monotonic()
        for _ in range(CALLS):
            dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=view.group)
        end = time.monotonic()
        pipe.send({"step": (middle - began) / CALLS, "bare": (end - middle) / CALLS})


def be_member(number: int, port: int, pipe: Any, arguments: list[str]) -> None:
    import distlite as dist
    from distlite import elastic

    kind, (size, hosts, others, mib) = arguments[0], map(int, arguments[1:])
    if hosts > 1:
        os.environ["DISTLITE_HOST_HINT"] = f"host{number % hosts}"
    store = dist.TCPStore("127.0.0.1", port, timeout=LIMIT)
    is_new = number >= size
    if is_new and kind == "gain":
        store.get("event")
        pipe.send({"event": time.monotonic()})
    elif is_new:
        store.get("begun")
    options = {"min_size": size - (kind == "lose"), "timeout": LIMIT}
    if kind == "lose":
        options.update(max_size=size, spare=is_new)
    with elastic.join(store, **options) as member:
        if number == 0:
            member.next()
            store.set("begun", "")
        if kind == "copy":
            copy(size, others, number, mib, member, pipe)
        elif kind == "pay":
            pay(member, pipe)
        else:
            live(kind, size, number, store, member, pipe)


def note(file: str, what: str) -> None:
    """Appends the time of an event to a file of all ranks, as a line of JSON."""
    with Path(file).open("a") as lines:
        lines.write(json.dumps({what: time.monotonic()}) + "\n")


def die(file: str) -> None:
    """Ends this process as a lost rank, whose time is noted."""
    note(file, "event")
    os.kill(os.getpid(), signal.SIGKILL)


def restart(peer: str, file: str) -> None:
    """A rank that dies, and is started again with all others."""
    dist = importlib.import_module(peer)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    store: Any = dist.TCPStore(
        *(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), is_master=False
    )
    # torch's keys are the same in each attempt, and those of the dead are there.
    store = dist.PrefixStore(f"attempt {attempt}", store)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    is_first = attempt == "0"
    x: Any = np.zeros(256)
    if peer != "distlite":
        x = importlib.import_module("torch").from_numpy(x)
    for step in range(EVENT):
        dist.all_reduce(x)
        if is_first and rank == size - 1 and step == EVENT - 1:
            die(file)
        if not is_first and step == 0:
            note(file, "first")
    if is_first:
        dist.all_reduce(x)  # waits for the rank that is dead
    dist.destroy_process_group()


def main() -> None:
    if sys.argv[1] == "restart":
        restart(*sys.argv[2:])
        return
    import distlite.elastic  # noqa: F401

    here, there = FORK.Pipe()
    server = FORK.Process(target=serve, args=(there,))
    server.start()
    port = here.recv()
    pipes, members = [], []
    for number in range(int(sys.argv[2]) + int(sys.argv[4])):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(
            target=be_member, args=(number, port, theirs, sys.argv[1:])
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        members.append(process)
    told = []
    for pipe in pipes:
        try:
            while pipe.poll(LIMIT):
                told.append(pipe.recv())
        except EOFError:
            pass
    for process in members:
        process.join(LIMIT)
        process.kill()
    here.send("")
    server.join()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
