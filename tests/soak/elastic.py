# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of members that are killed, stopped, fail, come and leave, while
their store is killed and comes back: one list for each epoch, no step lost or executed
twice, and an end in time.

    elastic.py FIRST LAST

Members are forks of a process that has imported distlite, and several worlds go on at
once, because most of a world's time is waiting.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import distlite
from distlite import elastic
from distlite.launch.rank_process import end_with_parent

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from own_folder import own_folder

STEPS = 12
WORLDS = 10  # at once
# Seconds: of a world, of members whose last majority is gone with their store, and what
# a call may be late on a busy machine.
LIMIT, PATIENCE, LATE = 400.0, 20.0, 120.0
# Seconds after which newcomers come, whatever the others do.
SOON = 2.0
# Bytes of a line that the kernel writes as one.
LINE = select.PIPE_BUF
# Numbers of a state that all sources send together.
BULK = 1 << 18
FATES = ["", "", "kill", "kill", "killed", "stop", "leave", "raise"]
GONE = ("kill", "killed", "leave")
ERRORS = (
    distlite.DistBackendError,
    distlite.DistStoreError,
    distlite.DistNetworkError,
)


@dataclass
class Fate:
    """What happens to a process, and when: `kill` and `raise` in the body of a step,
    before its operation or after it; `killed` and `stop` from outside, so many
    milliseconds after that; `leave` before the step."""

    what: str = ""
    step: int = 0
    is_after: bool = False
    milliseconds: float = 0.0
    comes: int = 0  # the step with which it comes
    is_spare: bool = False


@dataclass
class Plan:
    fates: list[Fate]
    rules: dict[str, Any]
    # What happens to the store at a step: it is away for so many seconds, and comes
    # back on its journal, or another one without what it held.
    store: str
    store_step: int
    store_seconds: float
    is_bulky: bool


