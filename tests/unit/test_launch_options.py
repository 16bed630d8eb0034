# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher understands of a command line."""

import os
import sys
from importlib import metadata

import pytest

import distlite
from distlite.launch.arguments import COMMANDS, make_parser
from distlite.launch.cores import gpu_count, usable_cores
from distlite.launch.options import options_of, parse
from distlite.run import parse_args, run

SCRIPT = __file__


@pytest.fixture(autouse=True)
def no_defaults_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("PET_", "TORCH_ELASTIC_", "PYTHON_EXEC")):
            monkeypatch.delenv(name)


def options(*words):
    return parse([*words, SCRIPT])


def test_defaults_are_torchruns():
    found = options()
    assert (found.nproc_per_node, found.nnodes, found.node_rank) == (1, 1, 0)
    assert (found.address, found.port, found.run_id) == ("127.0.0.1", 0, "none")
    assert (found.max_restarts, found.grace, found.role) == (0, 30.0, "default")
    assert found.command == (sys.executable, "-u", SCRIPT)
    assert found.signals == ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    assert not found.keeps_files


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--no-such", "3"], "unrecognized arguments: --no-such"),
        (["-x"], "unrecognized arguments: -x"),
        (["--nproc-per-node", "zz"], "Unsupported nproc_per_node value: zz"),
        (["-n", "x"], "value: x; give a number, cpu, gpu or auto, as in `-n 4`"),
        (["-np", "2"], "value: p; mpirun's -np 4 is -n 4 or --nproc-per-node 4 here"),
        (["-np2"], "value: p2; mpirun's -np 4 is -n 4 or --nproc-per-node 4 here"),
        (["--nproc-per-node", "0"], "at least one process is needed"),
        (["--nnodes", "1:4"], "nodes that come and go need --rdzv-endpoint"),
        (
            ["--nnodes", "1:4", "--on-failure", "stop"],
            "--nnodes 1:4: --on-failure stop restarts nothing",
        ),
        (["--nnodes", "4:1"], "--nnodes 4:1: the maximum is less than the minimum"),
        (["--nnodes", "1:x"], "--nnodes must be a number or MIN:MAX, not 1:x"),
        (
            ["--spares", "1", "--on-failure", "stop"],
            "--spares 1: --on-failure stop restarts nothing",
        ),
        (["--spares", "-1"], "--spares: -1 is not 0 or more"),
        (
            ["--on-failure=continue", "--nnodes=1:2"],
            "nodes that come and go need --rdzv-endpoint",
        ),
        (["--rdzv-conf", "journal=x"], "'journal=x' is neither"),
        (
            ["--on-failure=continue", "--nnodes=1:2", "--rdzv-conf", "standby=true"],
            "standby=true needs journal=FILE",
        ),
        (
            ["--nnodes=2", "--rdzv-endpoint=a:1,b:2"],
            "a second HOST:PORT, for the standby, is for nodes that come and go",
        ),
        (["--nnodes=1:2", "--rdzv-endpoint=a:1,b:2,c:3"], "and there is no third"),
        (["--nnodes=1:2", "--rdzv-endpoint=a:1,b:x"], "must be HOST:PORT, not b:x"),
        (
            ["--nnodes=1:2", "--rdzv-endpoint=a:1,b", "--rdzv-conf=is_host=true"],
            "need --rdzv-conf journal=FILE, which the standby goes on with",
        ),
        (["--nnodes", "0"], "at least one node is needed"),
        (["--nnodes", "x"], "--nnodes must be a number or MIN:MAX, not x"),
        (["--node-rank", "1"], "--node-rank 1 is not less than the number of nodes"),
        (["--node-rank", "-1"], "--node-rank: -1 is not 0 or more"),
        (["--master-port", "70000"], "--master-port: 70000 is not in 0..65535"),
        (["--standalone", "--nnodes", "2"], "--standalone is for one node"),
        (["--standalone=1"], "--standalone: ignored explicit argument '1'"),
        (["--nnodes", "2", "--master-port", "0"], "several nodes need --master-port"),
        (
            ["--rdzv-backend", "etcd"],
            "--rdzv-backend must be 'static' or 'c10d', not 'etcd'",
        ),
        (["--rdzv-backend=c10d", "--nnodes=2"], "c10d needs --rdzv-endpoint"),
        (["--rdzv-endpoint", "host:70000"], "must be HOST:PORT, not host:70000"),
        (["--rdzv-conf", "speed=3"], "'speed=3' is neither"),
        (["--max-restarts", "-1"], "--max-restarts: -1 is not 0 or more"),
        (["--on-failure", "go"], "--on_failure: invalid choice: 'go' (choose from"),
        (
            ["--on-failure", "stop", "--max-restarts", "2"],
            "--max-restarts 2: --on-failure stop restarts nothing",
        ),
        (["--max-restarts", "many"], "invalid int value: 'many'"),
        (["--monitor-interval", "x"], "invalid float value: 'x'"),
        (
            ["--start-method", "magic"],
            "--start_method: invalid choice: 'magic' (choose from",
        ),
        (["--signals-to-handle", "SIGFOO"], "unknown signal 'SIGFOO'"),
        (["--signals-to-handle", "SIGTERM,SIGKILL"], "SIGKILL cannot be caught"),
        (["--redirects", "4"], "--redirects: '4' is neither"),
        (["--tee", "5:1"], "--tee: there is no local rank 5"),
        (
            ["--local-ranks-filter", "a"],
            "--local-ranks-filter must be ranks, such as 0,2, not a",
        ),
        (
            ["--local-ranks-filter", "1"],
            "--local-ranks-filter: there is no local rank 1",
        ),
        (
            ["--local-ranks-filter", "-1"],
            "--local-ranks-filter: there is no local rank -1",
        ),
        (["-m", "--no-python"], "--no-python is not allowed with --module"),
        (
            ["--numa-binding", "far"],
            "--numa_binding: invalid choice: 'far'",
        ),
        (["--logs-specs", "mine"], "--logs-specs mine: torch's LogsSpecs classes"),
        (["--event-log-handler=console"], "so only 'null' is accepted; its report on"),
        (["--tls=on"], "--tls: invalid choice: 'on' (choose from"),
        (["--token=hunter2"], "--token must be 'env' or 'auto', not the token itself"),
        (
            ["--token=auto", "--nnodes=2", "--master-port=1"],
            "set the same DISTLITE_TOKEN or DISTLITE_TOKEN_FILE on each of them",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(capsys, words, complaint):
    with pytest.raises(SystemExit) as caught:
        options(*words)
    assert caught.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: distlite run [options] script [arguments of the script]"
    assert complaint in error
    assert "hunter2" not in error


def test_a_token_is_made_where_there_is_none(monkeypatch):
    assert options().token is None
    first, second = options("--token=auto").token, options("--token", "auto").token
    assert len(first) == len(second) == 64
    assert first != second
    monkeypatch.setenv("PET_TOKEN", "auto")
    assert options().token is not None
    assert options("--token=env").token is None
    for name in ("DISTLITE_TOKEN", "DISTLITE_TOKEN_FILE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "known")
            assert options().token is None
            assert options("--nnodes=2", "--master-port=1").token is None


def test_the_mode_of_tls_is_the_environments_or_given(monkeypatch):
    monkeypatch.setenv("DISTLITE_TLS", "psk")
    assert options().tls is options("--tls=env").tls is None
    assert options("--tls", "off").tls == "off"
    monkeypatch.setenv("PET_TLS", "cert")
    assert options().tls == "cert"


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"DISTLITE_TOKEN": ""}, "DISTLITE_TOKEN is empty"),
        ({"DISTLITE_TOKEN": "a", "DISTLITE_TOKEN_FILE": "b"}, "are both set"),
    ],
)
def test_a_token_that_is_none_is_refused(monkeypatch, capsys, variables, complaint):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        options()
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "soon"])
def test_a_wrong_time_in_the_environment_is_refused(monkeypatch, capsys, text):
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", text)
    with pytest.raises(SystemExit):
        options()
    error = f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT must be a number of seconds, not {text}"
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(("shown", "ranks"), [("", 2), ("4,5", 3)])
def test_ranks_get_no_gpu_that_is_hidden(monkeypatch, capsys, shown, ranks):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert options("--virtual-local-rank", "-n", f"{ranks - 1}").has_virtual_local_rank
    with pytest.raises(SystemExit):
        options("--virtual-local-rank", "-n", f"{ranks}")
    assert f"CUDA_VISIBLE_DEVICES={shown} has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["no-such-script.py"], "script 'no-such-script.py' not found"),
        (["docter"], "'docter' not found; `distlite --help` shows the commands"),
        (["4", "train.py"], "is an option: `distlite run -n 4 train.py`"),
        (["python", "train.py"], "scripts run by this Python, so leave it out"),
        (["sh", "-c", "date"], "--no-python runs a program that is not a script"),
        (["--no-python", "no-such-program"], "program 'no-such-program' not found"),
        ([], "no script is given, as in `distlite run -n 4 script.py`"),
        (["-n", "2"], "the following arguments are required: training_script"),
        (["--nnodes"], "argument --nnodes: expected one argument"),
    ],
)
def test_a_program_that_there_is_not_is_refused(
    capsys, tmp_path, monkeypatch, words, complaint
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        parse(words)
    assert complaint in capsys.readouterr().err


def test_the_end_of_a_script_s_name_may_be_missing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    with pytest.raises(SystemExit):
        parse(["-n", "2", "train"])
    assert "script 'train' not found; is it train.py?" in capsys.readouterr().err


def test_a_folder_needs_a_main_module(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").mkdir()
    with pytest.raises(SystemExit):
        parse(["python", "train.py"])
    text = capsys.readouterr().err
    assert "script 'python' is a folder without __main__.py; scripts run by" in text
    (tmp_path / "python" / "__main__.py").touch()
    assert parse(["python"]).command[-1] == "python"


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for action in make_parser()._actions:
        assert any(name in text for name in action.option_strings or [""])
    assert max(map(len, text.splitlines())) <= 80


def test_the_version_comes_from_one_source(capsys):
    with pytest.raises(SystemExit) as end:
        parse(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"distlite {distlite.__version__}\n"
    assert metadata.version("distlite") == distlite.__version__


def test_help_of_the_command_names_the_others(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"], "distlite")
    text = capsys.readouterr().out
    assert all(f"  distlite {name} " in text for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("join", ["-", "_"])
def test_both_spellings_and_both_ways_to_give_a_value(join):
    names = ["nproc-per-node", "max-restarts", "log-dir", "rdzv-id"]
    nproc, restarts, log, job = (f"--{name.replace('-', join)}" for name in names)
    found = options(nproc, "3", f"{restarts}=2", f"{log}=a_b-c", job, "my-job_1")
    assert (found.nproc_per_node, found.max_restarts) == (3, 2)
    assert (found.log_dir, found.run_id) == ("a_b-c", "my-job_1")


def test_options_after_the_script_are_the_scripts():
    found = parse([SCRIPT, "--nnodes", "5", "-m"])
    assert found.nnodes == 1
    assert found.command[-3:] == ("--nnodes", "5", "-m")
    assert parse(["--", SCRIPT, "--", "x"]).command[-3:] == (SCRIPT, "--", "x")


def test_the_environment_gives_defaults(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "4")
    monkeypatch.setenv("PET_STANDALONE", "1")
    monkeypatch.setenv("PET_NNODES", "1")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    monkeypatch.setenv("PYTHON_EXEC", "other-python")
    found = options()
    assert (found.nproc_per_node, found.port, found.grace) == (4, 0, 7.0)
    assert found.command[0] == "other-python"
    assert options("--nproc-per-node=2").nproc_per_node == 2
    assert options("--shutdown-timeout", "3").grace == 3.0


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--rdzv-endpoint", "node7:1234"], ("node7", 1234)),
        (["--rdzv-endpoint", "[fd00::1]:1234"], ("fd00::1", 1234)),
        (["--rdzv-endpoint", "node7", "--nnodes=2"], ("node7", 29500)),
        (["--rdzv-endpoint", "a:7,b:8", "--nnodes=1:2"], ("a", 7)),
        (["--nnodes=2", "--master-addr", "n"], ("n", 29500)),
        (["--master-addr", "n"], ("n", 0)),
        (["--master-port", "5"], ("127.0.0.1", 5)),
        (["--standalone", "--rdzv-endpoint", "n:4"], ("127.0.0.1", 0)),
        (["--local-addr", "127.0.0.2"], ("127.0.0.2", 0)),
        (["--local-addr", "127.0.0.2", "--standalone"], ("127.0.0.2", 0)),
        (["--local-addr", "127.0.0.2", "--master-addr", "n"], ("n", 0)),
        (["--local-addr", "m", "--nnodes=2", "--master-addr", "n"], ("n", 29500)),
    ],
)
def test_where_nodes_meet(words, place):
    found = options(*words)
    assert (found.address, found.port) == place


def test_nodes_of_the_c10d_backend_are_numbered_as_they_come():
    words = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n:1"]
    found = options(*words, "--node-rank=9", "--rdzv-conf=is_host=true,join_timeout=5")
    assert found.arrives
    assert (found.hosts_store, found.join_timeout) == (True, 5.0)
    assert not options("--rdzv-backend=c10d", "--rdzv-endpoint=n:1").arrives


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("3", (3, 3, 3)), ("0:1,2:3", (1, 0, 3)), ("0", (0, 0, 0))],
)
def test_streams_of_all_ranks_or_of_some(text, chosen):
    words = ["--nproc-per-node=3", "--log-dir=x"]
    assert options(*words, "--redirects", text).redirects == chosen
    assert options(*words, "-t", text).tees == chosen
    assert options(*words, f"-r{text}").redirects == chosen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("apple", ["apple"]),
        ("apple,orange juice", ["apple", "orange juice"]),
        ("a,,b,c", ["a,b", "c"]),
        ("a,", ["a"]),
    ],
)
def test_words_of_lines_that_are_copied(text, words):
    found = options("--duplicate-stdout-filters", text)
    assert found.filters == (words, [])
    assert found.keeps_files == bool(words)
    assert options("--duplicate_stderr_filters", text).filters == ([], words)


