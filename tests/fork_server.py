# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks as forks of a process that has imported what they need.

A fresh interpreter takes a quarter of a second of processor time until NumPy and pytest
are imported; a fork of an interpreter that has done so takes a hundredth.  The server
imports nothing of distlite, so that to distlite its forks are fresh processes.

This file is both ends: what conftest.py imports, and the program of the server, a
script because it must not import distlite.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

# How ranks start: spawn or forkserver, the default.
START_METHOD = "DISTLITE_TESTS_START"
# Variables that an interpreter and its libraries read only when they start.
READ_AT_START = (
    *("ASAN_", "GLIBC_", "LANG", "LC_", "LD_", "LSAN_", "MALLOC_", "MKL_", "NPY_"),
    *("NUMPY_", "OMP_", "OPENBLAS_", "PYTHON", "TSAN_", "TZ", "UBSAN_"),
)
# Imported by the server if the process that starts it has imported them.
PRELOADED = (
    *("numpy", "numpy.random", "ml_dtypes", "pytest", "_pytest.assertion.rewrite"),
)
# What distlite, rank_main.py and many programs import of the standard library.
STANDARD = (
    *("ctypes", "datetime", "fractions", "hmac", "importlib.util", "inspect"),
    *("logging", "multiprocessing.connection", "pathlib", "queue", "resource"),
    *("secrets", "traceback", "urllib.parse"),
)

_LENGTH = struct.Struct("=Q")
_NUMBER = struct.Struct("=i")


