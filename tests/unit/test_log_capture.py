# SPDX-License-Identifier: BSD-3-Clause
"""The log on standard error, and as records of logging by capture_log()."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import distlite as dist
from distlite import _C

LINE = r"(\[rank\d+\]:)?\[W\d{4} \d\d:\d\d:\d\d\.\d{6} distlite\] "
JOIN = "dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)\n"
LOG = "_C._log_warning('careful')\n"
BASIC = "logging.basicConfig(format='%(levelname)s|%(rank)s|%(message)s')\n"
IMPORT = "import distlite as dist\nfrom distlite import _C\n"
CAPTURE = f"import logging\n{BASIC}{IMPORT}dist.capture_log()\n"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def said(code: str, **environment: str) -> str:
    """What a program writes to standard error that comes to a good end."""
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("join", ["", JOIN])
def test_records_have_level_rank_and_text(join):
    rank = "0" if join else "None"
    assert said(CAPTURE + join + LOG) == f"WARNING|{rank}|careful\n"


@pytest.mark.parametrize(
    "code",
    [
        f"{IMPORT}{JOIN}{LOG}",
        f"import logging\n{BASIC}{IMPORT}{JOIN}{LOG}",
        f"{CAPTURE}{JOIN}dist.capture_log(False)\n{LOG}",
        # A line is there before the next statement.
        f"import os\n{IMPORT}{JOIN}{LOG}os._exit(0)",
    ],
)
def test_without_it_lines_go_to_standard_error(code):
    assert re.fullmatch(rf"{LINE}careful\n", said(code))


def test_without_it_there_is_neither_an_import_nor_a_thread():
    threads = "len(os.listdir('/proc/self/task'))"
    code = (
        f"import os, sys\n{IMPORT}{JOIN}before = {threads}\n{LOG}"
        "assert not {'logging', 'distlite.tools.log_capture'} & set(sys.modules)\n"
        f"assert {threads} == before"
    )
    assert "careful" in said(code)


def test_what_is_shown_is_chosen_by_the_variable_and_then_by_the_logger():
    code = CAPTURE.replace("format=", "level=logging.NOTSET, format=") + JOIN
    assert said(code) == ""
    told = said(code, TORCH_CPP_LOG_LEVEL="INFO", TORCH_DISTRIBUTED_DEBUG="INFO")
    assert told.startswith("INFO|None|group 0: ")
    relay = (
        f"{code}import os\nstore = dist.TCPStore('127.0.0.1', 0, is_master=True)\n"
        "relay = f'distlite-{32 * chr(48)}@127.0.0.1:{store.port}'\n"
        "os.environ['DISTLITE_STORE_RELAY'] = relay\n"
        "dist.TCPStore('127.0.0.1', store.port)\n"
    )
    told = said(relay, TORCH_CPP_LOG_LEVEL="INFO", TORCH_DISTRIBUTED_DEBUG="INFO")
    assert "\nINFO|0|The client socket to (127.0.0.1, " in told
    assert said(code.replace("NOTSET", "ERROR") + LOG) == ""


class Keeper(logging.Handler):
    """Keeps the messages; `do` is called with each record."""

    def __init__(self, do=None) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.threads: list[threading.Thread] = []
        self.do = do

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.threads.append(threading.current_thread())
        if self.do is not None:
            self.do(record)


def flush() -> None:
    dist.capture_log(False)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("distlite")
    before, logger.propagate = logger.propagate, False
    handlers = list(logger.handlers)
    dist.capture_log()
    yield logger
    flush()
    logger.propagate = before
    logger.handlers[:] = handlers


def test_caplog_shows_records(caplog):
    dist.capture_log()
    dist.capture_log()  # once more changes nothing
    _C._log_warning("100% of it")
    flush()
    flush()
    (record,) = caplog.records
    assert record.name == "distlite" and record.levelno == logging.WARNING
    assert record.getMessage() == "100% of it" and record.rank is None


def test_lines_of_one_text_are_one_record(caplog):
    dist.capture_log()
    _C._log_warning("one [W] distlite] \ntwo\n\n")
    _C._log_warning("x" * 5000)
    flush()
    assert caplog.messages[0] == "one [W] distlite] \ntwo\n\n"
    assert re.fullmatch("x{2200,2304}", caplog.messages[1])


def test_bytes_that_are_no_text_are_escaped():
    chosen = os.fsdecode(b"relative-\xff")
    told = said(CAPTURE + JOIN, DISTLITE_RUNTIME_DIR=chosen)
    assert "in DISTLITE_RUNTIME_DIR=relative-\\xff: it must be" in told


def test_a_slow_handler_delays_nobody(logger):
    go_on = threading.Event()
    keeper = Keeper(lambda _: go_on.wait(60))
    logger.addHandler(keeper)
    for i in range(3):
        _C._log_warning(f"line {i}")
    go_on.set()
    flush()
    assert keeper.texts == ["line 0", "line 1", "line 2"]
    assert threading.current_thread() not in keeper.threads


def test_what_a_slow_handler_has_no_time_for_goes_to_standard_error(logger, capfd):
    go_on = threading.Event()
    keeper = Keeper(lambda _: go_on.wait(60))
    logger.addHandler(keeper)
    for i in range(1000):
        _C._log_warning(f"line {i}")
    written = capfd.readouterr().err.splitlines()
    go_on.set()
    flush()
    assert len(keeper.texts) > 50 and len(written) > 100
    assert all(re.match(LINE, line) for line in written)
    texts = keeper.texts + [re.sub(LINE, "", line) for line in written]
    assert sorted(texts) == sorted(f"line {i}" for i in range(1000))


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_handler_that_raises_loses_nothing(logger, capfd, kind):
    def fail(record: logging.LogRecord) -> None:
        if record.getMessage() == "one":
            raise kind("broken")

    keeper = Keeper(fail)
    logger.addHandler(keeper)
    _C._log_warning("one")
    _C._log_warning("two")
    flush()
    assert keeper.texts == ["one", "two"]
    written = capfd.readouterr().err
    assert written.startswith("distlite: one\nTraceback (most recent call last):\n")
    assert written.endswith(f"{kind.__name__}: broken\n")


def test_a_handler_may_call_distlite(logger):
    def use(record: logging.LogRecord) -> None:
        with dist.HashStore() as store:
            store.set("text", record.getMessage())
            with pytest.raises(dist.DistStoreError):
                store.wait(["missing"], 0)
        if record.getMessage() == "one":
            _C._log_warning("two")

    keeper = Keeper(use)
    logger.addHandler(keeper)
    _C._log_warning("one")
    while len(keeper.texts) < 2:  # what it logs is a record, too
        os.sched_yield()
    flush()
    assert keeper.texts == ["one", "two"]


def test_threads_may_log_while_the_capture_ends(logger, capfd):
    """Each line is a record or on standard error, and none on a descriptor that was
    closed and means another file now."""
    keeper = Keeper()
    logger.addHandler(keeper)
    texts = [[f"{thread}-{i}" for i in range(300)] for thread in range(4)]

    def log(own: list[str]) -> None:
        for text in own:
            _C._log_warning(text)

    threads = [threading.Thread(target=log, args=(own,)) for own in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        dist.capture_log(False)
        with open(os.devnull):
            dist.capture_log()
    for thread in threads:
        thread.join()
    flush()
    written = [re.sub(LINE, "", line) for line in capfd.readouterr().err.splitlines()]
    assert sorted(keeper.texts + written) == sorted(
        text for own in texts for text in own
    )


def test_signals_are_not_for_the_thread_of_the_log(logger):
    masks: list[set[int]] = []
    keeper = Keeper(
        lambda _: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    )
    logger.addHandler(keeper)
    _C._log_warning("one")
    flush()
    (mask,) = masks
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD} <= mask


def test_a_callback_s_exception_is_a_record(caplog):
    dist.capture_log()
    future = dist.Future()
    future.add_done_callback(lambda _: 1 / 0)
    future.set_result(1)
    flush()
    (record,) = caplog.records
    assert record.getMessage() == "exception in a callback of a Future:"
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("end", ["", "import sys; sys.exit(0)", "1 / 0"])
def test_lines_are_with_their_handlers_when_the_process_ends(end):
    done = run(f"{CAPTURE}{JOIN}for i in range(50): _C._log_warning(str(i))\n{end}")
    lines = done.stderr.splitlines()
    assert done.returncode == (end == "1 / 0")
    expected = [f"WARNING|0|{i}" for i in range(50)]
    assert [line for line in lines if line.startswith("WARN")] == expected


def test_lines_of_atexit_s_functions_go_to_standard_error():
    code = f"{CAPTURE}import atexit; atexit.register(_C._log_warning, 'last')\n{LOG}"
    assert re.fullmatch(rf"WARNING\|None\|careful\n{LINE}last\n", said(code))


def test_a_handler_that_hangs_does_not_keep_the_process():
    """One without a lock: else logging's own end waits for it."""
    code = (
        f"import logging, threading\n{IMPORT}"
        "class Handler(logging.Handler):\n"
        "    def createLock(self): self.lock = None\n"
        "    def handle(self, record): self.emit(record)\n"
        "    def emit(self, record): threading.Event().wait()\n"
        "logging.getLogger('distlite').addHandler(Handler())\n"
        f"dist.capture_log()\n{JOIN}{LOG}_C._log_warning('left')\n"
    )
    assert re.fullmatch(rf"{LINE}left\n", said(code))


def test_a_forked_child_logs_for_itself():
    """On standard error until it captures the log: never by the parent's handlers."""
    code = (
        f"{CAPTURE.replace('%(level', '%(process)d|%(level')}import os\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    _C._log_warning('plain')\n"
        "    dist.capture_log(); _C._log_warning('new'); dist.capture_log(False)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        f"{LOG}dist.capture_log(False)\nprint(child, os.getpid())\n"
    )
    # Python 3.12 and later warn of forks beside threads.
    done = run(code, PYTHONWARNINGS="ignore::DeprecationWarning")
    child, parent = done.stdout.split()
    assert re.fullmatch(
        rf"{LINE}plain\n{child}\|WARNING\|None\|new\n"
        rf"{parent}\|WARNING\|None\|careful\n",
        done.stderr,
    )


def test_a_child_of_multiprocessing_ends_with_its_lines():
    code = (
        f"{CAPTURE}import multiprocessing\n"
        "def work():\n"
        "    dist.capture_log()\n"
        "    for i in range(20): _C._log_warning(str(i))\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\n"
        "process.start(); process.join(60)\nassert process.exitcode == 0\n"
    )
    told = said(code, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert told == "".join(f"WARNING|None|{i}\n" for i in range(20))
