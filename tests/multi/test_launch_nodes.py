# SPDX-License-Identifier: BSD-3-Clause
"""Launchers of several nodes: how they meet, and what they tell each other."""

import contextlib
import signal
import time
from datetime import timedelta

import pytest
from launching import (
    LIMIT,
    RUN,
    launched,
    port_outside_the_ephemeral_range,
    processes_of,
    wait_until,
    write_script,
)
from netns import Network, skip_unless_possible

import distlite as dist

IMPATIENT = {"DISTLITE_HEARTBEAT_TIMEOUT": "1.5"}
SHOW = (
    'echo "$RANK $LOCAL_RANK of $WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE, '
    '$MASTER_ADDR:$MASTER_PORT, job $TORCHELASTIC_RUN_ID"'
)


class Node:
    """One launcher, and what has come of it in the end."""

    def __init__(self, process, token):
        self.process, self.token = process, token

    def finish(self):
        self.out, self.errors = self.process.communicate(timeout=LIMIT)
        return self.process.returncode


@contextlib.contextmanager
def nodes(*words_of_each, hosts=(None, None), env=None):
    with contextlib.ExitStack() as stack:
        found = []
        for words, host in zip(words_of_each, hosts, strict=False):
            command = host.command(RUN) if host else RUN
            run = launched(words, command=command, env=env)
            found.append(Node(*stack.enter_context(run)))
        yield found


def static_job(count=2):
    port = port_outside_the_ephemeral_range()
    words = ["--nnodes", count, "--master-addr", "127.0.0.1", "--master-port", port]
    return [[*words, "--node-rank", node] for node in range(count)]


def test_nodes_with_numbers(tmp_path):
    """They need not have the same number of ranks."""
    first, second = static_job()
    program = ["--no-python", "sh", "-c", SHOW]
    first += ["--nproc-per-node", 2, *program]
    second += ["--nproc-per-node", 1, *program]
    with nodes(second, first) as (late, early):
        assert early.finish() == late.finish() == 0, early.errors + late.errors
    place = f"127.0.0.1:{first[5]}, job none"
    assert sorted(early.out.splitlines()) == [
        f"[rank0]: 0 0 of 3, node 0 of 2, {place}",
        f"[rank1]: 1 1 of 3, node 0 of 2, {place}",
    ]
    assert late.out == f"[rank2]: 2 0 of 3, node 1 of 2, {place}\n"


@pytest.mark.parametrize("value", ["text", b"\xff 0 host", "2x1 3"])
def test_values_of_other_programs_end_the_job(value):
    (words, _) = static_job()
    with (
        nodes([*words, "--no-python", "true"]) as (node,),
        dist.TCPStore("127.0.0.1", int(words[5]), timeout=30) as store,
    ):
        launch = dist.PrefixStore("launch", store)
        launch.wait(["node/0"])
        launch.set("all", value)
        assert node.finish() == 1
    assert "holds values of other programs: " in node.errors
    assert "Traceback" not in node.errors


def come_as_second(launch):
    """Joins as the launcher of node 1 does, and is ready for the first attempt."""
    wait_until(lambda: launch.add("come/0", 0) == 1)
    launch.set("beat/1", "0")
    launch.set("node/1", "1 0 elsewhere")
    launch.add("come/0", 2)
    launch.set("all", "2x1")
    wait_until(lambda: launch.add("ready/0", 0) == 1)
    launch.add("ready/0", 1)
    launch.append("told/0", "ready ")


@pytest.mark.parametrize("fails_first", [False, True])
def test_an_attempt_that_ends_and_fails_at_once_has_one_outcome(tmp_path, fails_first):
    """A failure counts if it is written before the last node has ended."""
    (words, _) = static_job()
    go = tmp_path / "go"
    wait = ["--no-python", "sh", "-c", f"until [ -e {go} ]; do sleep 0.01; done"]
    with (
        nodes([*words, *wait]) as (node,),
        dist.TCPStore("127.0.0.1", int(words[5]), timeout=30) as store,
    ):
        launch = dist.PrefixStore("launch", store)
        come_as_second(launch)
        launch.add("ended/0", 1)
        if fails_first:
            launch.set("failure/0", "over node 1 (elsewhere): fell")
            go.touch()
        else:
            go.touch()
            launch.wait(["failure/0"])
            first = launch.compare_set("failure/0", "", "over node 1: fell").decode()
            assert first.startswith("ended")
            launch.append("told/0", "failed ")
        launch.add("seen/0", 1)
        assert node.finish() == int(fails_first), node.errors
    assert ("node 1 (elsewhere): fell" in node.errors) == fails_first


