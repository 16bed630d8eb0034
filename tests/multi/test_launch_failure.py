# SPDX-License-Identifier: BSD-3-Clause
"""A rank that fails ends the job, and the launcher says which and why."""

import re
import time
from pathlib import Path

import pytest
from launching import (
    GRACE,
    LIMIT,
    launch,
    launched,
    processes_of,
    wait_until,
    write_script,
)

from distlite.launch.errors import is_consequence
from distlite.launch.supervisor import last_words

RULE = "=" * 78


def report_of(result):
    """Title, what the failing rank said, the fates of the others."""
    before, title_and_rest = result.stderr.split(RULE + "\n", 1)
    assert title_and_rest.endswith(RULE + "\n"), result.stderr
    parts = title_and_rest.removesuffix(RULE + "\n").split("-" * 78 + "\n")
    return before, parts[0], parts[1], "".join(parts[2:]).splitlines()


FAIL_ON_2 = """
if rank == 2:
    try:
        {}["the key"]
    except KeyError as error:
        raise ValueError("the reason") from error
time.sleep(60)
"""


def test_the_first_failure_is_reported_and_ends_the_others(tmp_path):
    script = write_script(tmp_path, FAIL_ON_2)
    start = time.monotonic()
    result = launch(["--nproc-per-node", 4, script])
    assert time.monotonic() - start < 40  # not until the others have slept
    assert result.returncode == 1
    before, title, said, others = report_of(result)
    assert title.startswith("rank 2 failed first: exit code 1, pid ")
    assert said.startswith("Traceback (most recent call last):\n")
    assert "KeyError: 'the key'" in said
    assert said.endswith("ValueError: the reason\n")
    assert others == [
        f"rank {rank}: killed by SIGTERM (ended by the launcher)" for rank in (0, 1, 3)
    ]
    assert before.startswith("[rank2]: Traceback")


def test_the_exit_code_is_that_of_the_rank(tmp_path):
    script = write_script(tmp_path, "rank == 1 and sys.exit(37); time.sleep(60)")
    result = launch(["--nproc-per-node", 2, script])
    assert result.returncode == 37
    _, title, said, _ = report_of(result)
    assert title.startswith("rank 1 failed first: exit code 37,")
    assert said == "(it wrote nothing to stderr)\n"


@pytest.mark.parametrize(("name", "code"), [("SIGSEGV", 139), ("SIGKILL", 137)])
def test_a_signal_is_named(tmp_path, name, code):
    script = write_script(
        tmp_path,
        f"""
        import signal
        if rank == 0:
            print("last words", file=sys.stderr)
            os.kill(os.getpid(), signal.{name})
        time.sleep(60)
        """,
    )
    result = launch(["--nproc-per-node", 2, script])
    assert result.returncode == code
    _, title, said, _ = report_of(result)
    assert title.startswith(f"rank 0 failed first: killed by {name}, pid ")
    assert said == "last words\n"


def test_a_rank_that_ends_well_does_not_end_the_others(tmp_path):
    script = write_script(
        tmp_path,
        """
        if rank == 0:
            print("ready")
            while os.path.exists(sys.argv[1]):
                time.sleep(0.01)
            print("the last one")
        """,
    )
    mark = tmp_path / "mark"
    mark.touch()
    with launched(["--nproc-per-node", 2, script, mark]) as (process, token):
        assert process.stdout.readline() == "[rank0]: ready\n"
        # The launcher and rank 0 are left.
        wait_until(lambda: len(processes_of(token)) == 2)
        assert process.poll() is None
        mark.unlink()
        assert process.stdout.read() == "[rank0]: the last one\n"
        assert process.wait(LIMIT) == 0