def test_what_torchrun_takes_by_default_is_taken():
    assert options("--event-log-handler", "null").numa_binding == ""
    assert options("--numa_binding", "core-complex").numa_binding == "core-complex"


@pytest.mark.parametrize(
    ("words", "goes_on", "restarts"),
    [
        ([], False, 0),
        (["--max-restarts=2"], False, 2),
        (["--on-failure=stop"], False, 0),
        (["--on-failure=continue"], True, 3),
        (["--on-failure=continue", "--max-restarts=7"], True, 7),
    ],
)
def test_who_is_started_again(words, goes_on, restarts):
    found = options(*words)
    assert (found.goes_on, found.max_restarts) == (goes_on, restarts)


def test_a_parser_describes_the_same_job():
    words = ["-n", "3", "-t3", "--duplicate-stdout-filters=a,,b,c", "--standalone"]
    args = parse_args([*words, "--max_restarts=2", SCRIPT, "--nnodes", "5"])
    assert (args.nproc_per_node, args.max_restarts) == ("3", 2)
    assert args.training_script_args == ["--nnodes", "5"]
    found, expected = (
        options_of(args),
        parse([*words, "--max-restarts=2", SCRIPT, "--nnodes", "5"]),
    )
    for name in (
        "nproc_per_node",
        "tees",
        "filters",
        "address",
        "port",
        "command",
        "max_restarts",
        "signals",
    ):
        assert getattr(found, name) == getattr(expected, name), name


