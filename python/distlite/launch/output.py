# SPDX-License-Identifier: BSD-3-Clause
"""Merges the output of many ranks into one.

Every line begins with its rank and stays whole. A line ends at a newline or at a
carriage return, so that the steps of a progress bar are shown at once, each with its
prefix; apart from the prefixes, bytes pass through unchanged.

On a terminal the first rank is given a terminal of its own (a pty of the same size) and
what it writes is shown as it is: bars, colours and prompts work.  Lines of other ranks
are put above its unfinished line, which is then drawn again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
from collections.abc import Sequence

# With more bytes than this waiting for a slow reader, the ranks have to wait as well.
PENDING_LIMIT = 1 << 20
# When poll says that a pipe is writable, so many bytes can be written without blocking.
WRITE_SIZE = select.PIPE_BUF
READ_SIZE = 1 << 16
# A longer line is cut rather than kept in memory.
LINE_LIMIT = 16 << 20
# Bytes of the end of a rank's stderr that are kept for the report.
TAIL_SIZE = 64 << 10
# Bytes of a line that is longer than that.
END_OF_LINE = 1000
# Bytes of the first rank's unfinished line that are drawn again.
REDRAW_LIMIT = 4096
ERASE_LINE = b"\r\x1b[2K"


class Sink:
    """One of the launcher's own streams; writing to it never blocks the launcher."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.is_broken = False
        self.problem: str | None = None  # not set by a closed pipe
        self._pending = bytearray()
        self._unfinished = b""
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def has_pending(self) -> bool:
        """Returns whether output waits to be written."""
        return bool(self._pending)

    @property
    def is_full(self) -> bool:
        """Returns whether the ranks should not be read before some output is
        written."""
        return len(self._pending) > PENDING_LIMIT

    def write_lines(self, lines: bytes) -> None:
        """Writes whole lines."""
        if lines and self._unfinished:
            lines = ERASE_LINE + lines + self._unfinished
        self._append(lines)

    def write_raw(self, data: bytes) -> None:
        """Writes the output of the rank that owns the terminal."""
        line = self._unfinished + data
        start = max(line.rfind(b"\n"), line.rfind(b"\r")) + 1
        self._unfinished = line[start:][-REDRAW_LIMIT:]
        self._append(data)

    def finish_line(self) -> None:
        """Ends the unfinished line, if there is one."""
        if self._unfinished:
            self._append(b"\n")
            self._unfinished = b""

    def _append(self, data: bytes) -> None:
        if not self.is_broken:
            self._pending += data

    def flush_ready(self) -> None:
        """Writes what can be written without blocking."""
        while self._pending and self._poll.poll(0):
            try:
                written = os.write(self.fd, self._pending[:WRITE_SIZE])
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.problem = error.strerror
                self.abandon()
                return
            del self._pending[:written]

    def flush(self) -> None:
        """Writes everything, however long it takes."""
        while self._pending and not self.is_broken:
            self._poll.poll()
            self.flush_ready()

    def abandon(self) -> None:
        """Discards all output from now on."""
        self.is_broken = True
        self._pending.clear()


class LinePrefixer:
    """Cuts a stream of bytes into lines and puts a prefix before each."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._partial = bytearray()
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes."""
        start = len(self._partial)
        self._partial += data
        end = max(self._partial.rfind(b"\n", start), self._partial.rfind(b"\r", start))
        if end < 0:
            return self.flush() if len(self._partial) > LINE_LIMIT else b""
        lines = bytes(self._partial[: end + 1]).splitlines(keepends=True)
        del self._partial[: end + 1]
        return b"".join([self._with_prefix(line) for line in lines])

    def _with_prefix(self, line: bytes) -> bytes:
        # A carriage return alone is not shown; a newline after one belongs to the line
        # before. Tracebacks already have the same prefix from the library.
        is_bare = line in (b"\r", b"\r\n") or (line == b"\n" and self._after_return)
        is_bare = is_bare or line.startswith(self._prefix)
        self._after_return = line.endswith(b"\r")
        return line if is_bare else self._prefix + line

    def flush(self) -> bytes:
        """Returns the unfinished last line, with a newline."""
        if not self._partial:
            return b""
        line = self._with_prefix(bytes(self._partial) + b"\n")
        self._partial.clear()
        return line


class Tail:
    """The last bytes of a stream."""

    def __init__(self, size: int = TAIL_SIZE) -> None:
        self._size = size
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        """Keeps `data`; drops what is too old."""
        self._kept += data
        if len(self._kept) > 2 * self._size:
            # One byte more than is shown tells that there was more.
            del self._kept[: -self._size - 1]

    def lines(self) -> list[str]:
        """Returns the whole lines that are kept, with undecodable bytes escaped."""
        return tail_lines(bytes(self._kept), self._size)


def tail_lines(data: bytes, size: int) -> list[str]:
    """Returns the whole lines among the last `size` bytes, or the end of a longer
    line."""
    lines = data[-size:].decode("utf-8", "backslashreplace").splitlines()
    if len(data) <= size:
        return lines
    return lines[1:] or [f"[...]{lines[0][-END_OF_LINE:]}"]


