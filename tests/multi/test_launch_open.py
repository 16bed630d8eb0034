# SPDX-License-Identifier: BSD-3-Clause
"""Nodes that come and go: `--nnodes MIN:MAX --spares N --on-failure continue`."""

import contextlib
import os
import re
import signal
import socket

import pytest
from launching import (
    LIMIT,
    RUN,
    kill_all,
    launched,
    processes_of,
    wait_until,
    write_script,
)
from netns import Network, skip_unless_possible
from ports import reserve_port

import distlite as dist

IMPATIENT = {"DISTLITE_HEARTBEAT_TIMEOUT": "2"}
# Members execute steps until the file exists; what they did is in their last line.
WORLD = """
import numpy as np
import distlite as dist
from distlite import elastic
state = {"sums": np.zeros(0)}
node, shown = os.environ["GROUP_RANK"], 0
least = int(sys.argv[2]) if sys.argv[2:] else None
with elastic.join(min_size=least, timeout=40, settle=0.5) as member:
    print("begins", node, os.getpid(), flush=True)
    while True:
        try:
            view = member.next()
            member.restore(view, state.update, lambda: state)
            if state["sums"].size and state["sums"][-1] < 0:
                break
            is_over = view.rank == 0 and os.path.exists(sys.argv[1])
            x = np.array([-1000.0 if is_over else 1.0])
            with member.step((member.done or 0) + 1):
                dist.all_reduce(x, group=view.group)
            if shown != view.epoch:
                print("size", view.size, flush=True)
            shown = view.epoch
            state["sums"] = np.append(state["sums"], x)[-9:]
            time.sleep(0.01)
        except dist.DistBackendError:
            continue
    member.finish()
    print("ends", node, view.size, flush=True)
print("is done", flush=True)
"""


class Nodes:
    """Launchers of one job, and what they write."""

    def __init__(self, folder, *words, env=IMPATIENT):
        self.port, self.folder, self.env = reserve_port(), folder, env
        self.words = ["--on-failure", "continue", "--rdzv-id", "open", *words]
        self.words += ["--rdzv-endpoint", f"127.0.0.1:{self.port}"]
        self.over = folder / "over"
        self.script = write_script(folder, WORLD)
        self.stack, self.started = contextlib.ExitStack(), []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def start(self, *words, host=False, conf="join_timeout=30", script=None, on=None):
        number = len(self.started)
        conf = f"{conf},is_host={str(host).lower()}"
        script = [self.script, self.over] if script is None else script
        words = [*self.words, "--rdzv-conf", conf, *words, *script]
        files = [
            self.stack.enter_context((self.folder / f"{what}{number}").open("w"))
            for what in ("out", "errors")
        ]
        command = RUN if on is None else on.command(RUN)
        streams = {"stdout": files[0], "stderr": files[1]}
        run = launched(words, command=command, env=self.env, **streams)
        process, token = self.stack.enter_context(run)
        self.started.append(process)
        process.number, process.run_token = number, token
        return process

    def out(self, node):
        return (self.folder / f"out{node.number}").read_text()

    def errors(self, node):
        return (self.folder / f"errors{node.number}").read_text()

    def says(self, node, text):
        return wait_until(lambda: re.search(text, self.out(node)))

    def finish(self, *nodes):
        """Lets the work end, and returns the exit codes."""
        self.over.touch()
        return [node.wait(LIMIT) for node in nodes]


def test_a_node_that_comes_later_takes_part(tmp_path):
    with Nodes(tmp_path, "--nnodes", "1:2", "-n", 2) as job:
        first = job.start(host=True)
        job.says(first, r"\[rank0\]: size 2\n")
        second = job.start()
        job.says(first, r"\[rank0\]: size 4\n")
        job.says(second, r"\[rank2\]: begins 1 ")
        assert job.finish(first, second) == [0, 0], job.errors(first)
        assert "[rank3]: ends 1 4" in job.out(second)


