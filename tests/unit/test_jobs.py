# SPDX-License-Identifier: BSD-3-Clause
"""distlite.elastic.JobQueue: no job is lost, and none is acknowledged twice, wherever a
worker stops."""

from __future__ import annotations

import itertools
import json
import os
import threading
from functools import partialmethod
from typing import Any

import pytest
from store_kinds import Background, join_all

from distlite import DistStoreError, HashStore, QueueEmptyError, Store, TCPStore
from distlite.elastic import JobQueue, jobs

LIMIT = 30.0


@pytest.fixture(params=["hash", "tcp"])
def stores(request: pytest.FixtureRequest) -> Any:
    if request.param == "hash":
        yield itertools.repeat(HashStore())
        return
    with TCPStore("127.0.0.1", 0, is_master=True) as served:
        yield (TCPStore("127.0.0.1", served.port, timeout=LIMIT) for _ in iter(int, 1))


class Stopped(BaseException):
    """What a process that is killed does: nothing any more."""


class Stopping(Store):
    """A store whose user stops for good before or after one of its requests."""

    def __init__(self, store: Store, requests: int, is_sent: bool) -> None:
        super().__init__()
        self.store, self.left, self.is_sent = store, requests, is_sent

    def request(self, name: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.is_sent):
            raise Stopped
        waits = name in ("get", "queue_pop")
        options = {"timeout": self.timeout} if waits else {}
        result = getattr(self.store, name)(*arguments, **options)
        if self.left == 0:
            raise Stopped
        return result


for _name in (
    *("add", "check", "compare_set", "delete_key", "get", "queue_pop", "queue_push"),
    "wait",
):
    setattr(Stopping, _name, partialmethod(Stopping.request, _name))