MEET = """
from datetime import timedelta
from distlite import rendezvous
store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=30)))
store.set(f"from {rank}", os.environ["TORCHELASTIC_RESTART_COUNT"])
print([int(store.get(f"from {r}")) for r in range(world_size)], flush=True)
store.set(f"said {rank}", "")
store.wait([f"said {r}" for r in range(world_size)])
attempt, bad = map(int, sys.argv[1:])
if attempt > int(os.environ["TORCHELASTIC_RESTART_COUNT"]) and rank == bad:
    sys.exit(9)
"""


def test_nodes_in_the_order_of_their_coming_and_a_restart_of_all(tmp_path):
    script = write_script(tmp_path, MEET)
    port = port_outside_the_ephemeral_range()
    words = ["--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-id", "job7"]
    words += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", 1]
    with nodes(*2 * [[*words, script, 1, 1]]) as both:
        assert [node.finish() for node in both] == [0, 0], [n.errors for n in both]
    lines = sorted(line for node in both for line in node.out.splitlines())
    assert lines == sorted(
        f"[rank{rank}]: [{attempt}, {attempt}]" for rank in (0, 1) for attempt in (0, 1)
    )
    errors = "".join(node.errors for node in both)
    assert errors.count("restarting all ranks; 0 restart(s) left after this one") == 2
    assert "rank 1 failed first: exit code 9" in errors


def test_a_failure_ends_the_ranks_of_all_nodes(tmp_path):
    first, second = static_job()
    first += ["--no-python", "sleep", "600"]
    second += ["--no-python", "sh", "-c", "exit 3"]
    with nodes(first, second) as (alive, failed):
        assert failed.finish() == 3
        assert alive.finish() == 1
    assert "node 1 (" in alive.errors
    assert "): rank 1 failed first: exit code 3\n" in alive.errors


def test_a_node_is_called_by_its_own_address(tmp_path):
    first, second = static_job()
    first += ["--no-python", "sleep", "600"]
    second += ["--local-addr", "10.1.2.3", "--no-python", "sh", "-c", "exit 3"]
    with nodes(first, second) as (alive, failed):
        assert (failed.finish(), alive.finish()) == (3, 1)
    assert "node 1 (10.1.2.3): rank 1 failed first: exit code 3\n" in alive.errors


def test_a_program_that_cannot_be_started_ends_all(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF not really")
    program.chmod(0o755)
    first, second = static_job()
    first += ["--no-python", "sleep", "600"]
    second += ["--no-python", program]
    with nodes(first, second) as (alive, failed):
        assert (failed.finish(), alive.finish()) == (1, 1)
    said = f"Exec format error: '{program}'\n"
    assert failed.errors == f"distlite: {said}"
    assert alive.errors.startswith("distlite: node 1 (")
    assert alive.errors.endswith(f"): {said}")


@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_lost_node_is_named_and_ends_the_others(tmp_path, lost):
    program = ["--no-python", "sh", "-c", "echo ready; exec sleep 600"]
    each = [[*words, *program] for words in static_job()]
    with nodes(*each, env=IMPATIENT) as both:
        for node in both:
            assert node.process.stdout.readline().endswith("ready\n")
        other = both[1 - lost]
        start = time.monotonic()
        both[lost].process.kill()
        assert other.finish() == 1
        assert time.monotonic() - start < 40  # nobody has slept to the end
        wait_until(lambda: not processes_of(both[lost].token))
    if lost == 1:
        assert "distlite: node 1 (" in other.errors
        assert "is lost: no sign of life for 1.5 s" in other.errors
    else:
        assert "distlite: the job's store at 127.0.0.1:" in other.errors
        assert " is lost: " in other.errors


def test_a_signal_to_one_node_ends_all(tmp_path):
    program = ["--no-python", "sh", "-c", "echo ready; exec sleep 600"]
    with nodes(*([*words, *program] for words in static_job())) as (first, second):
        for node in (first, second):
            assert node.process.stdout.readline().endswith("ready\n")
        first.process.terminate()
        assert (first.finish(), second.finish()) == (143, 1)
    assert "): its launcher was stopped by a signal" in second.errors


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (["--rdzv-id", "theirs"], "run the job 'ours', but this one runs 'theirs'"),
        pytest.param(
            ["--node-rank", 0],
            "cannot listen on 127.0.0.1:",
            marks=pytest.mark.slow,
        ),
        (["--nnodes", 3], "has 2 nodes, but this one was given 3 (--nnodes)"),
        (["--max-restarts", 2], "the nodes were given different --max-restarts"),
    ],
)
def test_nodes_that_do_not_belong_together(tmp_path, changed, complaint):
    first, second = static_job()
    # Nobody gives up while the other one's interpreter is still starting.
    rest = ["--rdzv-id", "ours", "--rdzv-conf", "join_timeout=60"]
    program = ["--no-python", "sleep", "600"]
    with nodes([*first, *rest, *program]) as (right,):
        # The one that names the job is right.
        dist.TCPStore("127.0.0.1", first[5], timeout=timedelta(seconds=60)).wait(
            ["launch/job", "launch/nnodes"]
        )
        with nodes([*second, *rest, *changed, *program]) as (wrong,):
            assert wrong.finish() == 1
            assert complaint in wrong.errors
        if "--max-restarts" in changed:
            assert right.finish() == 1
            assert complaint in right.errors
        else:
            assert right.process.poll() is None  # it waits on