def test_the_cause_is_preferred_to_what_followed_from_it(tmp_path):
    """Rank 1 is the cause, and slow to die; the others notice at once."""
    script = write_script(
        tmp_path,
        """
        import contextlib
        class DistBackendError(RuntimeError):
            pass
        def pid_of(other):
            while True:
                with contextlib.suppress(OSError), open(f"{mark}{other}") as note:
                    if (text := note.read()).endswith("\\n"):
                        return int(text)
                time.sleep(0.005)
        mark = sys.argv[1]
        with open(f"{mark}{rank}", "w") as note:
            note.write(f"{os.getpid()}\\n")
        if rank == 1:
            import atexit
            @atexit.register
            def linger():
                pids = [pid_of(r) for r in (0, 2)]
                open(mark, "w").close()
                while any(os.path.exists(f"/proc/{pid}") for pid in pids):
                    time.sleep(0.005)
            raise ZeroDivisionError("the cause")
        while not os.path.exists(mark):
            time.sleep(0.005)
        if rank == 2:
            print("[rank2]: distlite.DistBackendError: it is lost", file=sys.stderr)
            head = "rank 2 saw an operation fail; the ranks at that moment:"
            print(f"[rank2]: distlite: {head}\\n[rank2]: a table", file=sys.stderr)
            sys.exit(1)
        raise DistBackendError("rank 1 (pid 12) is lost")
        """,
    )
    result = launch(["--nproc-per-node", 3, script, tmp_path / "mark"])
    _, title, said, others = report_of(result)
    assert title.startswith("rank 1 failed first: exit code 1,")
    assert said.endswith("ZeroDivisionError: the cause\n")
    assert others == ["rank 0: exit code 1", "rank 2: exit code 1"]


def test_the_librarys_own_prefix_is_not_repeated(tmp_path):
    """Once in a group, it puts the rank before each line of a traceback itself."""
    script = write_script(
        tmp_path,
        """
        if rank == 1:
            lines = ["Traceback (most recent call last):", "  File x", "KeyError: 1"]
            for line in lines:
                print("[rank1]: " + line, file=sys.stderr)
            sys.exit(1)
        time.sleep(60)
        """,
    )
    before, _, said, _ = report_of(launch(["--nproc-per-node", 2, script]))
    words = "Traceback (most recent call last):\n  File x\nKeyError: 1\n"
    assert said == words
    assert before == "".join(f"[rank1]: {line}\n" for line in words.splitlines())


def test_a_lost_peer_is_reported_where_nothing_else_failed(tmp_path):
    script = write_script(
        tmp_path,
        """
        class DistBackendError(RuntimeError):
            pass
        if rank == 1:
            raise DistBackendError("rank 0 on another node is lost")
        time.sleep(60)
        """,
    )
    result = launch(["--nproc-per-node", 2, script])
    assert result.returncode == 1
    _, title, _, others = report_of(result)
    assert title.startswith("rank 1 failed first")
    assert others == ["rank 0: killed by SIGTERM (ended by the launcher)"]


def test_a_rank_may_finish_its_work_before_it_ends(tmp_path):
    script = write_script(
        tmp_path,
        """
        import signal
        def save(*_):
            time.sleep(0.2)  # as what takes a while
            print("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        open(f"{sys.argv[1]}{rank}", "w").close()
        while not all(os.path.exists(f"{sys.argv[1]}{r}") for r in range(world_size)):
            time.sleep(0.01)
        if rank == 1:
            sys.exit(5)
        time.sleep(60)
        """,
    )
    result = launch(["--nproc-per-node", 2, script, tmp_path / "mark"])
    assert result.returncode == 5
    assert result.stdout == "[rank0]: saved\n"
    assert report_of(result)[3] == ["rank 0: exit code 0 (ended by the launcher)"]


