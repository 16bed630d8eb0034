# SPDX-License-Identifier: BSD-3-Clause
"""The launcher's parser and the meaning of its options, beside torchrun's."""

import io
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import launch, write_script
from numa_tree import NODES, TOTAL, make_tree

from distlite.launch.numa import MODES, Machine
from distlite.run import get_args_parser, run

theirs = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
binding = pytest.importorskip("torch.numa.binding")

# Processes that import torch take their time.
pytestmark = pytest.mark.limit(200)

LINES = [
    ["train.py"],
    ["--nnodes=2:2", "--nproc_per_node", "gpu", "train.py", "--nnodes", "3", "-x"],
    ["-m", "a.module"],
    ["--no-python", "--tee=3", "-r", "0:1,1:2", "prog"],
    ["--run_path", "--standalone", "--max-restarts", "3", "train.py"],
    ["--rdzv_backend", "c10d", "--rdzv-endpoint=h:1", "--rdzv-id=7", "train.py"],
    ["--rdzv-conf", "timeout=3", "--monitor-interval", "5", "train.py"],
    ["--master-addr=h", "--master_port=5", "--local_addr", "l", "t", "--node-rank=1"],
    ["--node-rank", "2", "--role=r", "--log-dir", "d", "--start-method=fork", "t"],
    ["--duplicate-stdout-filters", "a,,b,c", "--duplicate_stderr_filters=d", "t"],
    ["--logs-specs", "x", "--event-log-handler", "console", "--numa-binding=node", "t"],
    ["--shutdown-timeout", "7", "--signals-to-handle", "SIGTERM", "t"],
    ["--virtual-local-rank", "--local-ranks-filter", "0,1", "t"],
]
WRONG = [
    [],
    ["--start-method", "magic", "t"],
    ["--numa-binding", "far", "t"],
    ["--max-restarts", "many", "t"],
    ["--no-such-option", "t"],
]


def actions(parser):
    return {action.dest: action for action in parser._actions if action.dest != "help"}


def test_every_option_of_torchruns_is_the_parsers():
    own, others = actions(get_args_parser()), actions(theirs.get_args_parser())
    for name, other in others.items():
        assert set(other.option_strings) <= set(own[name].option_strings)
        assert (own[name].default, own[name].nargs) == (other.default, other.nargs)
        assert list(own[name].choices or []) == list(other.choices or [])


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_values_are_torchruns(words):
    own = vars(get_args_parser().parse_args(words))
    expected = vars(theirs.get_args_parser().parse_args(words))
    assert {name: own[name] for name in expected} == expected


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_torchrun_refuses_is_refused(words, capsys):
    said = []
    for parser in get_args_parser(), theirs.get_args_parser():
        with pytest.raises(SystemExit) as end:
            parser.parse_args(words)
        said.append((end.value.code, capsys.readouterr().err.splitlines()[-1]))
    assert said[0] == said[1]


def test_the_environment_gives_the_same_defaults(monkeypatch):
    for name, value in {
        "PET_NNODES": "2",
        "PET_STANDALONE": "1",
        "PET_MASTER_PORT": "77",
        "PET_MAX_RESTARTS": "4",
        "PET_DUPLICATE_STDOUT_FILTERS": "a,b",
        "PET_VIRTUAL_LOCAL_RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    own = vars(get_args_parser().parse_args(["t"]))
    expected = vars(theirs.get_args_parser().parse_args(["t"]))
    assert {name: own[name] for name in expected} == expected


COUNT_RANKS = "open(f'{sys.argv[1]}/{rank}', 'w').write(str(world_size))"


def test_values_of_torchruns_parser_are_run(tmp_path):
    script = write_script(tmp_path, COUNT_RANKS)
    words = ["--nproc-per-node", "2", script, str(tmp_path)]
    run(theirs.get_args_parser().parse_args(words))
    assert [(tmp_path / name).read_text() for name in "01"] == ["2", "2"]


def test_a_job_that_fails_ends_the_program_with_its_status(tmp_path, capfd):
    script = write_script(tmp_path, "sys.exit(3)")
    with pytest.raises(SystemExit) as end:
        run(get_args_parser().parse_args([script]))
    assert end.value.code == 3
    assert "rank 0 failed first: exit code 3" in capfd.readouterr().err


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("sys"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "allowed", [range(2 * TOTAL), range(1, 2 * TOTAL, 3), range(TOTAL + 5)], ids=len
)
def test_ranks_get_the_cores_that_torch_gives_them(tree, monkeypatch, mode, allowed):
    """torch is asked in a host that is made up, whose GPUs are on given nodes."""

    def place(path):
        return str(path).replace("/sys/", f"{tree}/", 1)

    mask = set(allowed)
    shim = SimpleNamespace(
        listdir=lambda path: os.listdir(place(path)),
        sched_getaffinity=lambda _: mask,
        path=os.path,
    )
    monkeypatch.setattr(binding, "os", shim)
    monkeypatch.setattr(
        binding,
        "open",
        lambda path: io.StringIO(Path(place(path)).read_text()),
        raising=False,
    )
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    machine = Machine(mask, str(tree))
    nodes = [0, 0, 0]
    monkeypatch.setattr(
        binding,
        "_get_numa_node_index_for_gpu_index",
        lambda gpu_index: nodes[gpu_index],
    )
    monkeypatch.setattr(binding, "_get_gpu_count", lambda: len(nodes))
    for chosen in itertools.product(range(NODES), repeat=3):
        nodes[:] = chosen
        for rank in range(3):
            expected = binding._get_logical_cpus_to_bind_to(
                gpu_index=rank, numa_options=options
            )
            assert machine.cores(mode, rank, nodes) == expected


SAY = """
for word in "apple", "orange", "a, b", "plum":
    print(word, "of", rank)
    print("bad" if word == "plum" else "good", word, "of", rank, file=sys.stderr)
"""


def test_the_same_lines_are_copied(tmp_path):
    script = write_script(tmp_path, SAY)
    words = [
        "--nproc-per-node",
        2,
        "--tee",
        3,
        "--duplicate-stdout-filters",
        "pp,a,, b",
    ]
    words += ["--duplicate-stderr-filters", "bad"]
    found = []
    for command in "torch.distributed.run", "distlite.run":
        logs = tmp_path / command
        given = [*words, "--log-dir", logs, script]
        result = launch(given, command=[sys.executable, "-m", command], timeout=140)
        assert result.returncode == 0, result.stderr
        lines = {}
        for stream in "stdout", "stderr":
            (path,) = logs.glob(f"*/attempt_0/filtered_{stream}.log")
            # After the prefix, which is each launcher's own.
            lines[stream] = sorted(
                line.split(":", 1)[1].strip() for line in path.read_text().splitlines()
            )
        found.append(lines)
    assert found[1] == found[0]
    assert found[0]["stderr"] == ["bad plum of 0", "bad plum of 1"]
