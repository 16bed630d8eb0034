# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of messages.py: one rank of one library.

    messages_peer.py PEER RANK SIZE FOLDER PLAN

As collectives_peer.py; PEER may be loop, too: messages_loop.c, which moves the bytes of
two ranks and does nothing else.  Each rank sends to the next one of a ring and receives
from the one before it; `there_and_back` is between two neighbours.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import mmap
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from collectives_peer import ITEM_SIZE, Dist, Mpi, place_of, with_writing
from measure import KIB, microseconds_of, time_warm
from placement import of_both
from processes import build_newer

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


class Loop(DistMessages):
    """messages_loop.c, with distlite's barrier around it.

    Which parts and stores are the fastest depends on the size and on the cores."""

    OPS = ("sendrecv", "isend_recv", "there_and_back")
    PARTS = (8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB)
    TRIAL_SECONDS = 0.02

    def __init__(self, rank: int, size: int, folder: str) -> None:
        super().__init__("distlite", rank, size, folder)
        self._folder = folder
        self._loop = load_loop()
        self._numbers = itertools.count()

    def bind_message(self, op: str, ends: Ends) -> Callable[[], Any]:
        """One call of the op, of the fastest kind."""
        if self.size != 2 or op not in self.OPS:
            raise AttributeError("not in the loop")
        bytes_of = ends.sources[0].nbytes
        parts = [part for part in self.PARTS if part // 2 < bytes_of] or self.PARTS[:1]
        kinds = list(itertools.product(parts, (False, True)))
        trial = make_ends(self, op, bytes_of)
        times = [
            self.maximum(
                time_warm(self, self._bind(op, trial, *kind), self.TRIAL_SECONDS)
            )
            for kind in kinds
        ]
        return self._bind(op, ends, *kinds[times.index(min(times))])

    def _bind(
        self, op: str, ends: Ends, part: int, is_streaming: bool
    ) -> Callable[[], Any]:
        side = ctypes.create_string_buffer(self._loop.loop_size())
        side.memory = self._map(self._loop.loop_memory())  # which lives as long
        self._loop.loop_open(side, side.memory, self.rank, part, is_streaming)
        source, target = ends.sources[0], ends.targets[0]
        send = (source.ctypes.data, source.nbytes)
        receive = (target.ctypes.data, target.nbytes)
        exchange = self._loop.loop_exchange
        if op != "there_and_back":
            return partial(exchange, side, *receive, *send)
        steps = [
            partial(exchange, side, None, 0, *send),
            partial(exchange, side, *receive, None, 0),
        ]
        first, second = steps if self.rank == 0 else reversed(steps)

        def there_and_back() -> None:
            first()
            second()

        return there_and_back

    def _map(self, size: int) -> Any:
        """Memory that both ranks map: new each time, with all pages."""
        name = f"{self._folder}/loop{next(self._numbers)}"
        with open(name, "a+b") as file:
            file.truncate(size)
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            memory = mmap.mmap(file.fileno(), size, flags)
        self.barrier()
        return (ctypes.c_uint8 * size).from_buffer(memory)


def load_loop() -> ctypes.CDLL:
    """Compiles it if it is newer."""
    path = build_newer("messages_loop.c", "messages_loop.so", "-shared", "-fPIC")
    loop = ctypes.PyDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    loop.loop_size.restype = loop.loop_memory.restype = size
    loop.loop_open.argtypes = (pointer, pointer, ctypes.c_int, size, ctypes.c_bool)
    loop.loop_exchange.argtypes = (pointer, pointer, size, pointer, size)
    loop.loop_exchange.restype = None
    return loop


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


def make_peer(kind: str, rank: int, size: int, folder: str) -> Any:
    """A rank of the library."""
    if kind == "mpi":
        return MpiMessages()
    if kind == "loop":
        return Loop(rank, size, folder)
    return DistMessages(kind, rank, size, folder)


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
    peer = make_peer(kind, int(rank), int(size), folder)
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
