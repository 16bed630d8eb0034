# SPDX-License-Identifier: BSD-3-Clause
"""How the output of the ranks becomes the launcher's."""

import contextlib
import fcntl
import os
import random
import select
import signal
import struct
import termios
import time

import pytest
from launching import LIMIT, launch, launched, write_script

from distlite.launch.output import LINE_LIMIT, LinePrefixer, Tail


def lines_of(rank, output):
    """What a rank wrote, its prefix removed."""
    prefix = f"[rank{rank}]: "
    lines = output.splitlines(keepends=True)
    return "".join(line[len(prefix) :] for line in lines if line.startswith(prefix))


def test_stdout_and_stderr_stay_apart(tmp_path):
    script = write_script(
        tmp_path, "print('out', rank); print('err', rank, file=sys.stderr)"
    )
    result = launch(["--nproc-per-node", 3, script])
    ranks = range(3)
    assert sorted(result.stdout.splitlines()) == [f"[rank{r}]: out {r}" for r in ranks]
    assert sorted(result.stderr.splitlines()) == [f"[rank{r}]: err {r}" for r in ranks]


def test_lines_written_in_pieces_stay_whole(tmp_path):
    script = write_script(
        tmp_path,
        """
        for i in range(300):
            for word in f"line {i} of rank {rank}\\n".split(" "):
                os.write(1, word.encode() + (b"" if word.endswith("\\n") else b" "))
        """,
    )
    result = launch(["--nproc-per-node", 4, script])
    for rank in range(4):
        expected = "".join(f"line {i} of rank {rank}\n" for i in range(300))
        assert lines_of(rank, result.stdout) == expected
    assert len(result.stdout.splitlines()) == 1200


def test_an_unfinished_last_line_is_shown(tmp_path):
    script = write_script(tmp_path, "os.write(1, b'no end'); os.write(2, b'neither')")
    result = launch(["--nproc-per-node", 2, script])
    assert sorted(result.stdout.splitlines(keepends=True)) == [
        "[rank0]: no end\n",
        "[rank1]: no end\n",
    ]
    assert "[rank1]: neither\n" in result.stderr


def test_text_and_bytes_pass_unchanged(tmp_path):
    text = "grüße, 世界, \N{SNOWMAN}\n"
    everything = bytes(range(14, 256)) + bytes(range(13)) + b"\n"
    script = write_script(
        tmp_path,
        f"""
        os.write(1, {text.encode()!r})
        os.write(1, {everything!r})
        """,
    )
    result = launch([script], text=False)
    prefix = b"[rank0]: "
    assert result.stdout.replace(prefix, b"") == text.encode() + everything
    assert result.stdout.startswith(prefix + text.encode() + prefix)


def test_much_output_of_all_ranks_is_not_lost(tmp_path):
    script = write_script(
        tmp_path,
        """
        line = (f"{rank} " * 60).encode()
        for i in range(800):
            os.write(1, b"".join(b"%d %s\\n" % (i * 32 + j, line) for j in range(32)))
        """,
    )
    result = launch(["--nproc-per-node", 2, script])
    assert result.returncode == 0
    assert len(result.stdout) > 2 * 3_200_000
    for rank in range(2):
        line = f"{rank} " * 60
        expected = "".join(f"{i} {line}\n" for i in range(800 * 32))
        assert lines_of(rank, result.stdout) == expected


def test_a_slow_reader_slows_the_ranks_and_gets_everything(tmp_path):
    script = write_script(
        tmp_path,
        """
        for i in range(4000):
            os.write(1, b"x" * 999 + b"\\n")
        print("done", file=sys.stderr)
        """,
    )
    with launched([script]) as (process, _):
        # Nobody reads stdout: the rank must come to a stop, not the memory fill up.
        ready, _, _ = select.select([process.stderr], [], [], 0.3)
        assert not ready
        output, errors = process.communicate(timeout=LIMIT)
    assert len(output.splitlines()) == 4000
    assert errors == "[rank0]: done\n"


def test_a_reader_that_leaves_ends_the_job(tmp_path):
    script = write_script(
        tmp_path,
        """
        while True:
            print("more")
            time.sleep(0.01)
        """,
    )
    with launched(["--nproc-per-node", 2, script]) as (process, _):
        assert process.stdout.readline().endswith(": more\n")
        process.stdout.close()
        # As of any program in a pipe: 128 and SIGPIPE.
        assert process.wait(timeout=LIMIT) == 141


def test_output_that_cannot_be_written_is_said(tmp_path):
    script = write_script(tmp_path, "print('much'); time.sleep(600)")
    with open("/dev/full", "w") as full:
        result = launch([script], stdout=full)
    assert result.returncode == 128 + signal.SIGPIPE
    expected = "cannot write output: No space left on device: ending all ranks"
    assert result.stderr == f"distlite: {expected}\n"


