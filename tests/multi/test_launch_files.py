# SPDX-License-Identifier: BSD-3-Clause
"""Files of the ranks' output, restarts, and what a rank writes down about its end."""

import json
import os
import re
import sys

import pytest
from launching import launch, write_script

from distlite.launch.numa import cores_of_rank

TALK = ["--no-python", "sh", "-c", 'echo "out $RANK"; echo "err $RANK" >&2']


def files_of(folder):
    """Of the one job whose files lie in a folder: their texts, by path below it."""
    (job,) = folder.iterdir()
    return job.name, {
        str(path.relative_to(job)): path.read_text()
        for path in job.rglob("*")
        if path.is_file()
    }


def lines(text):
    return sorted(line for line in text.splitlines() if not line.startswith("distlite"))


def test_redirected_output_is_in_files_only(tmp_path):
    words = ["--nproc-per-node", 2, "--rdzv-id", "job/5", "--log-dir", tmp_path]
    result = launch([*words, "-r", "0:3,1:1", *TALK])
    name, files = files_of(tmp_path)
    assert re.fullmatch(r"job_5_[0-9a-f]{8}", name)
    assert files == {
        "attempt_0/0/stdout.log": "out 0\n",
        "attempt_0/0/stderr.log": "err 0\n",
        "attempt_0/1/stdout.log": "out 1\n",
    }
    assert result.stdout == ""
    assert lines(result.stderr) == ["[rank1]: err 1"]
    assert f"distlite: files of the ranks' output: {tmp_path}/job_5_" in result.stderr


def test_teed_output_is_in_both_places_and_shown_of_the_chosen_ranks(tmp_path):
    words = ["--nproc-per-node", 3, "--log-dir", tmp_path, "--tee", 3]
    words += ["--local-ranks-filter", "0,2", *TALK]
    template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank}> "}
    result = launch(words, env=template)
    _, files = files_of(tmp_path)
    assert files == {
        f"attempt_0/{rank}/std{name}.log": f"{name} {rank}\n"
        for rank in range(3)
        for name in ("out", "err")
    }
    assert lines(result.stdout) == ["<default 0> out 0", "<default 2> out 2"]
    assert lines(result.stderr) == ["<default 0> err 0", "<default 2> err 2"]


def test_without_a_folder_files_are_temporary_ones(tmp_path):
    """Kept where they were asked for, else gone with the job."""
    temporary = {"TMPDIR": str(tmp_path)}
    assert launch(TALK, env=temporary).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert launch(["-r", 1, *TALK], env=temporary).returncode == 0
    assert files_of(tmp_path)[1] == {"attempt_0/0/stdout.log": "out 0\n"}


def test_a_folder_that_cannot_be_made_is_said_before_any_rank_starts(tmp_path):
    (tmp_path / "file").touch()
    result = launch(["--log-dir", tmp_path / "file", *TALK])
    assert (result.returncode, result.stdout) == (1, "")
    assert "distlite: cannot make the folder" in result.stderr
    assert "Not a directory" in result.stderr


def test_a_folder_that_cannot_be_filled_is_named(tmp_path):
    """The kernel makes no folder of that name there, nor a file within it."""
    result = launch(["--log-dir", "/proc/self/fd", *TALK])
    assert (result.returncode, result.stdout) == (1, "")
    assert "distlite: cannot make the folder /proc/self/fd/none_" in result.stderr
    script = write_script(
        tmp_path,
        """
        import shutil
        folder = os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])
        attempts = os.path.dirname(os.path.dirname(folder))
        shutil.rmtree(attempts)
        open(attempts, "w").close()
        sys.exit(3)
        """,
    )
    words = ["--log-dir", tmp_path / "logs", "--max-restarts", 1, script]
    result = launch(words)
    assert result.returncode == 1
    end = result.stderr.splitlines()[-1]
    assert end.startswith(f"distlite: Not a directory: '{tmp_path}/logs/none_")
    assert end.endswith("/attempt_1'")