class Fork:
    """A process that the server has forked, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, status_fd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status_fd = status_fd

    def poll(self) -> int | None:
        """Returns the exit status, negative after a signal, or None before the end."""
        if self.returncode is None and self._is_readable(0):
            status = os.read(self._status_fd, _NUMBER.size)
            os.close(self._status_fd)
            # The status is lost with the server, whose end kills its forks.
            ended = len(status) == _NUMBER.size
            self.returncode = _NUMBER.unpack(status)[0] if ended else -signal.SIGKILL
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status.

        Args:
            timeout: The seconds to wait, or None.

        Raises:
            subprocess.TimeoutExpired: It has not ended in time.
        """
        if self.returncode is None:
            self._is_readable(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        return code

    def _is_readable(self, timeout: float | None) -> bool:
        poller = select.poll()
        poller.register(self._status_fd, select.POLLIN)
        return bool(poller.poll(None if timeout is None else 1000 * max(timeout, 0)))


class ForkServer:
    """The end of the connection that asks for forks."""

    def __init__(self, env: dict[str, str], rank_main_folder: str) -> None:
        self._read_at_start = _read_at_start(env)
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        # One thread only: a fork has no others, and Python warns of a fork beside
        # threads.
        env = {"OPENBLAS_NUM_THREADS": "1", **env}
        command = [sys.executable, "-X", "faulthandler", __file__]
        command += [str(theirs.fileno()), str(os.getpid()), rank_main_folder]
        try:
            self._process = subprocess.Popen(
                command,
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            theirs.close()
        names = [name for name in PRELOADED if name in sys.modules]
        self._send((sys.path, names), [])

    def fork(
        self,
        env: dict[str, str],
        stdin: int,
        output: int,
        result: int,
        host: int | None = None,
    ) -> Fork:
        """Forks a rank, which gets these file descriptors.

        Args:
            env: Its whole environment.
            host: The process whose network and host name it gets.
            stdin: What it reads its task from.
            output: Where standard output and standard error go.
            result: Where it writes what became of its function.

        Raises:
            OSError: The server has ended.
        """
        status_fd, status_end = os.pipe()
        try:
            with self._lock:
                fds = [stdin, output, result, status_end]
                self._send((env, os.getcwd(), host), fds)
        except BaseException:
            os.close(status_fd)
            raise
        finally:
            os.close(status_end)
        pid = os.read(status_fd, _NUMBER.size)
        if len(pid) < _NUMBER.size:
            os.close(status_fd)
            raise BrokenPipeError("the fork server has ended")
        return Fork(_NUMBER.unpack(pid)[0], status_fd)

    def _send(self, request: object, fds: list[int]) -> None:
        message = pickle.dumps(request)
        header = _LENGTH.pack(len(message))
        if fds:
            socket.send_fds(self._connection, [header], fds)
        else:
            self._connection.sendall(header)
        self._connection.sendall(message)

    def serves(self, env: dict[str, str]) -> bool:
        """Returns whether a fork is equivalent to a process started with this
        environment."""
        return self._read_at_start == _read_at_start(env)

    def is_alive(self) -> bool:
        """Returns whether the server is still running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the server and its forks."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


# By process id, because a forked child of this process is not the server's client.
_servers: dict[int, ForkServer] = {}
_server_lock = threading.Lock()


def install() -> None:
    """Lets distlite.testing start ranks as forks, where these are equivalent to fresh
    processes."""
    from distlite.launch.rank_process import call_lastingly
    from distlite.testing import processes

    fresh = processes._start_process
    folder = str(Path(processes.MAIN).parent)

    def server_of_this_process() -> ForkServer:
        with _server_lock:
            server = _servers.get(os.getpid())
            if server is None or not server.is_alive():
                if server is not None:
                    server.close()
                env = {**os.environ, **processes.UNBUFFERED}
                server = call_lastingly(lambda: ForkServer(env, folder))
                _servers[os.getpid()] = server
            return server

    def start(
        env: dict[str, str], stdin: int, output: int, result: int, wrap: Any
    ) -> Any:
        host = _host_of(wrap)
        is_plain = wrap is None or host is not None
        if is_plain and os.environ.get(START_METHOD) != "spawn":
            server = server_of_this_process()
            if server.serves(env):
                return server.fork(env, stdin, output, result, host)
        return fresh(env, stdin, output, result, wrap)

    processes._start_process = start
    atexit.register(_close_server)


def _host_of(wrap: Any) -> int | None:
    """Returns the process that keeps the namespaces of a host of netns.py, if `wrap`
    runs a command there and changes nothing else."""
    host = getattr(wrap, "__self__", None)
    return host.pid if getattr(host, "hosts_file", "") is None else None


def _close_server() -> None:
    server = _servers.pop(os.getpid(), None)
    if server is not None:
        server.close()


def _read_at_start(env: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in env.items() if name.startswith(READ_AT_START)}


def _receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """Returns the next request and its file descriptors, or None at the end."""
    header, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 4)
    while 0 < len(header) < _LENGTH.size:
        header += connection.recv(_LENGTH.size - len(header))
    if not header:
        return None
    left = _LENGTH.unpack(header)[0]
    message = bytearray()
    while len(message) < left:
        part = connection.recv(left - len(message))
        if not part:
            return None
        message += part
    return pickle.loads(message), fds


def _report_ended(status_fds: dict[int, int]) -> None:
    while status_fds:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status_fd = status_fds.pop(pid)
        # The client may have ended; Python ignores SIGPIPE.
        with contextlib.suppress(BrokenPipeError):
            os.write(status_fd, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(status_fd)


def _serve(connection: socket.socket) -> int | None:
    """Serves requests.  Returns the file descriptor of the result in each fork, and
    None in the server at its end."""
    wake_fd, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # It may have been started with signals blocked.  Ranks inherit the mask.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, rank_main.rank_process.NEEDED)
    status_fds: dict[int, int] = {}
    poller = select.poll()  # select() takes no descriptor beyond 1023
    poller.register(connection, select.POLLIN)
    poller.register(wake_fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poller.poll()]
        if wake_fd in ready:
            os.read(wake_fd, 4096)
            _report_ended(status_fds)
        if connection.fileno() not in ready:
            continue
        request = _receive(connection)
        if request is None:
            return None
        (env, folder, host), (stdin, output, result, status_fd) = request
        server = os.getpid()
        begun_fd, begun_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            # From here on a signal to its process group finds it.
            os.setsid()
            os.close(begun_end)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            for fd in (wake_fd, wake_end, begun_fd, status_fd, *status_fds.values()):
                os.close(fd)
            _become_rank(env, folder, stdin, output)
            if host is not None:
                _enter(host)
            rank_main.rank_process.end_with_parent(server)
            return int(result)
        status_fds[pid] = status_fd
        os.close(begun_end)
        os.read(begun_fd, 1)
        os.close(begun_fd)
        os.write(status_fd, _NUMBER.pack(pid))
        for fd in (stdin, output, result):
            os.close(fd)


def _become_rank(env: dict[str, str], folder: str, stdin: int, output: int) -> None:
    """Gives the fork the state that a new process would start with."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(stdin)
    os.close(output)
    if "numpy.random" in sys.modules:
        # Python's own generator is seeded anew by each fork.
        sys.modules["numpy.random"].seed()


def _enter(host: int) -> None:
    """Moves this process into the network and the host name of another one."""
    for name in ("net", "uts"):
        namespace = os.open(f"/proc/{host}/ns/{name}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), f"entering {name} of process {host}")
        os.close(namespace)


def _end(returncode: int) -> NoReturn:
    """Ends a fork as the interpreter ends, but leaves its objects as they are.

    To take them apart would copy most of the pages that it shares with the server,
    which takes longer than the work of a short test. CuPy's have to go before the CUDA
    runtime does: where a graph is left, one of the driver's threads crashes.
    """
    if "cupy" in sys.modules:
        sys.exit(returncode)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Unlike os._exit() it runs what libraries have registered with the C library;
    # unlike CDLL, PyDLL keeps other threads of Python from running meanwhile.
    ctypes.PyDLL(None).exit(returncode)
    raise AssertionError("exit() has returned")


def _run() -> NoReturn:
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    rank_main.rank_process.end_with_parent(int(sys.argv[2]))
    task = _receive(connection)
    if task is None:
        sys.exit(0)
    sys.path[:], names = task[0]
    for name in (*STANDARD, *names):
        # A rank that needs a module which cannot be imported reports the error itself.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The garbage collector then does not write to these objects, so their pages are
    # shared.
    gc.freeze()
    result_fd = _serve(connection)
    if result_fd is None:
        sys.exit(0)
    sys.argv[:] = [rank_main.__file__, str(result_fd)]
    _end(rank_main.main(result_fd, is_fork=True))


if __name__ == "__main__":
    sys.path.append(sys.argv[3])
    import rank_main  # type: ignore[import-not-found]

    _run()