def test_a_job_waits_for_as_many_nodes_as_it_needs(tmp_path):
    with Nodes(tmp_path, "--nnodes", "2:3") as job:
        first = job.start(host=True, conf="join_timeout=1")
        assert first.wait(LIMIT) == 1
        assert "1 of at least 2 nodes have joined at 127.0.0.1:" in job.errors(first)
        assert job.out(first) == ""


def test_nodes_above_the_maximum_wait(tmp_path):
    """They end with the job, whose members do not notice them."""
    with Nodes(tmp_path, "--nnodes", 1) as job:
        job.words += ["--spares", 1]
        first = job.start(host=True)
        job.says(first, "size 1\n")
        others = []
        for _ in range(2):
            others.append(job.start())
            job.says(others[-1], "begins")
        assert job.finish(first, *others) == [0, 0, 0], job.errors(others[0])
        assert [job.out(node).count("size") for node in others] == [0, 0]
        assert job.out(first).count("size") == 1
        for number, node in enumerate(others, 1):
            assert f"[rank{number}]: is done" in job.out(node)
            assert job.errors(node) == ""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_spare_replaces_a_node_that_is_lost_or_leaves(tmp_path, end):
    with Nodes(tmp_path, "--nnodes", 2, "--spares", 1, "-n", 2) as job:
        first = job.start(host=True)
        second = job.start()
        job.says(first, "size 4\n")
        spare = job.start()
        job.says(spare, r"\[rank4\]: begins 2 ")
        job.says(spare, r"\[rank5\]: begins 2 ")
        assert "size" not in job.out(spare)
        second.send_signal(end)
        job.says(spare, r"\[rank4\]: size 4\n")
        job.says(spare, r"\[rank5\]: size 4\n")
        assert second.wait(LIMIT) in (-signal.SIGKILL, 128 + signal.SIGTERM)
        assert job.finish(first, spare) == [0, 0], job.errors(first)
        assert "[rank5]: ends 2 4" in job.out(spare)
        assert not processes_of(second.run_token)


def test_ranks_and_launchers_that_are_killed_in_turn(tmp_path):
    """At last nothing is left of what began but the node with the store."""
    with Nodes(tmp_path, "--nnodes", "1:3") as job:
        first = job.start(host=True)
        nodes = [job.start() for _ in range(2)]
        for node in nodes:
            job.says(node, "size 3\n")
        pid = int(job.says(first, r"begins \d+ (\d+)")[1])
        os.kill(pid, signal.SIGKILL)
        again = r"begins \d+ (?!" + str(pid) + r")\d+\n(.*\n)*?.*size 3\n"
        job.says(first, again)
        for _ in range(2):
            nodes.pop(0).kill()
            nodes.append(job.start())
            job.says(nodes[-1], "size 3\n")
        assert job.finish(first, *nodes) == [0, 0, 0], job.errors(first)


def test_the_node_with_the_store_comes_back_with_its_journal(tmp_path):
    conf = f"join_timeout=30,journal={tmp_path / 'journal'}"
    with Nodes(tmp_path, "--nnodes", "1:2", "-n", 2) as job:
        first = job.start(host=True, conf=conf)
        second = job.start()
        job.says(second, "size 4\n")
        first.kill()
        first.wait(LIMIT)
        again = job.start(host=True, conf=conf)
        job.says(again, r"\[rank4\]: size 4\n")
        assert job.finish(second, again) == [0, 0], job.errors(second)
        # No rank of the other node was started again.
        assert job.out(second).count("begins") == 2
        assert not (tmp_path / "journal").exists()