def test_steps_of_a_progress_bar_come_one_by_one(tmp_path):
    script = write_script(
        tmp_path,
        """
        for i in range(3):
            os.write(1, b"\\r%d %%" % i)
        os.write(1, b"\\n")
        """,
    )
    expected = b"\r[rank0]: 0 %\r[rank0]: 1 %\r[rank0]: 2 %\n"
    assert launch([script], text=False).stdout == expected


@pytest.mark.parametrize("seed", range(20))
def test_pieces_do_not_matter(seed):
    chooser = random.Random(seed)
    data = bytes(chooser.choice(b"ab\n\r") for _ in range(200))
    whole, pieces = LinePrefixer(b"> "), LinePrefixer(b"> ")
    expected = whole.feed(data) + whole.flush()
    output = b""
    rest = data
    while rest:
        size = chooser.randrange(1, 9)
        output += pieces.feed(rest[:size])
        rest = rest[size:]
    assert output + pieces.flush() == expected


def test_a_line_without_end_does_not_fill_the_memory():
    prefixer = LinePrefixer(b"> ")
    shown = prefixer.feed(b"x" * LINE_LIMIT)
    assert shown == b""
    shown = prefixer.feed(b"yz")
    assert shown == b"> " + b"x" * LINE_LIMIT + b"yz\n"
    assert prefixer.flush() == b""


def test_the_tail_is_bounded_and_starts_with_a_whole_line():
    tail = Tail(100)
    for i in range(1000):
        tail.feed(b"line %d\n" % i)
    lines = tail.lines()
    assert lines[-1] == "line 999"
    assert lines == [f"line {i}" for i in range(1000 - len(lines), 1000)]
    assert 100 // 9 - 1 <= len(lines) <= 100 // 9 + 1


@contextlib.contextmanager
def on_a_terminal(arguments, rows=40, columns=100, **settings):
    """A run on a terminal, and our end of it."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, **settings}
    with launched(arguments, **streams) as (process, _):
        os.close(theirs)
        try:
            yield process, ours
        finally:
            os.close(ours)


def read_until(fd, text, count=1, seconds=LIMIT):
    """What appears on a terminal, up to the last of `count` times `text`."""
    deadline = time.monotonic() + seconds
    seen = b""
    while seen.count(text) < count:
        ready, _, _ = select.select([fd], [], [], deadline - time.monotonic())
        assert ready, f"only this appeared: {seen!r}"
        try:
            seen += os.read(fd, 4096)
        except OSError:
            raise AssertionError(f"only this appeared: {seen!r}") from None
    return seen


def test_the_first_rank_has_a_terminal_of_the_same_size(tmp_path):
    script = write_script(
        tmp_path,
        """
        print(rank, [os.isatty(fd) for fd in (0, 1, 2)])
        if rank == 0:
            print(*os.get_terminal_size(1), *os.get_terminal_size(2))
        """,
    )
    with on_a_terminal(["--nproc-per-node", 2, script]) as (process, ours):
        # Three lines in any order, in pieces of any size.
        seen = read_until(ours, b"\r\n", count=3)
        assert b"[rank1]: 1 [True, False, False]\r\n" in seen
        assert b"0 [True, True, True]\r\n" in seen
        assert b"100 40 100 40\r\n" in seen
        assert b"[rank0]" not in seen
        assert process.wait(LIMIT) == 0


def test_a_new_size_reaches_the_first_rank(tmp_path):
    script = write_script(
        tmp_path,
        """
        print("ready")
        deadline = time.monotonic() + 30
        while os.get_terminal_size(1).columns != 77:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        print("resized")
        """,
    )
    with on_a_terminal([script]) as (process, ours):
        read_until(ours, b"ready")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 20, 77, 0, 0))
        # The terminal is not the controlling one of the launcher, so nobody else does.
        process.send_signal(signal.SIGWINCH)
        read_until(ours, b"resized")


def test_other_ranks_lines_appear_above_the_bar(tmp_path):
    script = write_script(
        tmp_path,
        """
        mark = sys.argv[1]
        if rank == 0:
            os.write(1, b"\\r\\x1b[2Kbar 1/2")
            sys.stdin.readline()
            os.write(1, b"\\r\\x1b[2Kbar 2/2\\n")
        else:
            while not os.path.exists(mark):
                time.sleep(0.01)
            print("a line of mine")
        """,
    )
    mark = tmp_path / "mark"
    with on_a_terminal(["--nproc-per-node", 2, script, mark]) as (process, ours):
        erase = b"\r\x1b[2K"
        drawn = b"\x1b[2Kbar 1/2"
        assert read_until(ours, drawn) == b"\r" + drawn
        mark.touch()
        seen = read_until(ours, b"mine\r\n" + drawn)
        assert seen == erase + b"[rank1]: a line of mine\r\n" + drawn
        os.write(ours, b"\n")
        seen = read_until(ours, b"2/2\r\n")
        assert b"[rank" not in seen
        assert process.wait(LIMIT) == 0


def test_a_bar_animates_while_stderr_goes_to_a_file(tmp_path):
    script = write_script(
        tmp_path,
        """
        os.write(1, b"\\r1")
        sys.stdin.readline()
        os.write(1, b"\\r2\\n")
        os.write(2, b"to the file\\n")
        """,
    )
    with open(tmp_path / "errors", "w+") as errors:
        with on_a_terminal([script], stderr=errors) as (process, ours):
            assert read_until(ours, b"\r1") == b"\r1"
            os.write(ours, b"\n")
            read_until(ours, b"\r2\r\n")
            assert process.wait(LIMIT) == 0
        errors.seek(0)
        assert errors.read() == "[rank0]: to the file\n"


def test_every_rank_may_read_from_a_terminal(tmp_path):
    script = write_script(
        tmp_path, "print('ready'); print('read', sys.stdin.readline().strip(), rank)"
    )
    with on_a_terminal(["--nproc-per-node", 2, script]) as (process, ours):
        read_until(ours, b"[rank1]: ready")
        os.write(ours, b"one\ntwo\n")
        read_until(ours, b"read ", count=2)
        assert process.wait(LIMIT) == 0


def test_a_traceback_of_the_first_rank_is_kept_for_the_report(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON_COLORS", "0")
    script = write_script(tmp_path, "raise KeyError('on a terminal')")
    with on_a_terminal([script]) as (process, ours):
        # As it came, and again in the report.
        seen = read_until(ours, b"KeyError: 'on a terminal'", count=2)
        assert seen.count(b"Traceback (most recent call last)") == 2
        assert b"rank 0 failed first: exit code 1" in seen
        assert process.wait(LIMIT) == 1


def test_output_of_what_a_rank_left_behind_is_not_waited_for_in_vain(tmp_path):
    """It left the process group, so it lives on; the job is over all the same."""
    script = write_script(
        tmp_path,
        """
        import subprocess
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        print("left", child.pid)
        """,
    )
    result = launch([script], timeout=40)  # less than the child's
    assert result.returncode == 0
    assert result.stdout.startswith("[rank0]: left ")


WORDS = """
for word in "apple pie", "orange", "plum, ripe", "nothing":
    print(word, "of", rank)
    print("orange" if word == "orange" else "no", "error of", rank, file=sys.stderr)
