# SPDX-License-Identifier: BSD-3-Clause
"""Random programs that finish, and random programs that do not.

    python tests/soak/deadlocks.py --seconds 600 --seed 1

Each program is a schedule of operations of random groups of 2 to 6 ranks on one or more
(simulated) hosts: collectives, messages, asynchronous operations that are waited for
later, a second thread with groups of its own, and pauses that are longer than the
DISTLITE_DEADLOCK_SECONDS of the run.  Every rank takes its operations in the order of
the schedule, so a program finishes, and no rank may tell of a deadlock.  Every third
one ends with a deadlock of a random kind, which all ranks in it tell of.  A failure
prints the seed that repeats it; the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

AFTER = 0.3  # DISTLITE_DEADLOCK_SECONDS
OPERATIONS = 60
LIMIT = 120.0  # of one program, in seconds
TOLD_WITHIN = 12.0
MARK = "deadlock: these ranks wait for each other"
SIZES = (1, 100, 50_000, 1_000_000)
KINDS = ("recv_in_collective", "crossed", "sends", "ring", "async")


@dataclass
class Step:
    """One operation of some ranks; `ranks[0]` is the root or the sender."""

    op: str
    group: int
    ranks: list[int]
    size: int
    is_async: bool
    thread: int
    pauses: dict[int, float] = field(default_factory=dict)


@dataclass
class Program:
    """What all ranks know of it."""

    world: int
    hosts: list[str]
    groups: list[list[int]]
    steps: list[Step]
    deadlock: str  # empty: it finishes
    culprits: list[int]


def make_program(seed: int) -> Program:
    """The same on every rank."""
    choose = random.Random(seed)
    world = choose.randint(2, 6)
    host_count = choose.choice((1, 1, 2, 3))
    hosts = [f"host{choose.randrange(host_count)}" for _ in range(world)]
    groups = [list(range(world))]
    for _ in range(4):
        members = choose.sample(range(world), choose.randint(2, world))
        groups.append(sorted(members))
    has_thread = choose.random() < 0.3
    steps = []
    for _ in range(OPERATIONS):
        # The second thread has the last two groups for itself: else the order of
        # operations in a group would depend on the threads' luck.
        thread = int(has_thread and choose.random() < 0.3)
        at = choose.choice((3, 4)) if thread else choose.choice((0, 1, 2))
        op = choose.choice(
            ("all_reduce", "barrier", "broadcast", "reduce", "all_gather", "message")
        )
        ranks = list(groups[at])
        choose.shuffle(ranks)
        if op == "message":
            ranks = ranks[:2]
        step = Step(op, at, ranks, choose.choice(SIZES), choose.random() < 0.3, thread)
        for rank in step.ranks:
            if choose.random() < 0.03:
                step.pauses[rank] = choose.uniform(AFTER, 8 * AFTER)
        steps.append(step)
    deadlock = choose.choice(KINDS) if seed % 3 == 2 and not has_thread else ""
    count = choose.randint(2, world) if deadlock == "ring" else 2
    culprits = choose.sample(range(world), count)
    return Program(world, hosts, groups, steps, deadlock, sorted(culprits))


class Runner:
    """One rank of a program."""

    def __init__(self, program: Program, rank: int) -> None:
        import distlite

        self.dist = distlite
        self.program = program
        self.rank = rank
        self.groups = [distlite.new_group(ranks) for ranks in program.groups]

    def run(self, thread: int) -> None:
        """The steps of one thread; what it began asynchronously it waits for later."""
        pending = []
        for number, step in enumerate(self.program.steps):
            if step.thread != thread or self.rank not in step.ranks:
                continue
            time.sleep(step.pauses.get(self.rank, 0.0))
            work, check = self._start(step, number)
            if step.is_async:
                pending.append((work, check))
                if len(pending) < 4:
                    continue
            else:
                # Asynchronous ones of other groups may wait for ranks that are behind.
                pending.append((work, check))
            for work, check in pending:
                if work is not None:
                    work.wait()
                check()
            pending = []
        for work, check in pending:
            if work is not None:
                work.wait()
            check()

    def _start(self, step: Step, number: int):
        import numpy as np

        dist, group = self.dist, self.groups[step.group]
        value = float(number % 100)
        first = step.ranks[0]
        members = self.program.groups[step.group]
        array = np.full(step.size, value + self.rank, np.float32)
        total = len(members) * value + sum(members)
        kept, is_async = array, step.is_async
        expected: float | None = None
        if step.op == "all_reduce":
            work = dist.all_reduce(array, group=group, async_op=is_async)
            expected = total
        elif step.op == "barrier":
            work = dist.barrier(group=group, async_op=is_async)
        elif step.op == "broadcast":
            work = dist.broadcast(array, src=first, group=group, async_op=is_async)
            expected = value + first
        elif step.op == "reduce":
            work = dist.reduce(array, dst=first, group=group, async_op=is_async)
            expected = total if self.rank == first else None
        elif step.op == "all_gather":
            rows = [np.empty_like(array) for _ in members]
            work = dist.all_gather(rows, array, group=group, async_op=is_async)
            kept, expected = rows[0], value + members[0]
        elif self.rank == first:
            send = dist.isend if is_async else dist.send
            work = send(array, step.ranks[1], group=group, tag=number)
        else:
            source = first if number % 2 == 0 or is_async else None
            if is_async:
                work = dist.irecv(array, src=source, group=group, tag=number)
            else:
                work = None
                dist.recv(array, src=source, group=group, tag=number)
            expected = value + first

        def check(kept=kept, expected=expected) -> None:
            if expected is not None and not (kept == np.float32(expected)).all():
                raise AssertionError(f"step {number} {step}: {kept[:4]} for {expected}")

        return (work if is_async else None), check

    def hang(self) -> None:
        """The deadlock at the end; ends with the group's timeout."""
        import numpy as np

        dist, culprits, kind = self.dist, self.program.culprits, self.program.deadlock
        if self.rank not in culprits:
            return
        small, large = np.ones(4, np.float32), np.ones(1_000_000, np.float32)
        at = culprits.index(self.rank)
        following = culprits[(at + 1) % len(culprits)]
        if kind == "recv_in_collective" and at == 0:
            dist.all_reduce(small, group=self.groups[0])
        elif kind in ("recv_in_collective", "ring"):
            dist.recv(small, src=following, tag=7)
        elif kind == "sends":
            dist.send(large, dst=following, tag=7)
        elif kind == "async":
            first, second = self.pair if at == 0 else self.pair[::-1]
            dist.all_reduce(small, group=first, async_op=True).wait()
            dist.all_reduce(small, group=second)
        else:
            first, second = self.pair if at == 0 else self.pair[::-1]
            dist.all_reduce(small, group=first)
            dist.all_reduce(small, group=second)

    def prepare(self) -> None:
        """Groups of the culprits alone, which all ranks make."""
        culprits = self.program.culprits
        self.pair = [self.dist.new_group(culprits) for _ in range(2)]