class LineFilter:
    """Copies the lines of one stream that contain one of some words to a file, which
    other streams may share."""

    def __init__(self, path: str, prefix: str, words: Sequence[str]) -> None:
        self._fd = _open_log(path)
        self._prefix = os.fsencode(prefix)
        self._words = [os.fsencode(word) for word in words]
        self._lines = LinePrefixer(b"")

    def feed(self, data: bytes) -> None:
        """Copies matching lines of those that `data` completes."""
        self._copy(self._lines.feed(data))

    def _copy(self, lines: bytes) -> None:
        found = [
            self._prefix + line + b"\n"
            for line in lines.splitlines()
            if any(word in line for word in self._words)
        ]
        if found:
            with contextlib.suppress(OSError):  # a full disk does not end the job
                os.write(self._fd, b"".join(found))

    def close(self) -> None:
        """Copies an unfinished last line if it matches, and closes the file."""
        self._copy(self._lines.flush())
        os.close(self._fd)


class NoSink(Sink):
    """A sink that discards what is not to be shown."""

    def __init__(self) -> None:
        self.fd = -1
        self.is_terminal = self.is_broken = False
        self.problem = None
        self._pending = bytearray()
        self._unfinished = b""

    def write_lines(self, lines: bytes) -> None:
        """Discards the lines."""


class FileStream:
    """The output that a rank writes directly into a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rank_fd = _open_log(path)

    def close_rank_end(self) -> None:
        """Closes the descriptor here; the rank has its own copy."""
        os.close(self.rank_fd)


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


class Channel:
    """The output of one rank to its stdout or stderr."""

    def __init__(
        self,
        sink: Sink,
        prefix: str | None,
        tail: Tail | None = None,
        file: str | None = None,
    ) -> None:
        """Without a prefix, the rank owns the sink's terminal; `file` gets a copy of
        the output."""
        self.sink = sink
        self.tail = tail
        self._copy = None if file is None else _open_log(file)
        self._prefixer = None if prefix is None else LinePrefixer(os.fsencode(prefix))
        if self._prefixer is None:
            self.fd, self.rank_fd = open_terminal_like(sink.fd)
        else:
            self.fd, self.rank_fd = os.pipe()
        os.set_blocking(self.fd, False)
        self._filter: LineFilter | None = None
        self.is_open = True

    def filter_lines(self, path: str, prefix: str, words: Sequence[str]) -> None:
        """Copies lines with one of these words to a file, if lines are shown at all."""
        if not isinstance(self.sink, NoSink):
            self._filter = LineFilter(path, prefix, words)

    def read(self, most: int = 1) -> None:
        """Passes on the output that is there, in at most `most` pieces."""
        for _ in range(most):
            try:
                data = os.read(self.fd, READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""  # EIO: nothing has the other end of the pty open any more
            if not data:
                self.close()
                return
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.tail is not None:
            self.tail.feed(data)
        if self._copy is not None:
            with contextlib.suppress(OSError):  # a full disk does not end the job
                os.write(self._copy, data)
        if self._filter is not None:
            self._filter.feed(data)
        if self._prefixer is None:
            self.sink.write_raw(data)
        else:
            self.sink.write_lines(self._prefixer.feed(data))

    def close_rank_end(self) -> None:
        """Closes the rank's end here: with it open, the end of the output would never
        be seen."""
        os.close(self.rank_fd)

    def resize(self) -> None:
        """Gives the rank's terminal the size of the launcher's."""
        if self.is_open and self._prefixer is None:
            copy_terminal_size(self.sink.fd, self.fd)

    def close(self) -> None:
        """Writes an unfinished last line.  Further calls do nothing."""
        if not self.is_open:
            return
        self.is_open = False
        os.close(self.fd)
        if self._copy is not None:
            os.close(self._copy)
        if self._filter is not None:
            self._filter.close()
        if self._prefixer is not None:
            self.sink.write_lines(self._prefixer.flush())


def open_terminal_like(fd: int) -> tuple[int, int]:
    """Returns a pty of the size of the terminal `fd`: the launcher's end and the
    rank's."""
    ours, theirs = os.openpty()
    # The launcher's own terminal already turns newlines into line ends.
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    copy_terminal_size(fd, ours)
    return ours, theirs


def copy_terminal_size(source: int, target: int) -> None:
    """Copies the size of a terminal; if `source` has none, the target keeps its own."""
    size = struct.pack("4H", 0, 0, 0, 0)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, size)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def own_sinks() -> tuple[Sink, Sink]:
    """Returns the sinks of the launcher's stdout and stderr, one sink if both are one
    terminal."""
    stdout = Sink(1)
    if stdout.is_terminal and os.isatty(2) and _device(1) == _device(2):
        return stdout, stdout
    return stdout, Sink(2)


def _device(fd: int) -> int:
    return os.fstat(fd).st_rdev
