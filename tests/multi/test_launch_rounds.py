# SPDX-License-Identifier: BSD-3-Clause
"""Restarts with the nodes that are there: `--nnodes MIN:MAX --on-failure restart`."""

import contextlib
import os
import re
import signal
import time

import pytest
from launching import LIMIT, launched, processes_of, wait_until, write_script
from ports import reserve_port

import distlite as dist
from distlite.launch.rounds import Round, waits_in

IMPATIENT = {"DISTLITE_HEARTBEAT_TIMEOUT": "2"}
# Ranks compute until the first one finds the file `over`, or one its file `fail<rank>`.
RANK = """
import contextlib
import numpy as np
import distlite as dist
folder, node = sys.argv[1], os.environ["GROUP_RANK"]
dist.init_process_group(timeout=40)
told = f"{rank} of {world_size}, node {node} of {os.environ['GROUP_WORLD_SIZE']}"
print("begins:", told, "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
print("is", os.getpid(), flush=True)
while True:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder}/fail{rank}")
        sys.exit(9)
    x = np.array([rank == 0 and os.path.exists(f"{folder}/over")], dtype=np.int64)
    dist.all_reduce(x)
    if x[0]:
        break
    time.sleep(0.01)
dist.destroy_process_group()
"""


class Job:
    """Launchers of one job, and what they write."""

    def __init__(self, folder, *words):
        self.port, self.folder = reserve_port(), folder
        self.words = ["--rdzv-id", "rounds", *words]
        self.words += ["--rdzv-endpoint", f"127.0.0.1:{self.port}"]
        self.script = [write_script(folder, RANK), folder]
        self.stack, self.count = contextlib.ExitStack(), 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def start(
        self, *words, host=False, conf="join_timeout=30,last_call_timeout=0", comes=True
    ):
        """Starts a launcher and, so that numbers are known, waits until it `comes`."""
        before = self.came() if comes and not host else ""
        words = [*self.words, "--rdzv-conf", f"{conf},is_host={host}".lower(), *words]
        files = [
            self.stack.enter_context((self.folder / f"{what}{self.count}").open("w"))
            for what in ("out", "errors")
        ]
        run = launched(
            [*words, *self.script], env=IMPATIENT, stdout=files[0], stderr=files[1]
        )
        process, process.run_token = self.stack.enter_context(run)
        process.number = self.count
        self.count += 1
        wait_until(lambda: not comes or self.came() != before)
        return process

    def came(self):
        with dist.TCPStore("127.0.0.1", self.port, timeout=LIMIT) as store:
            return store.get("launch/came").decode()

    def out(self, node):
        return (self.folder / f"out{node.number}").read_text()

    def errors(self, node):
        return (self.folder / f"errors{node.number}").read_text()

    def begins(self, node, told):
        """Waits until a rank has begun, and returns its process id."""
        text = f"begins: {told}\n.*: is (\\d+)\n"
        return int(wait_until(lambda: re.search(text, self.out(node)))[1])

    def says(self, node, text):
        wait_until(lambda: text in self.errors(node))

    def fail(self, rank):
        (self.folder / f"fail{rank}").touch()

    def finish(self, *nodes):
        """Lets the ranks end, and returns the exit codes."""
        (self.folder / "over").touch()
        return [node.wait(LIMIT) for node in nodes]


def test_nodes_that_come_and_are_lost(tmp_path):
    """A node that comes costs no restart, one that is lost one of them."""
    with Job(tmp_path, "--nnodes", "2:3", "--max-restarts", 1) as job:
        first, second = job.start(host=True), job.start("-n", 2)
        job.begins(first, "0 of 3, node 0 of 2 restart 0")
        job.begins(second, "2 of 3, node 1 of 2 restart 0")
        third = job.start()
        job.begins(first, "0 of 4, node 0 of 3 restart 1")
        job.begins(third, "3 of 4, node 2 of 3 restart 1")
        second.kill()
        job.begins(first, "0 of 2, node 0 of 2 restart 2")
        job.begins(third, "1 of 2, node 1 of 2 restart 2")
        wait_until(lambda: not processes_of(second.run_token))
        fourth = job.start()
        job.begins(fourth, "2 of 3, node 2 of 3 restart 3")
        assert job.finish(first, third, fourth) == [0, 0, 0], job.errors(first)
        lines = r"distlite: (.* can take part|restarting .*|goes on .*)"
        said = re.findall(lines, job.errors(first))
        host = os.uname().nodename
        assert said == [
            f"node 2 ({host}) can take part",
            "restarting all ranks; 1 restart(s) left after this one",
            "restarting all ranks; 0 restart(s) left after this one",
            f"goes on without node 1 ({host})",
            f"node 3 ({host}) can take part",
            "restarting all ranks; 0 restart(s) left after this one",
        ]