def plan_of(seed: int) -> Plan:
    choice = random.Random(seed)
    count = choice.randrange(2, 7)
    store = choice.choice(["", "", "", "restarted", "restarted", "lost"])
    is_lost = store == "lost"
    # With a lost store newcomers must be too few to begin anew without the others.
    least = count // 2 + 1 if is_lost else choice.choice([1, 1, 2, count // 2 + 1])
    most = choice.choice([None, None, None, max(least, count - 1), max(least, 2)])
    fates = [Fate()]
    pair = choice.random() < 0.3  # two in one step
    for _ in range(1, count):
        fate = Fate(choice.choice(FATES), choice.randrange(1, STEPS + 1))
        fate.is_after = choice.random() < 0.5
        fate.milliseconds = choice.choice([0.0, choice.uniform(0, 60)])
        if choice.random() < 0.3 and not is_lost:
            fate.comes = choice.randrange(1, STEPS // 2)
            fate.step = max(fate.step, fate.comes + 1)
        fate.is_spare = choice.random() < 0.2
        if pair and fates[-1].what in ("kill", "killed", "stop"):
            fate.what, fate.step = fates[-1].what, fates[-1].step
        fates.append(fate)
    stays = [fate for fate in fates if fate.what not in GONE]
    for fate in fates:
        if len(stays) >= least and not (is_lost and fate.what == "stop"):
            continue
        if fate.what in GONE:
            stays.append(fate)
        fate.what = ""
    rules = {
        "min_size": least,
        "max_size": most,
        "ranks": choice.choice(["compact", "stable"]),
        "quorum": choice.choice(["majority", "majority", "any"]),
        "settle": 3.0 if is_lost else choice.choice([0.2, 0.5, 1.0]),
        "timeout": choice.choice([20.0, 20.0, 4.0]),
    }
    seconds = choice.uniform(0.0, 1.0)
    at = choice.randrange(1, STEPS)
    return Plan(fates, rules, store, at, seconds, choice.random() < 0.2)


class Process:
    """A member, in its process."""

    def __init__(self, number: int, plan: Plan, port: Callable[[], int], fd: int):
        self.number, self.plan, self.fate = number, plan, plan.fates[number]
        self.port_of, self.fd = port, fd
        self.what = self.fate.what
        self.state: list[tuple[int, str, float]] = []
        self.bulk = np.zeros(BULK if plan.is_bulky else 0)
        self.stuck_since, self.epoch = 0.0, ""

    def tell(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what, "number": self.number, **values}) + "\n"
        os.write(self.fd, line.encode()[-LINE:])

    def live(self) -> str:
        while True:
            store = self.connect()
            rules = {**self.plan.rules, "spare": self.fate.is_spare}
            try:
                with elastic.join(store, **rules) as member:
                    return self.work(member)
                return "told that it is finished"
            except elastic.Evicted:
                self.tell("evicted", id=member.id)
                self.state, self.bulk = [], 0 * self.bulk
            except distlite.DistNetworkError:
                continue  # the store is away, or too busy for the call's timeout

    def connect(self) -> distlite.TCPStore:
        self.port = self.port_of()
        while True:
            with suppress(distlite.DistNetworkError):
                return distlite.TCPStore("127.0.0.1", self.port, timeout=20)
            self.port = self.port_of()

    def work(self, member: elastic.Member) -> str:
        while True:
            step = (member.done or 0) + 1
            if self.what == "leave" and step >= self.fate.step and self.state:
                return "left"
            try:
                view = self.next(member)
                if view is None:
                    return "stuck"
                is_sent = member.restore(view, self.load, self.dump)
                step = (member.done or 0) + 1
                if is_sent:
                    self.tell("loads", epoch=label(view), id=member.id)
                if [each[0] for each in self.state] != list(range(1, step)):
                    raise AssertionError(f"{self.state} before step {step}")
                if step > STEPS:
                    break
                self.one_step(member, view, step)
            except (*ERRORS, ZeroDivisionError):
                continue
        while True:
            try:
                member.finish()
                return "finished"
            except distlite.DistNetworkError:
                self.move(member)

    def next(self, member: elastic.Member) -> elastic.View | None:
        began = time.monotonic()
        try:
            view = member.next()
        except ERRORS as error:
            limit = self.plan.rules["timeout"] + self.plan.rules["settle"] + LATE
            if time.monotonic() - began > limit and self.fate.what != "stop":
                raise AssertionError(f"next() ended late: {error}") from error
            self.move(member)
            if self.plan.store == "lost":
                self.stuck_since = self.stuck_since or began
                if time.monotonic() - self.stuck_since > PATIENCE:
                    return None
            raise
        self.stuck_since = 0.0
        if label(view) != self.epoch:  # a step may have joined it
            self.epoch = label(view)
            if view.epoch > 1 and not view.sources:
                self.state, self.bulk = [], 0 * self.bulk
            self.tell(
                "view",
                epoch=label(view),
                id=member.id,
                members=view.members,
                ranks=view.ranks,
                rank=(view.rank, view.group.rank(), view.size, view.group.size()),
                sources=view.sources,
                behind=view.behind,
                done=view.done,
                state=[each[:2] for each in self.state],
            )
        return view

    def move(self, member: elastic.Member) -> None:
        if self.port_of() != self.port:
            member.replace_store(self.connect())

    def one_step(self, member: elastic.Member, view: elastic.View, step: int) -> None:
        self.tell("begins", step=step)
        values = np.ones(1)
        with member.step(step):
            time.sleep(random.uniform(0.0, 0.02))
            if not self.fate.is_after:
                self.fail(step)
            distlite.all_reduce(values, group=view.group)
            if self.fate.is_after:
                self.fail(step)
        self.state = [*self.state, (step, label(view), float(values[0]))]
        self.bulk = self.bulk + values
        self.tell("commits", step=step, epoch=label(view), id=member.id)

    def fail(self, step: int) -> None:
        if step < self.fate.step or self.what in ("", "leave"):
            return
        what, self.what = self.what, ""
        if what == "kill":
            # It may be the one that writes the table of the failure before.
            distlite._C._finish_report()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise ZeroDivisionError
        self.tell(what)

    def load(self, state: dict[str, Any]) -> None:
        self.state, self.bulk = [tuple(each) for each in state["steps"]], state["bulk"]

    def dump(self) -> dict[str, Any]:
        return {"steps": list(self.state), "bulk": self.bulk}


def label(view: elastic.View) -> str:
    # The name of a group tells the epoch and the store's identity.
    return f"{view.epoch} {view.group.group_name}"


