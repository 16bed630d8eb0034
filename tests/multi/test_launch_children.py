# SPDX-License-Identifier: BSD-3-Clause
"""The launcher as a parent: in what state it may be started, and the ends it takes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import pytest
from launching import GRACE, LIMIT, launch, launched, write_script

from distlite.launch.worker import Plan, Worker

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NEEDED = (*ENDING, signal.SIGCHLD, signal.SIGWINCH)
LEFT_BEHIND = 40


@pytest.mark.parametrize("options", [(), ("--redirects", 3)], ids=["pipes", "files"])
def test_blocked_signals_are_unblocked_for_the_launcher_and_its_ranks(
    tmp_path, options
):
    script = write_script(
        tmp_path,
        """
        import signal
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        sys.exit(0 if blocked == {signal.SIGUSR1} else f"blocked: {blocked}")
        """,
    )
    done = launch(
        ["--nproc-per-node", 2, *options, script],
        env={"TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.pthread_sigmask(
            signal.SIG_BLOCK, [*NEEDED, signal.SIGUSR1]
        ),
    )
    # What the launcher does not need is the ranks' as it was.
    assert done.returncode == 0, done.stderr


def test_a_blocked_signal_still_ends_the_job(tmp_path):
    script = write_script(tmp_path, "print('ready', flush=True); time.sleep(600)")
    with launched(
        [script],
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ENDING),
    ) as (job, _):
        assert job.stdout.readline().endswith("ready\n")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=LIMIT)
        assert job.returncode == 128 + signal.SIGTERM


def test_a_launcher_whose_parent_ignores_the_ends_of_children(tmp_path):
    script = write_script(tmp_path, "sys.exit(rank)")
    done = launch(
        ["--nproc-per-node", 4, script],
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.returncode in (1, 2, 3), done.stderr


WAITS_FOR_NO_ZOMBIES = """
    def defunct():
        found = 0
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            found += fields[0] == "Z" and int(fields[1]) == os.getppid()
        return found

    limit = time.monotonic() + 20
    while left := defunct():
        if time.monotonic() > limit:
            sys.exit(f"{left} defunct children of the launcher")
        time.sleep(0.01)
"""
IN_ITS_GROUP = f"""
    for _ in range({LEFT_BEHIND}):
        os.system("sleep 0 &")
"""
IN_SESSIONS = f"""
    for _ in range({LEFT_BEHIND}):
        os.system("setsid sleep 0 &")
"""


@pytest.mark.parametrize("leave", [IN_ITS_GROUP, IN_SESSIONS], ids=["group", "session"])
def test_what_ranks_leave_behind_does_not_stay_defunct(tmp_path, leave):
    script = write_script(tmp_path, leave + WAITS_FOR_NO_ZOMBIES)
    done = launch(["--nproc-per-node", 2, script])
    assert done.returncode == 0, done.stderr


def test_a_program_that_launches_keeps_its_other_children(tmp_path):
    script = write_script(tmp_path, IN_ITS_GROUP)
    program = """if True:
        import os, subprocess, sys
        from distlite import run

        own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
        assert run.main(["--nproc-per-node", "2", sys.argv[1]]) == 0
        assert own.wait() == 7
    """
    subprocess.run([sys.executable, "-c", program, script], check=True, timeout=LIMIT)


def may_not_kill_other_users():
    PR_CAPBSET_DROP, CAP_KILL = 24, 5
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_that_is_left_behind_fails_no_job(tmp_path):
    script = write_script(
        tmp_path, "import subprocess; subprocess.Popen(['sleep', '600'], user=65534)"
    )
    done = launch(
        [script], env={GRACE: "0.1"}, preexec_fn=may_not_kill_other_users, cwd="/"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_left_open_where_a_rank_cannot_be_forked(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        Worker(0, 0, 0, (), None).start(Plan())
    assert os.listdir("/proc/self/fd") == before