def test_a_rank_that_fails_too_often_ends_the_job(tmp_path):
    with Job(tmp_path, "--nnodes", 2, "--spares", 1, "--max-restarts", 1) as job:
        first, second = job.start(host=True), job.start()
        job.begins(second, "1 of 2, node 1 of 2 restart 0")
        third = job.start()
        job.says(third, "distlite: the job has its 2 nodes; this one waits\n")
        job.fail(1)
        pid = job.begins(second, "1 of 2, node 1 of 2 restart 1")
        os.kill(pid, signal.SIGKILL)
        assert second.wait(LIMIT) == 128 + signal.SIGKILL
        assert first.wait(LIMIT) == third.wait(LIMIT) == 1
        assert "rank 1 failed first: exit code 9" in job.errors(second)
        told = "): rank 1 failed first: killed by SIGKILL\n"
        assert told in job.errors(first)
        assert told in job.errors(third)
        assert job.out(third) == ""


def test_spares_wait_and_replace_a_node_that_leaves(tmp_path):
    """One that leaves by a signal costs no restart."""
    with Job(tmp_path, "--nnodes", 2, "--spares", 1) as job:
        first, second = job.start(host=True), job.start()
        job.begins(second, "1 of 2, node 1 of 2 restart 0")
        spares = [job.start() for _ in range(2)]
        for spare in spares:
            job.says(spare, "the job has its 2 nodes; this one waits\n")
        second.send_signal(signal.SIGTERM)
        assert second.wait(LIMIT) == 128 + signal.SIGTERM
        job.begins(first, "0 of 2, node 0 of 2 restart 1")
        wait_until(lambda: sum("1 of 2" in job.out(spare) for spare in spares) == 1)
        assert job.finish(first, *spares) == [0, 0, 0], job.errors(first)
        assert "): its launcher was stopped by a signal\n" in job.errors(first)
        assert sorted(len(job.out(spare)) > 0 for spare in spares) == [False, True]


def test_fewer_than_the_minimum_end_the_job_and_name_the_missing(tmp_path):
    conf = "join_timeout=3,last_call_timeout=0"
    with Job(tmp_path, "--nnodes", "2:3", "--max-restarts", 3) as job:
        first = job.start(host=True, conf=conf)
        assert first.wait(LIMIT) == 1
        where = f"nodes have joined at 127.0.0.1:{job.port}"
        assert f"distlite: after 3 s 1 of at least 2 {where}\n" in job.errors(first)
        nodes = [job.start(host=n == 0, conf=conf) for n in range(2)]
        job.begins(nodes[1], "1 of 2, .*")
        nodes[1].kill()
        assert nodes[0].wait(LIMIT) == 1
        missing = f"node 1 ({os.uname().nodename}) did not come back"
        assert f"after 3 s 1 of at least 2 {where}; {missing}" in job.errors(nodes[0])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_store_ends_the_others(tmp_path, end):
    with Job(tmp_path, "--nnodes", 2, "--spares", 1, "--max-restarts", 3) as job:
        first = job.start(host=True)
        second, third = job.start(), job.start()
        job.begins(first, "0 of 2, .*")
        wait_until(lambda: any("waits" in job.errors(n) for n in (second, third)))
        first.send_signal(end)
        assert second.wait(LIMIT) == third.wait(LIMIT) == 1
        why = "is lost: " if end == signal.SIGKILL else "stopped by a signal|has ended"
        for node in second, third:
            assert re.search(why, job.errors(node).splitlines()[-1])
            assert not processes_of(node.run_token)


@pytest.mark.parametrize("moves", [False, True])
def test_a_standby_leads_when_the_store_is_lost(tmp_path, moves):
    conf = f"join_timeout=30,last_call_timeout=0,journal={tmp_path / 'journal'}"
    with Job(tmp_path, "--nnodes", "2:3", "--max-restarts", 1) as job:
        second = reserve_port() if moves else job.port
        job.words[-1] += f",127.0.0.1:{second}" if moves else ""
        first = job.start(host=True, conf=conf)
        standby, third = job.start(conf=f"{conf},standby=true"), job.start()
        job.begins(third, ". of 3, node . of 3 restart [01]")
        first.kill()
        job.says(standby, f"now serves the job's store at 127.0.0.1:{second}\n")
        job.port = second
        job.begins(third, "1 of 2, node 1 of 2 restart [12]")
        fourth = job.start()
        job.begins(fourth, "2 of 3, node 2 of 3 restart [23]")
        assert job.finish(standby, third, fourth) == [0, 0, 0], job.errors(standby)
        assert not (tmp_path / "journal").exists()