def test_a_node_that_does_not_come_is_named():
    first, _ = static_job()
    words = [*first, "--rdzv-conf", "join_timeout=1", "--no-python", "sleep", "600"]
    with nodes(words) as (alone,):
        assert alone.finish() == 1
    assert "node(s) 1 of 2 have not joined" in alone.errors


@pytest.mark.parametrize("limit", ["0.1", "inf", "nan", "soon"])
def test_a_limit_that_is_none_is_refused(limit):
    first, _ = static_job()
    env = {"DISTLITE_HEARTBEAT_TIMEOUT": limit}
    with nodes([*first, "--no-python", "true"], env=env) as (alone,):
        assert alone.finish() == 1
    assert f"distlite: DISTLITE_HEARTBEAT_TIMEOUT={limit} is not" in alone.errors


@pytest.fixture(scope="module")
def hosts():
    skip_unless_possible()
    with Network(2) as network:
        yield network.hosts


@pytest.mark.parametrize(
    "backend", [pytest.param("static", marks=pytest.mark.slow), "c10d"]
)
def test_a_job_of_two_hosts(tmp_path, hosts, backend):
    script = write_script(
        tmp_path,
        """
        from datetime import timedelta
        from distlite import rendezvous
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=30)))
        store.set(f"host of {rank}", os.uname().nodename)
        names = [store.get(f"host of {r}").decode() for r in range(world_size)]
        print(sorted(names), os.environ["MASTER_ADDR"])
        """,
    )
    first, second = hosts
    words = ["--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", backend]
    words += ["--rdzv-endpoint", f"{first.address}:29400"]
    # The one without the endpoint's address may come first.
    each = [[*words, "--node-rank", node, script] for node in (1, 0)]
    with nodes(*each, hosts=(second, first)) as both:
        assert [node.finish() for node in both] == [0, 0], [n.errors for n in both]
    printed = [
        line.partition(": ")[2] for node in both for line in node.out.split("\n")
    ]
    names = ["host1", "host1", "host2", "host2"]
    assert [line for line in printed if line] == 4 * [f"{names} {first.address}"]


@pytest.mark.parametrize(
    "own_name", [pytest.param("host1", marks=pytest.mark.slow), "localhost"]
)
def test_node_0_may_find_itself_at_loopback(tmp_path, own_name):
    """As Debian's hosts do by their name; the other node comes from outside."""
    skip_unless_possible()
    words = ["--nnodes", 2, "--master-port", 29402, "--no-python", "sh", "-c", SHOW]
    each = [
        ["--node-rank", node, "--master-addr", name, *words]
        for node, name in enumerate([own_name, "host1"])
    ]
    with Network(2) as network:
        network.name_hosts_as_debian(tmp_path)
        with nodes(*each, hosts=network.hosts) as both:
            assert [node.finish() for node in both] == [0, 0], [n.errors for n in both]