class World:
    """All processes of a plan, and what they tell, in the order in which they do."""

    def __init__(self, plan: Plan, folder: str) -> None:
        self.plan, self.folder = plan, folder
        self.told: list[dict[str, Any]] = []
        self.ends: dict[int, str] = {}
        self.started: set[int] = set()
        self.killed: set[int] = set()
        self.running: dict[int, tuple[int, int]] = {}  # by pidfd: number, pid
        self.server = -1
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.fd, self.end = os.pipe()
        self.text, self.step = b"", 0

    def run(self) -> None:
        until = time.monotonic() + LIMIT
        try:
            self.serve(0, "store")
            self.reach(0)
            # Without newcomers the members may be too few for the next step.
            self.after(SOON, self.start_rest)
            while self.running and time.monotonic() < until:
                self.turn(until)
            self.read()
            assert not self.running, f"hangs: {self.stacks()}"
        finally:
            for number, pid in [*self.running.values(), (-1, self.server)]:
                if pid > 0:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    self.ends.setdefault(number, "hangs")
            for fd in (self.fd, self.end, *self.running):
                os.close(fd)

    def turn(self, until: float) -> None:
        """Waits for something, and reacts."""
        poller = select.poll()
        for fd in (self.fd, *self.running):
            poller.register(fd, select.POLLIN)
        first = min([until, *(at for at, _ in self.timers)])
        ready = poller.poll(max(0.0, 1000 * (first - time.monotonic())))
        if any(fd == self.fd for fd, _ in ready):
            self.read()
        for fd, _ in ready:
            if fd != self.fd:
                number, pid = self.running.pop(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                code = os.waitstatus_to_exitcode(status)
                if code == -signal.SIGKILL:
                    self.killed.add(number)
                elif code != 0:
                    self.ends[number] = f"exit status {code}"
        now = time.monotonic()
        for each in [each for each in self.timers if each[0] <= now]:
            self.timers.remove(each)
            each[1]()

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.timers.append((time.monotonic() + seconds, call))

    def read(self) -> None:
        os.set_blocking(self.fd, False)
        with suppress(BlockingIOError):
            self.text += os.read(self.fd, 1 << 20)
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.told.append(said)
            if said["what"] == "begins":
                self.reach(said["step"])
            elif said["what"] in ("killed", "stop"):
                self.hit(said["what"], said["number"])
            elif said["what"] == "end":
                self.ends[said["number"]] = said["how"]

    def reach(self, step: int) -> None:
        """A step has begun, for the first time or again."""
        while self.step <= step:
            for number, fate in enumerate(self.plan.fates):
                if fate.comes == self.step:
                    self.start(number)
            if self.plan.store and self.step == self.plan.store_step:
                self.end_server()
            self.step += 1

    def start_rest(self) -> None:
        for number in range(len(self.plan.fates)):
            self.start(number)

    def hit(self, what: str, number: int) -> None:
        seconds = self.plan.fates[number].milliseconds / 1000
        if what == "killed":
            self.after(seconds, lambda: self.send(number, signal.SIGKILL))
        else:
            self.after(seconds, lambda: self.send(number, signal.SIGSTOP))
            seconds += self.plan.rules["settle"] + 0.7
            self.after(seconds, lambda: self.send(number, signal.SIGCONT))

    def send(self, number: int, what: int) -> None:
        for each, pid in self.running.values():
            if each == number:
                os.kill(pid, what)

    # The processes.

    def fork(self, name: str, run: Callable[[], None]) -> int:
        parent, pid = os.getpid(), os.fork()
        if pid:
            return pid
        try:
            end_with_parent(parent)
            output = os.open(
                f"{self.folder}/{name}", os.O_CREAT | os.O_WRONLY | os.O_APPEND
            )
            os.dup2(output, 1)
            os.dup2(output, 2)
            for fd in (self.fd, *self.running):
                os.close(fd)
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def start(self, number: int) -> None:
        def run() -> None:
            random.seed()
            process = Process(number, self.plan, self.port, self.end)
            how = process.live()
            # All sources send a part of it.
            assert (process.bulk == sum(each[2] for each in process.state)).all()
            process.tell("end", how=how, state=process.state)

        if number in self.started:
            return
        self.started.add(number)
        pid = self.fork(f"process{number}", run)
        self.running[os.pidfd_open(pid)] = number, pid

    def port(self) -> int:
        with open(f"{self.folder}/port") as file:
            return int(file.read())

    def serve(self, port: int, journal: str) -> None:
        fd, end = os.pipe()

        def run() -> NoReturn:
            store = distlite.TCPStore(
                "127.0.0.1",
                port,
                is_master=True,
                wait_for_workers=False,
                journal=f"{self.folder}/{journal}",
            )
            os.write(end, str(store.port).encode())
            while True:
                signal.pause()

        self.server = self.fork(f"server-{journal}", run)
        os.close(end)
        text = os.read(fd, 16)
        os.close(fd)
        assert text, "the store's server has not started"
        with open(f"{self.folder}/port.new", "wb") as file:
            file.write(text)
        os.rename(f"{self.folder}/port.new", f"{self.folder}/port")

    def end_server(self) -> None:
        os.kill(self.server, signal.SIGKILL)
        os.waitpid(self.server, 0)
        self.server = -1
        again = (0, "other") if self.plan.store == "lost" else (self.port(), "store")
        self.after(self.plan.store_seconds, lambda: self.serve(*again))

    def stacks(self) -> str:
        """What those do that have not ended, below in their outputs."""
        for _, pid in self.running.values():
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGABRT)
        time.sleep(0.5)
        return str([number for number, _ in self.running.values()])

    def outputs(self) -> Iterator[str]:
        for number in range(len(self.plan.fates)):
            path = f"{self.folder}/process{number}"
            if os.path.exists(path):
                with open(path, errors="replace") as file:
                    text = file.read()[-3000:]
                if text and (number not in self.killed):
                    yield f"process {number}:\n{text}"

    # Guarantees.

    def check(self) -> None:
        for number in range(len(self.plan.fates)):
            end = self.ends.get(number, "")
            is_killed = self.plan.fates[number].what in ("kill", "killed")
            never_came = number not in self.started
            expected = ["finished", "left", "told that it is finished"]
            # What is left of the last members may be too few in another store.
            expected += ["stuck"] * (self.plan.store == "lost")
            is_good = end in expected or (is_killed and number in self.killed)
            assert is_good or never_came, f"process {number}: {end or 'no end'}"
        views = self.check_views()
        self.check_steps(views)

    def check_views(self) -> dict[str, dict[str, Any]]:
        """One list for each epoch; those that stay keep their order or their ranks."""
        views: dict[str, dict[str, Any]] = {}
        numbers: dict[int, str] = {}
        least, most = self.plan.rules["min_size"], self.plan.rules["max_size"]
        for view in (said for said in self.told if said["what"] == "view"):
            known = views.setdefault(view["epoch"], view)
            for name in ("members", "ranks", "sources", "behind", "done"):
                assert view[name] == known[name], f"{name} of {view} and {known}"
            if view["members"].index(view["id"]) not in view["behind"]:
                assert view["state"] == known["state"] or known["behind"], (
                    f"states of {view} and {known}"
                )
            place = view["members"].index(view["id"])
            size = len(view["members"])
            assert view["rank"] == [view["ranks"][place], place, size, size], view
            number = int(view["epoch"].split()[0])
            assert numbers.setdefault(number, view["epoch"]) == view["epoch"], (
                f"two epochs {number}: {views}"
            )
            is_finished = any(said["what"] == "end" for said in self.told)
            assert len(set(view["members"])) == size, view
            assert most is None or size <= most, view
            assert size >= least or is_finished, view
        for number, epoch in numbers.items():
            if number - 1 in numbers:
                self.compare(views[numbers[number - 1]], views[epoch])
        return views

    def compare(self, last: dict[str, Any], view: dict[str, Any]) -> None:
        stays = [each for each in last["members"] if each in view["members"]]
        before = dict(zip(last["members"], last["ranks"], strict=True))
        after = dict(zip(view["members"], view["ranks"], strict=True))
        if self.plan.rules["ranks"] == "stable":
            assert all(before[each] == after[each] for each in stays), (last, view)
            return
        assert list(after.values()) == list(range(len(after))), view
        assert view["members"][: len(stays)] == stays, (last, view)

    def check_steps(self, views: dict[str, dict[str, Any]]) -> None:
        """All that finish have executed each step once, in the same epoch; who commits
        one that is not among those knows nothing later, or the state was lost."""
        finals = [said["state"] for said in self.told if said.get("how") == "finished"]
        if self.plan.store == "lost" and "stuck" in self.ends.values():
            return
        ends = [
            e for e in self.told if (e["what"], e.get("step")) == ("commits", STEPS)
        ]
        if not finals and ends and all(e["number"] in self.killed for e in ends):
            return  # after the last step, and before they could say more
        assert finals, "nobody has finished"
        assert all(final == finals[0] for final in finals), f"states {finals}"
        assert [each[0] for each in finals[0]] == list(range(1, STEPS + 1)), finals[0]
        for step, epoch, total in finals[0]:
            assert total == len(views[epoch]["members"]), f"step {step}: {finals[0]}"
        kept = {(step, epoch) for step, epoch, _ in finals[0]}
        last: dict[str, Any] = {}  # what each member has told last of views and steps
        for said in self.told:
            if said["what"] in ("view", "commits"):
                last[said["id"]] = said
        begun_anew = [int(e.split()[0]) for e, v in views.items() if not v["sources"]]
        for said in (said for said in self.told if said["what"] == "commits"):
            is_kept = (said["step"], said["epoch"]) in kept
            was_lost = int(said["epoch"].split()[0]) < max(begun_anew, default=0)
            assert is_kept or was_lost or last[said["id"]] is said, (
                f"{said} is not in {finals[0]}"
            )