def test_a_journal_is_kept_as_long_as_the_job_goes_on(tmp_path):
    journal = tmp_path / "journal"
    conf = f"join_timeout=30,last_call_timeout=0,journal={journal}"
    with Job(tmp_path, "--nnodes", "1:2") as job:
        words = "--max-restarts", 2
        first = job.start(*words, host=True, conf=conf)
        job.begins(first, "0 of 1, .*")
        first.kill()
        first.wait()
        refused = job.start(host=True, conf=conf, comes=False)
        assert refused.wait(LIMIT) == 1
        assert "have --max-restarts 2, but this one" in job.errors(refused)
        assert journal.exists()
        again = job.start(*words, host=True, conf=conf)
        job.begins(again, "0 of 1, node 0 of 1 restart 1")
        assert "can take part" not in job.errors(again)  # of an attempt without it
        again.send_signal(signal.SIGTERM)
        assert again.wait(LIMIT) == 128 + signal.SIGTERM
        assert not journal.exists()
        last = job.start(host=True, conf=conf)
        job.begins(last, "0 of 1, node 0 of 1 restart 0")
        assert job.finish(last) == [0], job.errors(last)


def test_a_standby_that_was_stopped_does_not_begin_the_job_anew(tmp_path):
    conf = f"join_timeout=30,last_call_timeout=0,journal={tmp_path / 'journal'}"
    with Job(tmp_path, "--nnodes", "1:2", "--max-restarts", 3) as job:
        first = job.start(host=True, conf=conf)
        standby = job.start(conf=f"{conf},standby=true")
        job.begins(standby, "1 of 2, .*")
        standby.send_signal(signal.SIGSTOP)
        job.begins(first, r"0 of 1, node 0 of 1 restart [1-9]")
        assert job.finish(first) == [0], job.errors(first)
        standby.send_signal(signal.SIGCONT)
        assert standby.wait(LIMIT) == 1
        assert "its journal is gone: the job has ended\n" in job.errors(standby)
        assert not (tmp_path / "journal").exists()


def test_a_launcher_that_is_stopped_for_a_while(tmp_path):
    """The others restart without it, and again with it."""
    with Job(tmp_path, "--nnodes", "1:2", "--max-restarts", 3) as job:
        first, second = job.start(host=True), job.start()
        job.begins(second, "1 of 2, .*")
        second.send_signal(signal.SIGSTOP)
        job.begins(first, r"0 of 1, node 0 of 1 restart [1-9]")
        second.send_signal(signal.SIGCONT)
        wait_until(lambda: job.out(second).count("begins: 1 of 2") == 2)
        assert job.finish(first, second) == [0, 0], job.errors(first)


def test_nodes_on_their_way_are_waited_for(tmp_path):
    conf = "join_timeout=30,last_call_timeout=30"
    with Job(tmp_path, "--nnodes", "1:2") as job:
        nodes = [job.start(host=n == 0, conf=conf) for n in range(2)]
        for number, node in enumerate(nodes):
            job.begins(node, f"{number} of 2, node {number} of 2 restart 0")
        assert job.finish(*nodes) == [0, 0], job.errors(nodes[0])


def test_a_program_that_cannot_be_started_on_one_node(tmp_path):
    """That node leaves, and the others go on without it."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF not really")
    program.chmod(0o755)
    with Job(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        job.begins(first, "0 of 1, .*")
        wrong = job.start("--no-python", program, comes=False)
        assert wrong.wait(LIMIT) == 1
        assert f"Exec format error: '{program}'" in job.errors(wrong)
        job.says(first, f"Exec format error: '{program}'")
        job.begins(first, "0 of 1, node 0 of 1 restart [1-9]")
        assert job.finish(first) == [0], job.errors(first)


def test_a_beat_from_before_an_attempt_is_not_taken_for_waiting():
    """It may be the last one of a node that was lost just after that had begun."""
    last = Round("3 1 0:8 2:4")
    assert not waits_in(0, b"17 3", last)
    assert not waits_in(0, b"18 ", last)
    assert waits_in(0, b"19 4", last)
    assert waits_in(5, b"1 0", last)
    assert waits_in(0, b"1 0", Round(""))


def test_another_number_of_restarts_is_refused(tmp_path):
    with Job(tmp_path, "--nnodes", "1:2", "--max-restarts", 1) as job:
        first = job.start(host=True)
        job.begins(first, "0 of 1, .*")
        wrong = job.start("--max-restarts", 2, comes=False)
        assert wrong.wait(LIMIT) == 1
        why = "the nodes of the job have --max-restarts 1, but this one was given 2"
        assert why in job.errors(wrong)
        assert job.finish(first) == [0], job.errors(first)


def test_the_requests_of_a_beat(tmp_path):
    with Job(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        job.begins(first, "0 of 1, .*")
        store = dist.TCPStore("127.0.0.1", job.port, timeout=LIMIT)
        second = job.start()
        job.begins(second, "1 of 2, .*")
        launch = dist.PrefixStore("launch", store)
        wait_until(lambda: Round(launch.get("round").decode()).ranks == {0: 1, 1: 1})
        before = int(launch.get("beat/1").split()[0]), store.stats()["requests"]
        time.sleep(1)
        beats = int(launch.get("beat/1").split()[0]) - before[0]
        # Two of each node, and six of the one that serves the store.
        assert store.stats()["requests"] - before[1] <= 10 * beats + 20
        store.close()
        assert job.finish(first, second) == [0, 0]
