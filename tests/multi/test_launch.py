# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher starts, and what its ranks find."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launching import (
    launch,
    wait_until,
    write_script,
)

from distlite.launch.master import check_address, listen_for_nodes

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from distlite.launch.command import main; sys.exit(main())",
]
SHOW_ENVIRONMENT = """
import json
print(json.dumps(dict(os.environ)))
"""


def environments(result):
    """By rank, from the output of SHOW_ENVIRONMENT."""
    assert result.returncode == 0, result.stderr
    found = {}
    for line in result.stdout.splitlines():
        prefix, _, text = line.partition(": ")
        found[prefix] = json.loads(text)
    return [found[f"[rank{rank}]"] for rank in range(len(found))]


def test_ranks_find_the_variables_of_torchrun(tmp_path):
    script = write_script(tmp_path, SHOW_ENVIRONMENT)
    ranks = environments(launch(["--nproc-per-node", 3, "--role", "trainer", script]))
    assert len(ranks) == 3
    for rank, environment in enumerate(ranks):
        expected = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "3",
            "LOCAL_WORLD_SIZE": "3",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "trainer",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }
        assert {name: environment.get(name) for name in expected} == expected
        assert int(environment["MASTER_PORT"]) > 0
        assert int(environment["OMP_NUM_THREADS"]) >= 1
    same = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS")
    for name in same:
        assert len({environment[name] for environment in ranks}) == 1


def test_the_users_own_thread_count_is_kept(tmp_path):
    script = write_script(tmp_path, SHOW_ENVIRONMENT)
    (rank,) = environments(launch([script], env={"OMP_NUM_THREADS": "7"}))
    assert rank["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["run"], ["--nproc_per_node=2", "--master_addr=127.0.0.1", "--standalone"]),
        ([], ["--nproc-per-node", 2, "--nnodes=1:1", "--node_rank", 0]),
    ],
)
def test_the_console_command_takes_torchruns_spellings(tmp_path, command, arguments):
    script = write_script(tmp_path, "print(rank, world_size, sys.argv[1:])")
    words = [*command, *arguments, script, "--nproc-per-node", "9", "-m"]
    result = launch(words, command=COMMAND)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[rank{rank}]: {rank} 2 ['--nproc-per-node', '9', '-m']" for rank in range(2)
    ]


def test_a_module_is_run_by_its_name(tmp_path):
    write_script(tmp_path, "print(__name__, rank, sys.argv[1:])", "a_module.py")
    result = launch(["--nproc-per-node", 2, "-m", "a_module", "x"], cwd=tmp_path)
    assert sorted(result.stdout.splitlines()) == [
        f"[rank{rank}]: __main__ {rank} ['x']" for rank in range(2)
    ]


def test_a_program_is_run_without_python():
    words = ["--nproc_per_node", 2, "--no-python", "sh", "-c", 'echo "$RANK:$0"', "x"]
    result = launch(words)
    assert sorted(result.stdout.splitlines()) == ["[rank0]: 0:x", "[rank1]: 1:x"]