os.write(1, b"the last apple")
"""


def filtered(folder, stream):
    (path,) = folder.glob(f"*/attempt_0/filtered_{stream}.log")
    return sorted(path.read_text().splitlines())


def test_lines_with_some_words_are_copied(tmp_path):
    script = write_script(tmp_path, WORDS)
    words = ["-n", 2, "--log-dir", tmp_path / "logs"]
    words += ["--duplicate-stdout-filters", "apple,m,, r"]
    result = launch([*words, "--duplicate_stderr_filters=orange", script])
    assert result.returncode == 0
    assert filtered(tmp_path / "logs", "stdout") == sorted(
        f"[rank{rank}]: {text}"
        for rank in range(2)
        for text in (
            f"apple pie of {rank}",
            f"plum, ripe of {rank}",
            "the last apple",
        )
    )
    assert filtered(tmp_path / "logs", "stderr") == [
        f"[rank{rank}]: orange error of {rank}" for rank in range(2)
    ]
    assert result.stdout.count("orange of") == 2


def test_what_is_not_shown_is_not_copied(tmp_path):
    script = write_script(tmp_path, WORDS)
    words = ["-n", 3, "--log-dir", tmp_path / "logs", "--local-ranks-filter", "1,2"]
    words += ["-r", "2:1", "--duplicate-stdout-filters", "apple pie"]
    assert launch([*words, script]).returncode == 0
    assert filtered(tmp_path / "logs", "stdout") == ["[rank1]: apple pie of 1"]


def test_a_terminals_rank_is_filtered_too(tmp_path):
    logs = tmp_path / "logs"
    script = write_script(tmp_path, WORDS)
    ours, theirs = os.openpty()
    try:
        words = ["-n", 1, "--log-dir", logs, "--duplicate-stdout-filters=apple"]
        assert launch([*words, script], stdout=theirs).returncode == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert filtered(logs, "stdout") == [
        "[rank0]: apple pie of 0",
        "[rank0]: the last apple",
    ]