@pytest.mark.slow
def test_a_name_that_is_not_known_yet_is_waited_for(tmp_path):
    skip_unless_possible()
    words = ["--nnodes", 2, "--master-port", 29403, "--master-addr", "late.example"]
    words += ["--no-python", "true"]
    with Network(2) as network:
        network.name_hosts_as_debian(tmp_path)
        each = [[*words[:-2], "--node-rank", n, *words[-2:]] for n in (0, 1)]
        with nodes(*each, hosts=network.hosts) as both:
            for node in both:
                assert "late.example: " in node.process.stderr.readline()
            for host in network.hosts:
                with open(host.hosts_file, "a") as file:
                    file.write(f"{network.hosts[0].address} late.example\n")
            assert [node.finish() for node in both] == [0, 0], [n.errors for n in both]


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_named_and_both_sides_end(hosts):
    first, second = hosts
    words = ["--nnodes", 2, "--master-addr", first.address, "--master-port", 29401]
    program = ["--no-python", "sh", "-c", "echo ready; exec sleep 600"]
    each = [[*words, "--node-rank", node, *program] for node in (0, 1)]
    with nodes(*each, hosts=hosts, env=IMPATIENT) as both:
        for node in both:
            assert node.process.stdout.readline().endswith("ready\n")
        second.unplug()
        try:
            start = time.monotonic()
            assert [node.finish() for node in both] == [1, 1]
            assert time.monotonic() - start < 40  # nobody has slept to the end
        finally:
            second.plug()
    assert "distlite: node 1 (host2) is lost: no sign of life" in both[0].errors
    where = f"{first.address}:29401"
    assert f"distlite: the job's store at {where} is lost: " in both[1].errors


@pytest.mark.parametrize("of_the_second", ["secret", "another", None])
def test_nodes_need_one_token(of_the_second):
    first, second = static_job()
    program = ["--no-python", "sh", "-c", "test $DISTLITE_TOKEN = secret"]
    other = {} if of_the_second is None else {"DISTLITE_TOKEN": of_the_second}
    with (
        launched([*first, *program], env={"DISTLITE_TOKEN": "secret"}) as one,
        launched([*second, *program], env=other) as two,
    ):
        one, two = Node(*one), Node(*two)
        if of_the_second == "secret":
            assert (one.finish(), two.finish()) == (0, 0), one.errors + two.errors
        else:
            assert two.finish() == 1
            assert "DISTLITE_TOKEN" in two.errors
            assert "token" in two.errors
            assert "another" not in two.errors


RELAYED = """
from datetime import timedelta
from distlite import rendezvous
store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=30)))
node = os.environ["GROUP_RANK"]
has_relay = "DISTLITE_STORE_RELAY" in os.environ
store.add("sum", 1)
store.set(f"here {rank}", "")
store.wait([f"here {r}" for r in range(world_size)])
while not hasattr(store, "stats"):
    store = store.underlying_store
print(node, has_relay, store.stats()["relays"], flush=True)
store.set(f"said {rank}", "")
store.wait(["go"])
store.add("sum", 1)
store.set(f"done {rank}", "")
store.wait([f"done {r}" for r in range(world_size)])
"""


@pytest.mark.parametrize("stops", [False, True])
def test_ranks_of_other_nodes_use_a_relay(tmp_path, stops):
    """It runs in their launcher; they go on directly while that is stopped."""
    script = write_script(tmp_path, RELAYED)
    jobs = [[*words, "--nproc-per-node", 3, script] for words in static_job()]
    with (
        nodes(*jobs, env={"DISTLITE_HEARTBEAT_TIMEOUT": "60"}) as both,
        dist.TCPStore("127.0.0.1", int(jobs[0][5]), timeout=60) as store,
    ):
        found = dist.PrefixStore("/worker/attempt_0", store)
        found.wait([f"said {rank}" for rank in range(6)], 30)
        assert store.stats()["relays"] == 1
        if stops:
            both[1].process.send_signal(signal.SIGSTOP)
        found.set("go", "")
        if stops:
            found.wait([f"done {rank}" for rank in range(6)], 60)
            both[1].process.send_signal(signal.SIGCONT)
        for node in both:
            assert node.finish() == 0, node.errors
    assert (
        sorted(line.split(": ")[1] for line in both[0].out.splitlines())
        == ["0 False 1"] * 3
    )
    assert (
        sorted(line.split(": ")[1] for line in both[1].out.splitlines())
        == ["1 True 1"] * 3
    )