def test_one_rank_per_core():
    core = min(os.sched_getaffinity(0))
    words = ["--nproc-per-node", "cpu", "--no-python", "sh", "-c", "echo $WORLD_SIZE"]
    result = launch(words, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert result.stdout == "[rank0]: 1\n"


def test_a_port_in_use_is_said_before_any_rank_starts(tmp_path):
    script = write_script(tmp_path, "print('started')")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = launch(["--nproc-per-node", 2, "--master-port", port, script])
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in result.stderr
    assert "address already in use" in result.stderr
    assert result.stdout == ""


def test_an_address_of_another_host_is_refused_at_once(tmp_path):
    script = write_script(tmp_path, "print('started')")
    # For documentation only: nobody has it.
    words = ["--master-addr", "203.0.113.1", "--master-port", 29500, script]
    result = launch(words)
    expected = "cannot listen on 203.0.113.1:29500: Cannot assign requested address"
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"distlite: {expected}\n"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_many_nodes_may_come_before_the_server_of_the_store(address):
    """The kernel drops connections that have no room, and repeats them for seconds."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen_for_nodes(address, 0))
        port = listener.getsockname()[1]
        for _ in range(300):
            client = socket.create_connection(("127.0.0.1", port), timeout=0.9)
            stack.enter_context(client)


@pytest.mark.parametrize("listen", [check_address, listen_for_nodes])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name not known"), "Name not known"),
        (UnicodeError("label too long"), "not a host's name"),
    ],
)
def test_a_name_that_nobody_knows_is_said(monkeypatch, listen, error, reason):
    def look_up(*_, **__):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(OSError, match="cannot listen on where:29500") as caught:
        listen("where", 29500)
    assert caught.value.strerror == f"cannot listen on where:29500: {reason}"


def test_stdin_that_can_be_read_once_goes_to_the_first_rank(tmp_path):
    script = write_script(tmp_path, "print(sys.stdin.read())")
    result = launch(["--nproc-per-node", 3, script], input="some input")
    assert sorted(result.stdout.splitlines()) == [
        "[rank0]: some input",
        "[rank1]: ",
        "[rank2]: ",
    ]


def test_closed_standard_streams_are_no_trouble(tmp_path):
    script = write_script(tmp_path, "open(sys.argv[1] + str(rank), 'w').write('ran')")

    def close_all():
        for fd in (0, 1, 2):
            os.close(fd)

    words = ["--nproc-per-node", 2, script, tmp_path / "mark"]
    result = launch(words, preexec_fn=close_all)
    assert result.returncode == 0
    assert (tmp_path / "mark0").read_text() == "ran"
    assert (tmp_path / "mark1").read_text() == "ran"


def test_ranks_run_at_the_same_time(tmp_path):
    """Each waits for a mark of every other."""
    script = write_script(
        tmp_path,
        """
        folder = sys.argv[1]
        open(f"{folder}/mark{rank}", "w").close()
        deadline = time.monotonic() + 30
        while not all(os.path.exists(f"{folder}/mark{r}") for r in range(world_size)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        """,
    )
    assert launch(["--nproc-per-node", 5, script, tmp_path]).returncode == 0


def test_a_job_may_outlive_the_terminal(tmp_path):
    """With SIGHUP ignored by whoever started it (nohup), it goes on after one."""
    script = write_script(
        tmp_path,
        """
        print("ready", flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        """,
    )
    mark = tmp_path / "mark"
    nohup = ["nohup", sys.executable, "-m", "distlite.run", script, str(mark)]
    with subprocess.Popen(
        nohup, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"[rank0]: ready\n"
            process.send_signal(signal.SIGHUP)
            # The signal, had it ended the job, would do so before the rank's next look.
            mark.touch()
            assert wait_until(lambda: process.poll() is not None)
            assert process.returncode == 0
        finally:
            process.kill()


WITH_TOKEN = """
from pathlib import Path
import distlite as dist
token = os.environ["DISTLITE_TOKEN"]
dist.init_process_group()
told = [None] * world_size
dist.all_gather_object(told, token)
assert told == [token] * world_size
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
try:
    dist.TCPStore(*place, token="another")
except dist.DistNetworkError as error:
    print(error)
seen = [*Path("/proc").glob("[0-9]*/cmdline"), *Path("runtime").rglob("*")]
for path in seen:
    try:
        assert token.encode() not in path.read_bytes(), path
    except OSError:
        pass  # gone, or no file
if rank == 0:
    Path("token").write_text(token)
dist.barrier()
dist.destroy_process_group()
"""


WITH_TLS = """
import numpy as np
import distlite as dist
assert os.environ["DISTLITE_TLS"] == "psk"
dist.init_process_group()
x = np.ones(1)
dist.all_reduce(x)
assert x[0] == world_size
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
try:
    dist.TCPStore(*place, tls="off")
except dist.DistNetworkError as error:
    print(error)
dist.barrier()  # rank 0 may be the server's
dist.destroy_process_group()
"""


def test_ranks_speak_tls_with_the_launchers_token(tmp_path):
    script = write_script(tmp_path, WITH_TLS)
    words = ["-n", 2, "--token=auto", "--tls=psk", script]
    result = launch(words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("this store's server speaks TLS only") == 2
    result = launch(["-n", 2, "--tls=psk", script], cwd=tmp_path)
    assert result.returncode != 0
    assert "takes its key from the job's token" in result.stderr


def test_the_launcher_makes_a_token_that_nobody_sees(tmp_path):
    script = write_script(tmp_path, WITH_TOKEN)
    (tmp_path / "runtime").mkdir(0o700)
    settings = {
        "DISTLITE_RUNTIME_DIR": str(tmp_path / "runtime"),
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "TORCH_CPP_LOG_LEVEL": "INFO",
    }
    words = ["-n", 2, "--token=auto", "--log-dir", "logs", "--tee", 3, script]
    result = launch(words, env=settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("the token is not the one of this store") == 2
    token = (tmp_path / "token").read_text()
    assert len(token) == 64
    logs = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert logs
    told = result.stdout + result.stderr + "".join(map(Path.read_text, logs))
    assert token not in told
