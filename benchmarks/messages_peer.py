# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of messages.py: one rank of one library.

    messages_peer.py PEER RANK SIZE FOLDER PLAN

As collectives_peer.py.  Each rank sends to the next one of a ring and receives from the
one before it; `there_and_back` is between two neighbours.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from collectives_peer import ITEM_SIZE, Dist, Mpi, place_of, with_writing
from measure import microseconds_of
from placement import of_both

# Messages of one call in each direction.
COUNTS = {
    "sendrecv": 1,
    "isend_recv": 1,
    "there_and_back": 1,
    "posts_1": 1,
    "batch_1": 1,
    "new_batch_1": 1,
    "posts_16": 16,
    "batch_16": 16,
    "new_batch_16": 16,
}


class Ends(NamedTuple):
    """The arrays of a call, and the ranks that they go to and come from."""

    sources: list[np.ndarray]
    targets: list[np.ndarray]
    after: int
    before: int


def make_ends(peer: Any, op: str, size: int) -> Ends:
    """Zeros."""
    count = max(1, size // ITEM_SIZE)
    sources, targets = (
        [np.zeros(count, np.float32) for _ in range(COUNTS[op])] for _ in range(2)
    )
    if op == "there_and_back":
        return Ends(sources, targets, peer.rank ^ 1, peer.rank ^ 1)
    return Ends(sources, targets, (peer.rank + 1) % peer.size, peer.rank - 1)


class DistMessages(Dist):
    """distlite or torch.distributed."""

    def bind_message(self, op: str, ends: Ends) -> Callable[[], Any]:
        """One call of the op, waited for."""
        dist = self._module
        sources, targets = (list(map(self._wrap, arrays)) for arrays in ends[:2])
        source, target = sources[0], targets[0]
        after, before = ends.after, ends.before % self.size

        def send_and_receive() -> None:
            work = dist.isend(source, after)
            dist.recv(target, before)
            work.wait()

        def there_and_back() -> None:
            if self.rank < after:
                dist.send(source, after)
                dist.recv(target, after)
            else:
                dist.recv(target, after)
                dist.send(source, after)

        def posts() -> None:
            works = [dist.irecv(each, before) for each in targets]
            works += [dist.isend(each, after) for each in sources]
            for work in works:
                work.wait()

        def make_batch() -> list[Any]:
            receives = [dist.P2POp(dist.irecv, each, before) for each in targets]
            return receives + [dist.P2POp(dist.isend, each, after) for each in sources]

        def run_batch(operations: list[Any]) -> None:
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        match op.rpartition("_")[0] or op:
            case "isend":
                return send_and_receive
            case "there_and":
                return there_and_back
            case "posts":
                return posts
            case "batch":
                return partial(run_batch, make_batch())
            case "new_batch":
                return lambda: run_batch(make_batch())
        return partial(dist.sendrecv, target, source, after, before)


class MpiMessages(Mpi):
    """mpi4py on the MPI that the environment chooses."""

    def bind_message(self, op: str, ends: Ends) -> Callable[[], Any]:
        """One call of the op, waited for."""
        world, wait_all = self._world, self._mpi.Request.Waitall
        sources, targets, after, before = ends
        source, target, before = sources[0], targets[0], before % self.size

        def send_and_receive() -> None:
            request = world.Isend(source, after)
            world.Recv(target, before)
            request.Wait()

        def there_and_back() -> None:
            if self.rank < after:
                world.Send(source, after)
                world.Recv(target, after)
            else:
                world.Recv(target, after)
                world.Send(source, after)

        def posts() -> None:
            requests = [world.Irecv(each, before) for each in targets]
            wait_all(requests + [world.Isend(each, after) for each in sources])

        if op == "isend_recv":
            return send_and_receive
        if op == "there_and_back":
            return there_and_back
        if op == "sendrecv":
            return partial(world.Sendrecv, source, after, 0, target, before)
        return posts


def check(peer: Any, ends: Ends, call: Callable[[], Any]) -> None:
    """One call, whose result must be right."""
    for i, source in enumerate(ends.sources):
        source.fill(100 * peer.rank + i)
    call()
    for i, target in enumerate(ends.targets):
        if not (target == 100 * (ends.before % peer.size) + i).all():
            raise SystemExit(f"rank {peer.rank}: a message is wrong")


def main(kind: str, rank: str, size: str, folder: str, plan_text: str) -> None:
    """Every cell of the plan."""
    plan = json.loads(plan_text)
    peer = (
        MpiMessages()
        if kind == "mpi"
        else DistMessages(kind, int(rank), int(size), folder)
    )
    place = place_of(peer, Path(folder))
    gc.disable()
    with open(f"{folder}/said" if peer.rank == 0 else os.devnull, "w") as said:
        for op, bytes_of in plan["cells"]:
            ends = make_ends(peer, op, bytes_of)
            before = place()
            try:
                call = peer.bind_message(op, ends)
                if not plan["first"]:
                    check(peer, ends, call)
                calls = call
                if plan["is_written"]:
                    calls = with_writing(call, ends.sources)
                found = microseconds_of(peer, calls, plan)
                if plan["first"]:
                    check(peer, ends, call)
            except AttributeError as error:
                print(f"{op}: {error}", file=sys.stderr)
                found = {}
            cores = of_both(before, place())
            for name, value in found.items():
                line = json.dumps([op + name, bytes_of, cores, value])
                print(line, file=said, flush=True)
    peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