LAUNCHES = """
import ctypes, os, signal
from distlite import run

def state():
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0)
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return value.value, len(os.listdir("/proc/self/fd")), handlers

def launch(*words):
    try:
        run.run(run.parse_args(["-n2", "--no-python", *words]))
    except (SystemExit, ValueError) as error:
        print(error)

is_reaper, _, handlers = state()
launch("true")  # the library keeps a pipe
before = state()
assert (is_reaper, handlers) == (before[0], before[2])
for word in ("true", "false", "/"):
    launch(word)
assert state() == before
"""


def test_a_program_that_launches_is_left_as_it_was(tmp_path):
    script = tmp_path / "launches.py"
    script.write_text(LAUNCHES)
    result = launch([script], command=[sys.executable])
    assert result.returncode == 0, result.stderr
    assert result.stdout == "1\nprogram '/' not found\n"


def test_all_ranks_start_again_when_one_has_failed(tmp_path):
    """With a store that is the same server, and keys of each attempt's own."""
    script = write_script(
        tmp_path,
        """
        from datetime import timedelta
        from distlite import rendezvous
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=30)))
        store.set(f"here {rank}", "x")
        store.wait(["here 0", "here 1"])
        port, most = os.environ["MASTER_PORT"], os.environ["TORCHELASTIC_MAX_RESTARTS"]
        print(attempt, most, store.add("count", 1) <= 2, port, flush=True)
        store.set(f"said {rank}", "x")
        store.wait(["said 0", "said 1"])
        if attempt < 2 and rank == attempt:
            sys.exit(9)
        """,
    )
    result = launch(
        ["--nproc-per-node", 2, "--max-restarts", 3, "--log-dir", tmp_path / "l",
         "--tee", 1, script]
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    port = result.stdout.split()[-1]
    expected = [f"[rank{r}]: {a} 3 True {port}" for r in range(2) for a in range(3)]
    assert lines(result.stdout) == expected
    assert "rank 0 failed first: exit code 9" in result.stderr
    assert "rank 1 failed first: exit code 9" in result.stderr
    assert (
        "distlite: restarting all ranks; 1 restart(s) left after this one"
        in result.stderr
    )
    assert len(files_of(tmp_path / "l")[1]) == 6


def test_after_the_last_restart_the_job_has_failed():
    words = ["--max-restarts", 1, "--no-python", "sh", "-c"]
    result = launch([*words, "echo $TORCHELASTIC_RESTART_COUNT; exit 4"])
    assert result.returncode == 4
    assert result.stdout == "[rank0]: 0\n[rank0]: 1\n"


def test_the_launchers_store_outlives_rank_0(tmp_path):
    script = write_script(
        tmp_path,
        """
        from datetime import timedelta
        from distlite import rendezvous
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=30)))
        if rank == 0:
            store.set("pid", str(os.getpid()))
        else:
            pid = int(store.get("pid"))
            while os.path.exists(f"/proc/{pid}"):
                time.sleep(0.01)
            store.set("key", "value")
            print(store.get("key"))
        """,
    )
    result = launch(["--nproc-per-node", 2, script])
    assert (result.returncode, result.stdout) == (0, "[rank1]: b'value'\n")


RECORDED = """
from distlite.launch import record
@record
def main():
    raise LookupError("the cause")
if rank == 1:
    try:
        main()
    finally:
        # Threads that go on writing do not hide it.
        print("Traceback (most recent call last):\\n  of a thread", file=sys.stderr)
        print(open(os.environ["TORCHELASTIC_ERROR_FILE"]).read(), flush=True)
        os._exit(1)
time.sleep(60)
"""


def test_what_a_rank_has_recorded_is_its_last_word(tmp_path):
    script = write_script(tmp_path, RECORDED)
    result = launch(["--nproc-per-node", 2, script])
    said = result.stderr.split("-" * 78)[1]
    assert said.startswith("\nTraceback (most recent call last):\n")
    assert said.endswith("\nLookupError: the cause\n")
    assert "of a thread" not in said
    content = json.loads(result.stdout.removeprefix("[rank1]: "))["message"]
    assert content["message"] == "LookupError: the cause"
    assert content["extraInfo"]["timestamp"].isdecimal()
    assert content["extraInfo"]["py_callstack"].endswith("LookupError: the cause\n")


UNENCODABLE = """
from distlite.launch import record
class Odd(Exception):
    def __str__(self):
        raise LookupError("no text")
@record
def main():
    raise {error}
main()
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ('OSError("caf\\udce9")', "OSError: caf\\udce9"),
        ("Odd()", "Odd: <exception str() failed>"),
    ],
)
def test_what_has_no_text_is_reported_all_the_same(tmp_path, error, said):
    script = write_script(tmp_path, UNENCODABLE.format(error=error))
    result = launch([script])
    assert result.returncode == 1
    report = result.stderr.partition("=" * 78)[2]
    assert "\nrank 0 failed first: exit code 1" in report
    assert report.splitlines()[-2] == said


def test_names_need_not_be_utf_8(tmp_path):
    latin = os.fsdecode(b"caf\xe9")
    template = latin + "${rank}: "
    result = launch(
        [
            *("--log-dir", tmp_path / latin, "--duplicate-stdout-filters", latin),
            *("--no-python", "printf", b"caf\\351\\nother\\n".decode()),
        ],
        env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": template},
        text=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == b"caf\xe90: caf\xe9\ncaf\xe90: other\n"
    assert b"caf\\udce9" in result.stderr
    (copied,) = (tmp_path / latin).glob("*/*/filtered_stdout.log")
    assert copied.read_bytes() == b"caf\xe90: caf\xe9\n"


def test_the_report_shows_what_went_to_a_file(tmp_path):
    script = write_script(tmp_path, "raise LookupError('the cause')")
    result = launch(["--log-dir", tmp_path / "logs", "--redirects", 3, script])
    assert result.returncode == 1
    assert "Traceback (most recent call last):\n" in result.stderr
    assert "LookupError: the cause\n" in result.stderr


def test_a_path_is_run(tmp_path):
    script = write_script(tmp_path, "print(__name__, __file__, sys.argv)")
    result = launch(["--run-path", script, "x"])
    assert result.stdout == f"[rank0]: __main__ {script} {[script, 'x']}\n"


def test_ranks_with_devices_of_their_own(tmp_path):
    names = "os.environ['LOCAL_RANK'], os.environ['CUDA_VISIBLE_DEVICES']"
    script = write_script(tmp_path, f"print({names})")
    words = ["--nproc-per-node", 2, "--virtual-local-rank", script]
    result = launch(words, env={"CUDA_VISIBLE_DEVICES": "5,7"})
    assert lines(result.stdout) == ["[rank0]: 0 5", "[rank1]: 0 7"]


@pytest.mark.parametrize("mode", ["node", "socket", "core-complex"])
def test_ranks_with_the_cores_of_a_node(tmp_path, mode):
    script = write_script(tmp_path, "print(*os.sched_getaffinity(0))")
    result = launch(["--nproc-per-node", 2, "--numa-binding", mode, script])
    assert result.returncode == 0
    found = [set(map(int, line.split()[1:])) for line in lines(result.stdout)]
    assert len(found) == 2
    for rank in range(2):
        assert cores_of_rank(mode, rank, 2) in found


def test_a_binding_without_enough_cores_is_refused(tmp_path):
    ranks = len(os.sched_getaffinity(0)) + 1
    script = write_script(tmp_path, "pass")
    mode = ["--numa-binding", "exclusive"]
    result = launch(["--nproc-per-node", 64 * ranks, *mode, script])
    assert result.returncode == 1
    assert "start fewer, or use --numa-binding node" in result.stderr


def test_one_nodes_ranks_meet_at_its_address(tmp_path):
    script = write_script(
        tmp_path,
        """
        import distlite
        distlite.init_process_group()
        print(os.environ["MASTER_ADDR"], distlite.get_world_size())
        distlite.destroy_process_group()
        """,
    )
    result = launch(["--nproc-per-node", 2, "--local-addr", "127.0.0.2", script])
    assert lines(result.stdout) == [f"[rank{rank}]: 127.0.0.2 2" for rank in range(2)]


def test_nothing_is_said_about_threads():
    program = ["--no-python", "sh", "-c", "echo $OMP_NUM_THREADS"]
    result = launch(["--nproc-per-node", 2, *program])
    assert (result.returncode, result.stderr) == (0, "")
    assert all(int(line.split()[1]) >= 1 for line in lines(result.stdout))