def test_values_of_a_parser_win_over_the_environment(monkeypatch):
    args = parse_args([SCRIPT])
    monkeypatch.setenv("PET_MASTER_PORT", "5")
    monkeypatch.setenv("PET_STANDALONE", "1")
    assert options_of(args).port == 0
    assert parse_args([SCRIPT]).master_port == 5
    assert parse_args([SCRIPT]).standalone is True


def test_values_that_do_not_fit_are_refused():
    args = parse_args(["--nnodes", "2", "--standalone", SCRIPT])
    with pytest.raises(ValueError, match="--standalone is for one node"):
        run(args)


def test_the_kinds_of_programs():
    python = (sys.executable, "-u")
    assert parse(["-m", "a.module", "x"]).command == (*python, "-m", "a.module", "x")
    assert parse(["--no-python", "sh", "-c", "x"]).command == ("sh", "-c", "x")
    found = parse(["--run-path", SCRIPT, "x"])
    assert found.command[:3] == (*python, "-c")
    assert found.command[4:] == (SCRIPT, "x")


def test_one_rank_per_core_or_gpu(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_count() == 0
    for word in ("auto", "cpu"):
        assert options("--nproc-per-node", word).nproc_per_node == usable_cores()
    with pytest.raises(SystemExit):
        options("--nproc-per-node", "gpu")
    assert "no GPU was found on this host" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["0", "false", "No", "F", "n", ""])