def no_death_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between hosts: all workers of these tests are in one process, which lives."""
    monkeypatch.setattr(jobs, "is_known_dead", lambda worker, own: False)
    monkeypatch.setattr(jobs, "GRACE", 0.05)
    monkeypatch.setattr(jobs, "LOOK", 0.02)


def take_all(queue: JobQueue, count: int) -> list[bytes]:
    """Does jobs until none is unfinished."""
    found = []
    while queue.unfinished():
        with queue.take(LIMIT) as job:
            found.append(job.data)
    assert len(found) <= count
    return found


def test_jobs_come_in_order_and_once(stores):
    queue, other = JobQueue(next(stores)), JobQueue(next(stores))
    assert [queue.push(text) for text in ("a", b"", "\u00e9")] == [1, 2, 3]
    assert queue.unfinished() == other.unfinished() == 3
    with queue.take() as first, other.take() as second:
        assert (first.number, first.data) == (1, b"a")
        assert (second.number, second.data) == (2, b"")
        assert first.is_held and second.is_held
    assert not first.is_held
    with other.take() as third:
        assert third.data == "\u00e9".encode()
    assert queue.unfinished() == 0
    with pytest.raises(QueueEmptyError, match="no job became free in jobs"):
        queue.take(timeout=0)


def test_a_worker_that_waits_gets_the_next_job(stores):
    queue = JobQueue(next(stores))
    waiter = Background(lambda: JobQueue(next(stores)).take(LIMIT).data)
    queue.push("late")
    assert waiter.join() == b"late"


def test_an_exception_gives_the_job_back(stores):
    queue = JobQueue(next(stores))
    queue.push("hard")
    with pytest.raises(ZeroDivisionError), queue.take() as job:
        1 / 0  # noqa: B018
    with queue.take(timeout=0) as again:
        assert again.number == job.number
    with pytest.raises(DistStoreError, match=r"job 1 is no longer this worker's"):
        job.done()


def test_many_workers_do_each_job_once(stores):
    queues = [JobQueue(next(stores)) for _ in range(4)]
    for number in range(40):
        queues[0].push(str(number))
    done: list[bytes] = []

    def work(queue: JobQueue) -> None:
        try:
            while True:
                with queue.take(timeout=0) as job:
                    done.append(job.data)
        except QueueEmptyError:
            return

    join_all([Background(lambda queue=queue: work(queue)) for queue in queues])
    assert sorted(map(int, done)) == list(range(40))
    assert queues[0].unfinished() == 0


# Threads that renew leases stop, too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_sent", [False, True])
def test_workers_that_stop_at_any_request(is_sent, monkeypatch):
    """One after the other, each a request later, until one of them does a job."""
    no_death_is_seen(monkeypatch)
    store = HashStore()
    queue = JobQueue(store, lease=0.1)
    for number in range(3):
        queue.push(str(number))
    stopped, done = 0, []
    for requests in itertools.count(1):
        worker = JobQueue(Stopping(store, requests, is_sent), lease=0.1)
        try:
            with worker.take(LIMIT) as job:
                done.append(job.data)
        except Stopped:
            stopped += 1
        else:
            break
        del worker
    assert stopped >= 6
    rest = take_all(queue, 3)
    # Those that stopped in `done` may or may not have acknowledged it.
    assert {*done, *rest} == {b"0", b"1", b"2"}
    assert len(rest) == len({*rest})
    held = json.loads(store.get("jobs/jobs/table"))
    assert held["held"] == {} and held["last"] == 3


@pytest.mark.parametrize("is_sent", [False, True])
def test_programs_that_stop_while_they_push(is_sent, monkeypatch):
    no_death_is_seen(monkeypatch)
    store = HashStore()
    pushed = []
    for requests in itertools.count(1):
        try:
            JobQueue(Stopping(store, requests, is_sent)).push(str(requests))
        except Stopped:
            continue
        pushed.append(str(requests).encode())
        break
    found = take_all(JobQueue(store), 5)
    assert {*pushed} <= {*found}
    assert len(found) == len({*found})


def test_a_number_that_was_given_up_is_not_used(monkeypatch):
    """Who pushes is stopped between its two requests, for longer than workers wait."""
    no_death_is_seen(monkeypatch)
    store = HashStore()
    queue = JobQueue(store)

    class Slow(Stopping):
        def request(self, name: str, *arguments: Any) -> Any:
            if name == "compare_set" and self.left == 10**6 - 1:
                with pytest.raises(QueueEmptyError):
                    queue.take(timeout=0)
            return super().request(name, *arguments)

    for name in ("add", "compare_set", "queue_push"):
        setattr(Slow, name, partialmethod(Slow.request, name))
    assert JobQueue(Slow(store, 10**6, True)).push("here") == 2
    with queue.take(timeout=0) as job:
        assert job.data == b"here"


@pytest.mark.parametrize("is_sent", [False, True])
def test_what_nobody_pushed_is_nobody_s_job(is_sent, monkeypatch):
    """Who pushes stops between its two requests, and who takes it at any of its own."""
    no_death_is_seen(monkeypatch)
    for requests in range(1, 8):
        store = HashStore()
        queue = JobQueue(store, lease=0.05)
        with pytest.raises(Stopped):
            JobQueue(Stopping(store, 1, True)).push("never")
        worker = JobQueue(Stopping(store, requests, is_sent), lease=0.05)
        with pytest.raises((Stopped, QueueEmptyError)):
            worker.take(timeout=0)
        with pytest.raises(QueueEmptyError):
            queue.take(timeout=0.2)
        assert queue.unfinished() == 0


def test_only_who_held_the_job_last_acknowledges_it(monkeypatch):
    """Both leave the same table behind."""
    no_death_is_seen(monkeypatch)
    store = HashStore()
    queue = JobQueue(store, lease=0.1)

    class Late(Stopping):
        is_late = False

        def compare_set(self, *arguments: Any) -> Any:
            if self.is_late:
                self.is_late = False
                queue.take(LIMIT).done()
            return self.store.compare_set(*arguments)

    slow = Late(store, 10**6, True)
    late = JobQueue(slow, lease=0.1)
    monkeypatch.setattr(late, "_renew_once", lambda: None)
    queue.push("job")
    job = late.take()
    slow.is_late = True
    with pytest.raises(DistStoreError, match="job 1 is no longer this worker's"):
        job.done()


def test_a_job_that_could_not_be_given_back_is_free_after_its_lease(monkeypatch):
    no_death_is_seen(monkeypatch)
    store = HashStore()
    queue = JobQueue(store, lease=0.2)

    class Away(Stopping):
        is_away = False

        def compare_set(self, *arguments: Any) -> Any:
            if self.is_away:
                raise DistStoreError("the store is away")
            return self.store.compare_set(*arguments)

    away = Away(store, 10**6, True)
    queue.push("job")
    with pytest.raises(ZeroDivisionError), JobQueue(away, lease=0.2).take() as job:
        away.is_away = True
        1 / 0  # noqa: B018
    away.is_away = False
    with queue.take(LIMIT) as again:
        assert again.number == job.number


def test_who_was_silent_for_longer_than_its_lease_has_lost_the_job(monkeypatch):
    no_death_is_seen(monkeypatch)
    store = HashStore()
    late, queue = JobQueue(store, lease=0.2), JobQueue(store, lease=0.2)
    monkeypatch.setattr(late, "_renew_once", lambda: None)
    queue.push("job")
    job = late.take()
    with queue.take(LIMIT) as again:
        assert not job.is_held
        with pytest.raises(DistStoreError, match="its lease of 0.2 s ran out"):
            job.done()
        assert again.is_held
    assert queue.unfinished() == 0


def test_a_job_that_lasts_longer_than_the_lease_is_kept(monkeypatch):
    no_death_is_seen(monkeypatch)
    store = HashStore()
    worker, other = JobQueue(store, lease=1.0), JobQueue(store, lease=1.0)
    worker.push("long")
    with worker.take() as job:
        with pytest.raises(
            QueueEmptyError, match=f"jobs are with pid {os.getpid()} on"
        ):
            other.take(timeout=2.0)
        assert job.is_held


def test_a_job_that_nobody_refers_to_is_given_out_again(monkeypatch):
    no_death_is_seen(monkeypatch)
    queue = JobQueue(HashStore(), lease=0.2)
    queue.push("forgotten")
    queue.take()
    assert queue.take(LIMIT).data == b"forgotten"


def test_a_queue_that_nobody_refers_to_has_no_thread():
    queue = JobQueue(HashStore(), "threads")
    queue.push("job")
    queue.take().done()
    [thread] = [each for each in threading.enumerate() if "threads" in each.name]
    del queue
    thread.join(LIMIT)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "raw",
    [
        *("x", "[]", "{}", '{"last": 0, "free": ["1"], "held": {}}'),
        '{"last": 0, "free": [], "held": {"1": ["me", 1, 0]}}',
    ],
)
def test_what_others_write_is_an_error_that_names_the_key(raw):
    store = HashStore()
    store.set("jobs/jobs/table", raw)
    with pytest.raises(DistStoreError, match="the key jobs/jobs/table does not hold"):
        JobQueue(store).take(timeout=0)


def test_arguments_that_are_refused():
    for options in ({"name": "a/b"}, {"name": ""}, {"lease": 0}, {"lease": -1}):
        with pytest.raises(ValueError):
            JobQueue(HashStore(), **options)
    with pytest.raises(TypeError):
        JobQueue(HashStore(), lease="long")
