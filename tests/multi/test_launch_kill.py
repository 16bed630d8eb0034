# SPDX-License-Identifier: BSD-3-Clause
"""However a job ends, nothing of it is left running."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

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

# Each rank with a child and a grandchild, which leave its group but not by themselves.
FAMILY = """
import subprocess
subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
print("ready")
time.sleep(600)
"""
FAMILY_SIZE = 3  # of one rank: itself, sh, sleep


def is_complete(token, ranks):
    """All started: the launcher and every rank's family."""
    return len(processes_of(token)) == 1 + FAMILY_SIZE * ranks


@pytest.mark.parametrize(
    "name",
    [
        "SIGTERM",
        "SIGINT",
        pytest.param("SIGHUP", marks=pytest.mark.slow),
        pytest.param("SIGQUIT", marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_launcher_ends_everything(tmp_path, name):
    number = signal.Signals[name]
    script = write_script(tmp_path, FAMILY)
    with launched(["--nproc-per-node", 3, script]) as (process, token):
        wait_until(lambda: is_complete(token, 3))
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 128 + number
        assert f"distlite: {name}: ending all ranks" in errors
        assert not processes_of(token)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_ranks_get_the_signal_that_the_launcher_got(tmp_path, name):
    script = write_script(
        tmp_path,
        """
        import signal
        def told(number, _):
            print("told", signal.Signals(number).name)
            sys.exit(0)
        signal.signal(signal.SIGTERM, told)
        signal.signal(signal.SIGINT, told)
        print("ready")
        time.sleep(600)
        """,
    )
    with launched(["--nproc-per-node", 2, script]) as (process, _):
        lines = sorted(process.stdout.readline() for _ in range(2))
        assert lines == ["[rank0]: ready\n", "[rank1]: ready\n"]
        process.send_signal(signal.Signals[name])
        output, _ = process.communicate(timeout=LIMIT)
        told = [f"[rank{rank}]: told {name}" for rank in range(2)]
        assert sorted(output.splitlines()) == told
        assert process.returncode == 128 + signal.Signals[name]


STUBBORN = """
import signal
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
print("ready")
time.sleep(600)
"""


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    script = write_script(tmp_path, STUBBORN)
    words = ["--nproc-per-node", 2, script]
    with launched(words, env={GRACE: "600"}) as (process, token):
        for _ in range(2):
            assert process.stdout.readline().endswith("ready\n")
        process.send_signal(signal.SIGINT)
        assert "ending all ranks" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert not processes_of(token)


def test_a_second_ctrl_c_works_while_nobody_reads_the_output(tmp_path):
    script = write_script(
        tmp_path,
        """
        import signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ready", file=sys.stderr)
        while True:
            print("x" * 999)
        """,
    )
    with launched([script], env={GRACE: "600"}) as (process, token):
        assert process.stderr.readline() == "[rank0]: ready\n"
        process.send_signal(signal.SIGINT)
        assert "ending all ranks" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert not processes_of(token)


def test_no_rank_outlives_its_launcher_killed_at_any_moment(tmp_path):
    script = write_script(tmp_path, "time.sleep(600)")
    for step in range(6):
        with launched(["--nproc-per-node", 4, script]) as (process, token):
            time.sleep(0.025 * step)  # where it is then, from import to all started
            process.kill()
            process.wait(LIMIT)
            wait_until(lambda: not processes_of(token))


def test_what_a_failed_rank_left_behind_is_ended(tmp_path):
    script = write_script(
        tmp_path,
        """
        import subprocess
        subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"])
        sys.exit(4)
        """,
    )
    with launched(["--nproc-per-node", 2, script], env={GRACE: "0.2"}) as (job, token):
        job.communicate(timeout=LIMIT)
        assert job.returncode == 4
        assert not processes_of(token)


def test_what_a_finished_rank_left_behind_is_ended(tmp_path):
    script = write_script(
        tmp_path, "import subprocess; subprocess.Popen(['sleep', '600'])"
    )
    with launched(["--nproc-per-node", 2, script]) as (process, token):
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert not processes_of(token)


def test_helpers_that_clean_up_after_a_rank_may_do_so(tmp_path):
    """As multiprocessing's resource tracker: it works on after the rank's end."""
    script = write_script(
        tmp_path,
        """
        import subprocess
        helper = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); "
        # Longer than what is left behind is let be.
        helper += "print(flush=True); sys.stdin.read(); time.sleep(0.3); "
        helper += "open(sys.argv[1], 'w')"
        command = [sys.executable, "-c", helper, sys.argv[1]]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        subprocess.Popen(command, **pipes).stdout.readline()
        """,
    )
    assert launch([script, tmp_path / "cleaned"]).returncode == 0
    assert (tmp_path / "cleaned").exists()


@contextlib.contextmanager
def launched_on_terminal(ranks, script):
    """The launcher as the foreground of a terminal, and our end of that."""
    ours, theirs = os.openpty()
    start = (
        "import fcntl, os, sys, termios; os.setsid(); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, "
        "[sys.executable, '-m', 'distlite.run', *sys.argv[1:]])"
    )
    words = [sys.executable, "-c", start, "--nproc-per-node", str(ranks), script]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        try:
            os.close(theirs)
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal, word, count):
    """Everything that it shows up to there."""
    seen = b""
    while seen.count(word) < count:
        seen += os.read(terminal, 4096)
    return seen


def test_ctrl_c_on_a_terminal_ends_the_job(tmp_path):
    """The terminal sends it to the launcher's group, of which no rank is a part."""
    script = write_script(tmp_path, "print('ready'); time.sleep(600)")
    with launched_on_terminal(2, script) as (process, terminal):
        read_until(terminal, b"ready", 2)
        os.write(terminal, b"\x03")
        assert process.wait(LIMIT) == 130


def test_ranks_share_a_session_and_may_read_from_its_terminal(tmp_path):
    """Between sessions Linux shares the processors out as if each were one program."""
    text = """
        leads = os.getpid() == os.getpgrp() != os.getsid(0) == os.getsid(os.getppid())
        has_terminal = True
        try:
            os.close(os.open("/dev/tty", os.O_RDWR))
        except OSError:
            has_terminal = False
        print(f"asks {leads} {has_terminal} now")
        print("read", input())
    """
    script = write_script(tmp_path, text)
    with launched_on_terminal(2, script) as (process, terminal):
        seen = read_until(terminal, b" now", 2)
        os.write(terminal, b"first\nsecond\n")
        seen += read_until(terminal, b"read ", 2)
        assert process.wait(LIMIT) == 0
        # A line of the first rank without an end is drawn again below the other's.
        assert set(re.findall(rb"asks \w+ \w+ now", seen)) == {b"asks True False now"}