def test_a_standby_serves_the_store_when_its_node_is_lost(tmp_path):
    conf = f"join_timeout=30,journal={tmp_path / 'journal'}"
    with Nodes(tmp_path, "--nnodes", "1:3") as job:
        first = job.start(host=True, conf=conf)
        standby, third = job.start(conf=f"{conf},standby=true"), job.start()
        job.says(third, "size 3\n")
        first.kill()
        serves = "distlite: this node now serves the job's store at 127.0.0.1:"
        wait_until(lambda: serves in job.errors(standby))
        fourth = job.start()
        job.says(fourth, "size 3\n")
        nodes = standby, third, fourth
        assert job.finish(*nodes) == [0, 0, 0], job.errors(standby)
        assert [job.out(node).count("begins") for node in nodes] == [1, 1, 1]
        assert not (tmp_path / "journal").exists()


def test_a_standby_at_another_address(tmp_path):
    """The first node comes back as a client of it, by the command that it had."""
    conf = f"join_timeout=30,journal={tmp_path / 'journal'}"
    with Nodes(tmp_path, "--nnodes", "1:4", "-n", 2) as job:
        second = reserve_port()
        job.words[-1] += f",127.0.0.1:{second}"
        first = job.start(host=True, conf=conf)
        standby, third = job.start(conf=f"{conf},standby=true"), job.start()
        job.says(third, "size 6\n")
        first.kill()
        serves = "distlite: this node now serves the job's store at 127.0.0.1:"
        wait_until(lambda: f"{serves}{second}\n" in job.errors(standby))
        again, last = job.start(host=True, conf=conf), job.start()
        job.says(last, "size 8\n")
        assert "/journal is in use by another server" in job.errors(again)
        assert ": looking for the standby\n" in job.errors(again)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", job.port), LIMIT)
        nodes = standby, third, again, last
        assert job.finish(*nodes) == [0, 0, 0, 0], job.errors(standby)
        assert [job.out(node).count("begins") for node in nodes] == [2] * 4
        assert not (tmp_path / "journal").exists()


@pytest.mark.slow
def test_a_standby_when_the_host_of_the_store_is_gone(tmp_path):
    """Nothing says that it is: connections to it are silent."""
    skip_unless_possible()
    conf = f"join_timeout=60,journal={tmp_path / 'journal'}"
    with Network(3) as network, Nodes(tmp_path, "--nnodes", "1:4", "-n", 2) as job:
        hosts = network.hosts
        addresses = ",".join(f"{host.address}:29404" for host in hosts[:2])
        job.words[-1] = addresses
        first = job.start(host=True, conf=conf, on=hosts[0])
        standby = job.start(conf=f"{conf},standby=true", on=hosts[1])
        third = job.start(on=hosts[2])
        job.says(third, "size 6\n")
        hosts[0].unplug()
        kill_all(first.run_token)
        job.says(third, "size 4\n")
        assert f"at {hosts[1].address}:29404\n" in job.errors(standby)
        last = job.start(on=hosts[2])
        job.says(last, "size 6\n")
        assert job.finish(standby, third, last) == [0, 0, 0], job.errors(standby)
        assert [job.out(node).count("begins") for node in (standby, third)] == [2, 2]


def test_a_standby_does_not_serve_beside_a_store_that_is_stopped(tmp_path):
    conf = f"join_timeout=60,journal={tmp_path / 'journal'}"
    with Nodes(tmp_path, "--nnodes", "1:4") as job:
        second = reserve_port()
        job.words[-1] += f",127.0.0.1:{second}"
        first = job.start(host=True, conf=conf)
        standby = job.start(conf=f"{conf},standby=true")
        job.says(standby, "size 2\n")
        first.send_signal(signal.SIGSTOP)
        refused = "/journal is in use by another server"
        wait_until(lambda: refused in job.errors(standby))
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", second), LIMIT)
        first.send_signal(signal.SIGCONT)
        third = job.start()
        job.says(third, "size 3\n")
        assert job.finish(first, standby, third) == [0, 0, 0], job.errors(standby)
        assert [job.out(node).count("begins") for node in (first, standby)] == [1, 1]


