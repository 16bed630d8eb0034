# SPDX-License-Identifier: BSD-3-Clause
"""The examples do what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch, launched
from ports import reserve_port

pytest.importorskip("sklearn", reason="scikit-learn, with the digits, is not installed")
np = pytest.importorskip("numpy")
# They train: more to compute than other tests have.
pytestmark = pytest.mark.limit(600)
SECONDS = 250

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "train_digits.py"
DDP = EXAMPLES / "train_digits_ddp.py"
STANDINS = Path(__file__).parents[1] / "standins"


def train(ranks, *arguments):
    return launch(["--nproc-per-node", ranks, DIGITS, *arguments], timeout=SECONDS)


@pytest.fixture(scope="module")
def parameters_of_one(tmp_path_factory):
    """What one process comes to, not even started by the launcher."""
    saved = tmp_path_factory.mktemp("one") / "one.npy"
    words = [sys.executable, DIGITS, "--save", saved]
    bare = {k: v for k, v in os.environ.items() if k != "RANK"}
    subprocess.run(
        words, check=True, timeout=SECONDS, env=bare, stdout=subprocess.DEVNULL
    )
    return np.load(saved)


def test_two_ranks_train_as_one_does():
    result = train(2, "--epochs", 8, "--check")
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()[-2:]
    assert first.startswith("[rank0]: parameters equal to a single process's within")
    assert second == "[rank0]: parameters equal on every rank"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_number_of_ranks_trains_the_same_model(ranks, parameters_of_one, tmp_path):
    result = train(ranks, "--save", tmp_path / "saved.npy", "--check")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "[rank0]: parameters equal on every rank" in lines
    (accuracy,) = (line for line in lines if "test accuracy" in line)
    assert float(accuracy.split()[-1]) >= 0.95
    assert sum(": epoch " in line for line in lines) == 30
    assert all(line.startswith("[rank0]: ") for line in lines)
    parameters = np.load(tmp_path / "saved.npy")
    assert parameters.dtype == np.float64
    np.testing.assert_allclose(parameters, parameters_of_one, rtol=1e-6, atol=1e-12)
    assert np.abs(parameters).max() > 0.1


def test_a_training_outlives_all_of_its_processes():
    program = EXAMPLES / "survivors.py"
    assert len(program.read_text().splitlines()) < 100
    result = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=SECONDS
    )
    assert result.returncode == 0, result.stdout + result.stderr
    *_, replaced, last = result.stdout.splitlines()
    assert replaced.endswith("[4, 5] have joined, [2, 3] were killed")
    assert last.endswith("the parameters are those of an undisturbed training")


@pytest.mark.slow
def test_two_launchers_train_one_model(parameters_of_one, tmp_path):
    """As on two hosts: the second one's ranks find the first one's store."""
    job = ["--nnodes", 2, "--nproc-per-node", 2]
    job += ["--master-port", reserve_port()]
    saved = tmp_path / "saved.npy"
    with launched([*job, "--node-rank", 1, DIGITS]) as (second, _):
        first = launch([*job, DIGITS, "--save", saved], timeout=SECONDS)
        _, errors = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + errors
    assert "[rank0]: parameters equal on every rank" in first.stdout
    np.testing.assert_allclose(np.load(saved), parameters_of_one, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_shares_may_be_empty():
    """Batches of 3 images on 4 ranks, and a single one at the end of each epoch."""
    words = ["--batch-size", 3, "--epochs", 3, "--learning-rate", 0.01, "--check"]
    result = train(4, *words)
    assert result.returncode == 0, result.stderr
    assert "[rank0]: parameters equal on every rank" in result.stdout


@pytest.mark.slow
def test_too_little_training_is_an_error():
    result = train(2, "--epochs", 1, "--learning-rate", 0.0)
    assert result.returncode == 1
    assert "is below 0.95" in result.stderr
    assert "parameters equal" not in result.stdout


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar():
    pytest.importorskip("rich", reason="rich, which draws the bar, is not installed")
    ours, theirs = os.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    words = ["--nproc-per-node", 2, DIGITS]
    with launched(words, env={"TERM": "xterm", "COLUMNS": "90"}, **streams) as (job, _):
        os.close(theirs)
        seen = b""
        try:
            while b"parameters equal on every rank" not in seen:
                seen += os.read(ours, 4096)
            assert job.wait(60) == 0
        finally:
            os.close(ours)
    assert b"\x1b[2K" in seen  # drawn over and over
    assert b"100%" in seen
    assert b"epoch " not in seen


# (example, a package that is not there, what it says)
MISSING = [
    *((name, "matplotlib", "--plot needs matplotlib: pip install matplotlib")
      for name in ("evolution", "heat", "kmeans", "parameter_server", "sort")),
    *((name, "sklearn", f"{name}.py needs scikit-learn: pip install scikit-learn")
      for name in ("digits", "train_digits", "train_digits_ddp")),
    ("ddp", "torch", "ddp.py needs torch: pip install torch"),
    ("train_torch", "torch", "train_torch.py needs torch and scikit-learn: "),
    ("ray_actors", "ray", "ray_actors.py needs Ray: pip install ray"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "package", "text"), MISSING)
def test_a_missing_package_is_named_in_one_line(name, package, text):
    program = (
        "import runpy, sys\n"
        f"sys.modules[{package!r}] = None\n"
        "del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = [sys.executable, "-c", program, EXAMPLES / f"{name}.py"]
    command += ["--plot", "picture.png"] if package == "matplotlib" else []
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(text)


@pytest.mark.slow
def test_without_matplotlib_there_is_no_loss_curve(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('hidden')\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {k: v for k, v in os.environ.items() if k != "RANK"}
    result = subprocess.run(
        [sys.executable, DIGITS, "--plot", tmp_path / "loss.png"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**environment, "PYTHONPATH": paths},
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "--plot needs matplotlib: pip install matplotlib\n"
    assert not (tmp_path / "loss.png").exists()


@pytest.mark.slow
def test_the_tutorial_of_data_parallel_training():
    result = launch(
        ["--nproc-per-node", 2, DDP, "--epochs", 5, "--check"], timeout=SECONDS
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "[rank0]: parameters equal on every rank, and to a single process's" in lines
    assert sum(": epoch " in line for line in lines) == 5


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint(tmp_path):
    """On three ranks, whose shares of the images do not come out even."""
    words = ["--nproc-per-node", 3, DDP, "--checkpoint", tmp_path / "saved.npz"]
    first = launch([*words, "--epochs", 2], timeout=SECONDS)
    assert first.returncode == 0, first.stderr
    second = launch([*words, "--epochs", 6, "--resume", "--check"], timeout=SECONDS)
    assert second.returncode == 0, second.stderr
    assert sum(": epoch " in line for line in second.stdout.splitlines()) == 4
    assert "parameters equal on every rank, and to a single" in second.stdout


@pytest.mark.slow
def test_the_tutorial_sees_too_little_training():
    words = ["--nproc-per-node", 2, DDP, "--epochs", 1, "--learning-rate", 0.0]
    result = launch([*words, "--check"], timeout=SECONDS)
    assert result.returncode == 1
    assert "is below 0.95" in result.stderr


@pytest.mark.slow
def test_the_tutorial_in_one_process():
    bare = {k: v for k, v in os.environ.items() if k != "RANK"}
    words = [sys.executable, DDP, "--epochs", "5", "--check"]
    subprocess.run(
        words, check=True, timeout=SECONDS, env=bare, stdout=subprocess.DEVNULL
    )


def test_several_groups_at_once():
    words = ["--nproc-per-node", 3, EXAMPLES / "multiple_groups.py", "--check"]
    result = launch([*words, "--backends", "gloo", "xccl"], timeout=SECONDS)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "[rank0]: xccl is not here: gloo in its place" in lines
    for who, members, total in ((0, [0, 2], 4), (1, [1], 2)):
        assert f"[rank{who}]: ranks {members}, gloo: sum {total}" in lines
    for name in ("gloo", "xccl"):
        assert f"[rank0]: all ranks, for {name}, gloo: sum 6" in lines
    assert "[rank0]: every sum is right" in lines


@pytest.mark.slow
def test_actors_are_ranks():
    """With processes for actors; tests/parity has Ray's own."""
    paths = os.pathsep.join([str(STANDINS), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, EXAMPLES / "ray_actors.py", "--actors", "3", "--check"]
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "the same as one process finds, on every actor" in result.stdout