def test_a_rank_that_does_not_obey_is_killed_after_the_grace(tmp_path):
    script = write_script(
        tmp_path,
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"{sys.argv[1]}{rank}", "w").close()
        while not all(os.path.exists(f"{sys.argv[1]}{r}") for r in range(world_size)):
            time.sleep(0.01)
        if rank == 0:
            sys.exit(6)
        time.sleep(60)
        """,
    )
    start = time.monotonic()
    words = ["--nproc-per-node", 2, script, tmp_path / "mark"]
    result = launch(words, env={GRACE: "0.5"})
    assert 0.5 <= time.monotonic() - start < 40
    assert result.returncode == 6
    fate = "rank 1: killed by SIGKILL (ended by the launcher)"
    assert report_of(result)[3] == [fate]


def test_a_grace_may_be_longer_than_poll_can_wait(tmp_path):
    script = write_script(tmp_path, "sys.exit(7) if rank == 0 else time.sleep(60)")
    words = ["--nproc-per-node", 2, "--shutdown-timeout", 10**9, script]
    result = launch(words)
    assert result.returncode == 7, result.stderr
    fate = "rank 1: killed by SIGTERM (ended by the launcher)"
    assert report_of(result)[3] == [fate]


@pytest.mark.parametrize("redirects", ["0", "2"])
def test_of_a_very_long_line_the_report_shows_the_end(tmp_path, redirects):
    script = write_script(tmp_path, "raise ValueError('x' * 300_000 + ' the cause')")
    words = ["--log-dir", tmp_path / "logs", "--redirects", redirects, script]
    said = report_of(launch(words))[2]
    assert said.startswith("[...]x") and said.endswith("x the cause\n")
    assert len(said) < 2000


def test_what_cannot_be_executed_is_said_once(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF not really")
    program.chmod(0o755)
    result = launch(["--nproc-per-node", 3, "--no-python", program])
    assert result.returncode == 1
    assert result.stderr.count("Exec format error") == 1


def test_different_calls_are_shown_with_their_lines(tmp_path):
    """Each rank lives until the table has been written, and waits for nothing that the
    table would show."""
    script = write_script(
        tmp_path,
        """
        from pathlib import Path
        import numpy as np
        import distlite as dist
        dist.init_process_group()
        try:
            if rank == 0:
                dist.all_reduce(np.ones(3))  # one line
            else:
                dist.broadcast(np.ones(3), src=0)  # another
        except dist.DistBackendError:
            dist._C._finish_report()
        reported = [Path(sys.argv[1], f"reported-{each}") for each in range(2)]
        reported[rank].touch()
        while not all(path.exists() for path in reported):
            time.sleep(0.01)
        """,
    )
    result = launch(["--nproc-per-node", 2, script, tmp_path])
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("saw an operation fail") == 1
    lines = Path(script).read_text().splitlines()
    for call, comment in (("all_reduce", "# one line"), ("broadcast", "# another")):
        (number,) = [i for i, line in enumerate(lines, 1) if comment in line]
        place = rf"{call}\(.*{Path(script).name}:{number} in <module>"
        assert re.search(place, result.stderr), result.stderr


@pytest.mark.parametrize("head", ["distlite: ", "ERROR:distlite:", "12:03 [distlite] "])
def test_a_table_behind_a_traceback_does_not_hide_it(head):
    error = (
        "distlite.DistBackendError: barrier #1 in group 0: rank 1 (pid 7) was killed"
    )
    table = [f"{head}rank 0 saw an operation fail; the ranks at that moment:", "job x"]
    assert is_consequence(["Traceback (most recent call last):", error, *table])
    assert not is_consequence(["ValueError: wrong", *table])


def test_last_words_are_the_last_traceback():
    first = ["Traceback (most recent call last):", "  File a", "KeyError: 1"]
    second = ["Traceback (most recent call last):", "  File b", "ValueError: 2"]
    chain = ["", "During handling of the above exception, another occurred:", ""]
    assert last_words([*first, "going on", *second]) == second
    assert last_words(["noise", *first, *chain, *second]) == [*first, *chain, *second]
    assert last_words(["only", "noise"]) == ["only", "noise"]
    assert len(last_words([str(i) for i in range(100)])) == 20
    assert last_words([]) == []