def test_without_a_journal_the_end_of_the_store_ends_the_others(tmp_path):
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        second = job.start()
        job.says(second, "size 2\n")
        first.kill()
        assert second.wait(LIMIT) == 1
        where = f"distlite: the job's store at 127.0.0.1:{job.port} is lost: "
        assert where in job.errors(second)
        assert not processes_of(second.run_token)


def test_a_store_that_does_not_come_back_ends_the_others(tmp_path):
    conf = f"join_timeout=5,journal={tmp_path / 'journal'}"
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True, conf=conf)
        job.says(first, "size 1\n")
        second = job.start(conf=conf)
        job.says(second, "size 2\n")
        first.kill()
        assert second.wait(LIMIT) == 1
        assert "is lost: " in job.errors(second)
        assert (tmp_path / "journal").exists()


def test_a_node_whose_ranks_fail_leaves_the_others_alone(tmp_path):
    """Also where it serves the store: then until the others end."""
    failing = ["--no-python", "--max-restarts", 1, "sh"]
    script = ["-c", "exit 9"]
    with Nodes(tmp_path, "--nnodes", "2:3") as job:
        first = job.start(*failing, host=True, script=script)
        second = job.start(script=[job.script, job.over, 1])
        job.says(second, "size 1\n")
        serves = "the store of this node serves the others to their end"
        wait_until(lambda: serves in job.errors(first))
        third = job.start(*failing, script=script)
        assert third.wait(LIMIT) == 9
        assert "rank 2 failed first: exit code 9" in job.errors(third)
        assert first.poll() is None
        assert job.finish(second, first) == [0, 9], job.errors(second)


def test_ctrl_c_ends_a_node_that_only_serves(tmp_path):
    with Nodes(tmp_path, "--nnodes", 2) as job:
        script = ["--no-python", "sh", "-c", "exit 9"]
        first = job.start("--max-restarts", 1, host=True, script=script)
        second = job.start(script=[job.script, job.over, 1])
        job.says(second, "size 1\n")
        wait_until(lambda: "serves the others" in job.errors(first))
        first.send_signal(signal.SIGINT)
        assert first.wait(LIMIT) == 9
        assert second.wait(LIMIT) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-n", 2], "have --nproc-per-node 1, but this one was given 2"),
        (["--nnodes", 2], "has 1:2 and 0 spare nodes, but this one was given 2:2 and"),
        (["--rdzv-id", "other"], "run the job 'open', but this one runs 'other'"),
    ],
)
def test_a_node_of_another_job_is_refused_alone(tmp_path, words, why):
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        job.says(first, "size 1\n")
        wrong = job.start(*words)
        assert wrong.wait(LIMIT) == 1
        assert why in job.errors(wrong)
        assert job.finish(first) == [0], job.errors(first)


def test_a_journal_that_cannot_be_used_is_an_error(tmp_path):
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True, conf=f"journal={tmp_path}/no/file")
        assert first.wait(LIMIT) == 1
        assert "distlite: --rdzv-conf journal: " in job.errors(first)


def test_a_stopped_launcher_is_not_waited_for(tmp_path):
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        second = job.start()
        job.says(second, "size 2\n")
        # Its ranks go on, and end with the work.
        second.send_signal(signal.SIGSTOP)
        assert job.finish(first) == [0], job.errors(first)


def test_the_keys_that_launchers_leave(tmp_path):
    with Nodes(tmp_path, "--nnodes", "1:2") as job:
        first = job.start(host=True)
        job.says(first, "size 1\n")
        store = dist.TCPStore("127.0.0.1", job.port, timeout=LIMIT)
        second = job.start()
        job.says(second, "size 2\n")
        keys = {key for key in store.list_keys() if key.startswith("launch/")}
        assert keys == {
            *(f"launch/{key}" for key in ("job", "nnodes", "alike", "arrived")),
            *("launch/came", "launch/over"),
            *(f"launch/{key}/{n}" for key in ("node", "beat") for n in range(2)),
        }
        store.close()
        assert job.finish(first, second) == [0, 0]