def be_rank(seed: int, rank: int, path: str) -> None:
    """The body of one process."""
    import threading

    import distlite

    program = make_program(seed)
    distlite.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=program.world,
        timeout=timedelta(seconds=LIMIT),
    )
    runner = Runner(program, rank)
    runner.prepare()
    thread = threading.Thread(target=runner.run, args=(1,))
    if any(step.thread for step in program.steps):
        thread.start()
    runner.run(0)
    if thread.ident is not None:
        thread.join()
    print("finished", flush=True)
    distlite.barrier()
    if program.deadlock:
        # Far longer than it takes to be told, far shorter than the limit.
        for group in (None, *runner.groups, *runner.pair, runner.last):
            if group is None or isinstance(group, distlite.ProcessGroup):
                from distlite.distributed_c10d import _get_default_group

                (group or _get_default_group()).set_timeout(
                    timedelta(seconds=TOLD_WITHIN)
                )
        try:
            runner.hang()
        except distlite.DistBackendError as error:
            print("ended:", error, flush=True)
        # An exit would end the waits of the others before they find the deadlock.
        store = distlite.distributed_c10d._get_default_store()
        store.set(f"told/{rank}", b"")
        store.wait([f"told/{culprit}" for culprit in program.culprits])
        os._exit(0)
    distlite.destroy_process_group()


def run_program(seed: int) -> str:
    """Empty, or what is wrong."""
    program = make_program(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "store")
        processes = []
        for rank in range(program.world):
            mode = "DETAIL" if seed % 5 == 4 else "OFF"
            env = os.environ | {
                "DISTLITE_DEADLOCK_SECONDS": str(AFTER),
                "DISTLITE_HOST_HINT": program.hosts[rank],
                "TORCH_DISTRIBUTED_DEBUG": mode,
            }
            command = [sys.executable, __file__, "--seed", str(seed), "--be"]
            with (Path(folder) / f"{rank}").open("w") as output:
                processes.append(
                    subprocess.Popen(
                        [*command, str(rank), "--store", path],
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=env,
                    )
                )
        deadline = time.monotonic() + 2 * LIMIT
        problems = []
        for rank, process in enumerate(processes):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                problems.append(f"rank {rank} is late")
        for process in processes:
            process.kill()
            process.wait()
        for rank, process in enumerate(processes):
            text = (Path(folder) / f"{rank}").read_text()
            problems += judge(program, rank, process.returncode, text)
        return "\n".join(problems)


def judge(program: Program, rank: int, status: int, text: str) -> list[str]:
    """What is wrong with the end of one rank."""
    before, _, after = text.partition("finished\n")
    if MARK in before or (MARK in after and not program.deadlock):
        return [f"rank {rank}: a false picture:\n{text}"]
    if status != 0 or "finished\n" not in text:
        return [f"rank {rank} ended with {status}:\n{text}"]
    if program.deadlock and rank in program.culprits and MARK not in after:
        return [f"rank {rank} did not tell of the deadlock {program.deadlock}:\n{text}"]
    return []


def one_program(seed: int) -> None:
    problem = run_program(seed)
    assert not problem, f"{make_program(seed)}\n{problem}"


def main(seconds: float, seed: int) -> int:
    """As a part of the soak."""
    from rounds import run_rounds

    return run_rounds("deadlocks", one_program, seconds, seed)


def run_alone() -> int:
    """Runs programs until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first program")
    parser.add_argument("--only", action="store_true", help="this program alone")
    parser.add_argument("--be", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be is not None:
        be_rank(options.seed, options.be, options.store)
        return 0
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    begun = time.monotonic()
    counts = {"finished": 0, "deadlocked": 0}
    while True:
        problem = run_program(seed)
        if problem:
            print(f"seed {seed}: {make_program(seed)}\n{problem}")
            print(f"repeat with: {sys.argv[0]} --only --seed {seed}")
            return 1
        counts["deadlocked" if make_program(seed).deadlock else "finished"] += 1
        seed += 1
        if options.only or time.monotonic() - begun > options.seconds:
            break
    print(f"deadlocks: {counts}, the last seed was {seed - 1}")
    return 0


if __name__ == "__main__":
    sys.exit(run_alone())