def test_a_flag_of_the_environment_that_says_no_is_off(monkeypatch, word):
    monkeypatch.setenv("PET_STANDALONE", word)
    assert options("--nnodes", "2", "--master-port", "5").nnodes == 2
    assert not parse_args([SCRIPT]).standalone


@pytest.mark.parametrize("word", ["1", "true", "Yes", "T", "y"])
def test_a_flag_of_the_environment_that_says_yes_is_on(monkeypatch, word):
    monkeypatch.setenv("PET_VIRTUAL_LOCAL_RANK", word)
    assert options().has_virtual_local_rank
    assert parse_args([SCRIPT]).virtual_local_rank


def test_a_flag_of_the_environment_that_says_neither_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("PET_STANDALONE", "perhaps")
    text = "PET_STANDALONE must be 1 or 0, true or false, yes or no, not 'perhaps'"
    with pytest.raises(SystemExit):
        options()
    assert text in capsys.readouterr().err
    with pytest.raises(ValueError, match=text):
        parse_args([SCRIPT])


def test_a_value_of_the_environment_is_one_of_the_choices(monkeypatch, capsys):
    monkeypatch.setenv("PET_NUMA_BINDING", "far")
    with pytest.raises(SystemExit):
        options()
    text = "PET_NUMA_BINDING: 'far' is not one of node, socket"
    assert text in capsys.readouterr().err


def test_a_parser_leaves_the_scripts_options_alone(capsys):
    words = ["train.py", "--mo", "0.9", "--nnodes", "-n", "--r=1", "--m"]
    assert parse_args(words).training_script_args == words[1:]
    with pytest.raises(SystemExit):  # as on the command line
        parse_args(["--nproc", "4", "train.py"])
    assert "--nproc" in capsys.readouterr().err