def one_world(seed: int) -> None:
    plan = plan_of(seed)
    with own_folder("elastic-", "/dev/shm") as folder:
        world = World(plan, folder)
        try:
            world.run()
            world.check()
        except BaseException as error:
            rows = "\n".join(map(str, plan.fates))
            told = "\n".join(map(json.dumps, world.told))
            for said in world.told:
                if said["what"] == "view":
                    told = told.replace(said["id"], f"#{said['number']}")
            texts = "\n".join(world.outputs())
            raise AssertionError(
                f"{error or repr(error)}\n{plan}\n{rows}\n{told}\n{texts}\n"
                f"{''.join(traceback.format_tb(error.__traceback__))}"
            ) from None


def run_worlds(seeds: Iterator[int]) -> tuple[int, int]:
    rounds = failures = 0
    for seed in seeds:
        rounds += 1
        if rounds % 100 == 0:
            os.write(1, f"elastic: seed {seed}\n".encode())
        try:
            one_world(seed)
        except AssertionError as error:
            failures += 1
            text = f"-- elastic: seed {seed} failed\n{error}\n"
            text += f"-- replay: python tests/soak/elastic.py {seed} {seed}\n"
            os.write(1, text.encode())
    return rounds, failures


def run(seeds_of: Callable[[int], Iterator[int]], worlds: int) -> tuple[int, int]:
    """Runs worlds at once, each with its seeds; how many, and how many have failed."""
    rounds = failures = 0
    fds = []
    gc.freeze()  # forks then share more of what the parent has
    for turn in range(worlds):
        fd, end = os.pipe()
        parent = os.getpid()
        if os.fork() == 0:
            end_with_parent(parent)
            counts = run_worlds(seeds_of(turn))
            os.write(end, json.dumps(counts).encode())
            os._exit(0)
        os.close(end)
        fds.append(fd)
    for fd in fds:
        with open(fd) as file:
            done, failed = json.loads(file.read() or "[0, 1]")
        rounds, failures = rounds + done, failures + failed
    for _ in fds:
        os.wait()
    return rounds, failures


def main(seconds: float, seed: int) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    end = time.monotonic() + seconds

    def seeds_of(turn: int) -> Iterator[int]:
        each = seed + turn
        while each == seed or time.monotonic() < end:
            yield each
            each += WORLDS

    rounds, failures = run(seeds_of, WORLDS)
    print(f"elastic: {rounds} worlds from seed {seed} on, {failures} failed")
    return failures


if __name__ == "__main__":
    faulthandler.enable()
    first, last = int(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    count = min(WORLDS, last - first + 1)
    rounds, failures = run(lambda t: iter(range(first + t, last + 1, count)), count)
    used = os.times()
    spent = used.children_user + used.children_system
    print(
        f"elastic: {rounds} worlds of seeds {first} to {last}, {failures} failed, "
        f"{time.monotonic() - began:.0f} s, {spent / max(rounds, 1):.3f} s of "
        "processor time each"
    )
    sys.exit(failures > 0)
