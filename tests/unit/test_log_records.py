# SPDX-License-Identifier: BSD-3-Clause
"""Lines of the log as records of logging, and as lines where there are no handlers."""

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


IMPORT = "import distlite as dist\nfrom distlite import _C\n"


@pytest.mark.parametrize(
    "code",
    [
        f"import logging\n{BASIC}{IMPORT}{LOG}",
        f"import logging\n{BASIC}{IMPORT}{JOIN}{LOG}",
        f"import logging\n{IMPORT}{BASIC}{LOG}",
        f"import logging\n{IMPORT}{BASIC}{JOIN}{LOG}",
        f"import logging\n{IMPORT}{JOIN}{BASIC}{LOG}",
        f"{IMPORT}import logging\n{BASIC}{JOIN}{LOG}",
        f"{IMPORT}import logging\n{JOIN}{BASIC}{LOG}",
    ],
)
def test_logging_may_be_configured_before_and_after(code):
    rank = "0" if JOIN in code else "None"
    assert said(code) == f"WARNING|{rank}|careful\n"


def test_a_handler_that_was_made_before_is_found_by_the_next_group():
    code = (
        f"import logging\nmade = logging.StreamHandler()\n{IMPORT}"
        f"logging.getLogger('distlite').addHandler(made)\n{JOIN}{LOG}"
    )
    assert said(code) == "careful\n"


@pytest.mark.parametrize(
    "code",
    [
        f"{IMPORT}{JOIN}{LOG}",
        f"import logging\n{IMPORT}{JOIN}{LOG}",
        # Handlers of others.
        f"import logging\n{IMPORT}{JOIN}"
        f"logging.getLogger('other').addHandler(logging.StreamHandler())\n{LOG}",
        f"import logging\n{BASIC}{IMPORT}"
        f"logging.getLogger('distlite').propagate = False\n{JOIN}{LOG}",
    ],
)
def test_without_handlers_a_line_goes_to_standard_error(code):
    assert re.fullmatch(rf"{LINE}careful\n", said(code))


def test_without_handlers_a_line_is_there_before_the_next_statement():
    code = f"import logging, os\n{IMPORT}{JOIN}{LOG}os._exit(0)"
    assert re.fullmatch(rf"{LINE}careful\n", said(code))


def test_without_logging_there_is_neither_an_import_nor_a_thread():
    threads = "len(os.listdir('/proc/self/task'))"
    code = (
        f"import os, sys\n{IMPORT}{JOIN}before = {threads}\n{LOG}"
        "assert not {'logging', 'distlite.tools.log_records'} & set(sys.modules)\n"
        f"assert {threads} == before"
    )
    assert "careful" in said(code)


def test_what_is_shown_is_chosen_by_the_variable_and_then_by_the_logger():
    code = (
        "import logging\nlogging.basicConfig(level=logging.NOTSET, format="
        "'%(levelname)s|%(message)s')\n"
        f"{IMPORT}{JOIN}"
    )
    assert said(code) == ""
    told = said(code, TORCH_CPP_LOG_LEVEL="INFO", TORCH_DISTRIBUTED_DEBUG="INFO")
    assert told.startswith("INFO|group 0: ")
    quiet = code.replace("NOTSET", "ERROR") + LOG
    assert said(quiet) == ""


def test_a_null_handler_silences_the_log():
    code = (
        f"import logging\n{IMPORT}logger = logging.getLogger('distlite')\n"
        f"logger.addHandler(logging.NullHandler())\n{JOIN}{LOG}"
    )
    # As for any library: without a handler of the root, logger or last resort.
    assert said(code) == ""


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


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("distlite")
    before, logger.propagate = logger.propagate, False
    handlers = list(logger.handlers)
    yield logger
    _C._flush_log()
    logger.propagate = before
    logger.handlers[:] = handlers
    _C._look_for_log_handlers()


def test_caplog_shows_records(caplog):
    _C._log_warning("100% of it")
    _C._flush_log()
    (record,) = caplog.records
    assert record.name == "distlite" and record.levelno == logging.WARNING
    assert record.getMessage() == "100% of it"
    assert record.rank is None and record.pathname == "distlite"
    assert abs(record.created * 1e3 % 1e3 - record.msecs) < 1.01


def test_a_record_has_the_time_of_the_line(caplog):
    import time

    before = time.time_ns()
    _C._log_warning("now")
    after = time.time_ns()
    _C._flush_log()
    (record,) = caplog.records
    assert before - 1000 <= record.created * 1e9 <= after + 1000


def test_bytes_that_are_no_text_are_escaped():
    chosen = os.fsdecode(b"relative-\xff")
    code = f"import logging\n{BASIC}{IMPORT}{JOIN}"
    told = said(code, DISTLITE_RUNTIME_DIR=chosen)
    assert "in DISTLITE_RUNTIME_DIR=relative-\\xff: it must be" in told


def test_lines_of_a_call_are_there_when_it_returns(caplog):
    """No address of this name belongs to this machine, and nobody answers there."""
    with pytest.raises(dist.DistNetworkError):
        dist.TCPStore("203.0.113.7", 0, is_master=True, timeout=0.2)
    text = (
        "no address of 203.0.113.7 belongs to this machine: listening on all addresses"
    )
    assert caplog.messages[0] == text
    assert "serves everybody who can connect to it" in caplog.messages[1]


def test_a_slow_handler_delays_nobody(logger):
    go_on = threading.Event()
    keeper = Keeper(lambda _: go_on.wait(60))
    logger.addHandler(keeper)
    for i in range(3):
        _C._log_warning(f"line {i}")
    go_on.set()
    _C._flush_log()
    assert keeper.texts == ["line 0", "line 1", "line 2"]
    assert threading.current_thread() not in keeper.threads


def test_what_a_slow_handler_has_no_time_for_goes_to_standard_error(logger, capfd):
    go_on, is_in = threading.Event(), threading.Event()

    def wait(_: logging.LogRecord) -> None:
        is_in.set()
        go_on.wait(60)

    keeper = Keeper(wait)
    logger.addHandler(keeper)
    _C._log_warning("first")
    assert is_in.wait(60)
    for i in range(258):
        _C._log_warning(f"line {i}")
    written = capfd.readouterr().err
    go_on.set()
    _C._flush_log()
    assert keeper.texts == ["first", *(f"line {i}" for i in range(256))]
    assert re.fullmatch(rf"{LINE}line 256\n{LINE}line 257\n", written)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_handler_that_raises_loses_nothing(logger, capfd, kind):
    def fail(record: logging.LogRecord) -> None:
        if record.getMessage() == "one":
            raise kind("broken")

    keeper = Keeper(fail)
    logger.addHandler(keeper)
    _C._log_warning("one")
    _C._log_warning("two")
    _C._flush_log()
    assert keeper.texts == ["one", "two"]
    written = capfd.readouterr().err
    assert written.startswith("distlite: one\nTraceback (most recent call last):\n")
    assert written.endswith(f"{kind.__name__}: broken\n")


def test_a_handler_may_call_distlite_and_its_own_lines_have_an_end(logger, capfd):
    def use(record: logging.LogRecord) -> None:
        with dist.HashStore() as store:
            store.set("text", record.getMessage())
            with pytest.raises(dist.DistStoreError):
                store.wait(["missing"], 0)
        _C._log_warning("again")
        _C._flush_log()

    keeper = Keeper(use)
    logger.addHandler(keeper)
    _C._log_warning("one")
    _C._flush_log()
    assert keeper.texts == ["one"]
    assert re.fullmatch(rf"{LINE}again\n", capfd.readouterr().err)


def test_lines_propagate_unless_told_otherwise(logger):
    """Not with caplog, which has a handler at loggers that do not propagate."""
    own, above = Keeper(), Keeper()
    logger.addHandler(own)
    logging.getLogger().addHandler(above)
    try:
        _C._log_warning("kept")
        _C._flush_log()
        logger.propagate = True
        _C._log_warning("both")
        _C._flush_log()
    finally:
        logging.getLogger().removeHandler(above)
    assert (own.texts, above.texts) == (["kept", "both"], ["both"])


def test_signals_are_not_for_the_thread_of_the_log(logger):
    masks: list[set[int]] = []
    keeper = Keeper(
        lambda _: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    )
    logger.addHandler(keeper)
    _C._log_warning("one")
    _C._flush_log()
    (mask,) = masks
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD} <= mask


def test_a_signal_reaches_a_main_thread_while_a_handler_runs():
    code = (
        f"import logging, os, signal, threading\n{IMPORT}"
        "is_in, go_on = threading.Event(), threading.Event()\n"
        "class Handler(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        is_in.set(); go_on.wait(60); print(record.getMessage())\n"
        "logging.getLogger('distlite').addHandler(Handler())\n"
        "signal.signal(signal.SIGUSR1, lambda *_: go_on.set())\n"
        f"{JOIN}{LOG}"
        "is_in.wait(60)\nos.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert go_on.is_set() or go_on.wait(60)\n"
    )
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "careful\n", "")


def test_a_callback_s_exception_is_a_record(caplog):
    future = dist.Future()
    future.add_done_callback(lambda _: 1 / 0)
    future.set_result(1)
    (record,) = caplog.records
    assert record.getMessage() == "exception in a callback of a distlite Future:"
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


EXIT = {
    "end": "",
    "exit": "import sys; sys.exit(0)",
    "atexit": "",
    "exception": "1 / 0",
}


@pytest.mark.parametrize("way", EXIT)
def test_lines_are_with_their_handlers_when_the_process_ends(way):
    last = "import atexit; atexit.register(_C._log_warning, 'last')\n"
    code = f"import logging\n{BASIC}{IMPORT}{JOIN}{last if way == 'atexit' else ''}"
    done = run(code + "for i in range(50): _C._log_warning(str(i))\n" + EXIT[way])
    lines = done.stderr.splitlines()
    assert done.returncode == (way == "exception")
    expected = [f"WARNING|0|{i}" for i in range(50)]
    assert [line for line in lines if line.startswith("WARN")][:50] == expected
    if way == "atexit":
        assert lines[50:] == ["WARNING|0|last"]


def test_an_error_comes_after_its_lines():
    """A program that ends itself in the except clause has them all the same."""
    code = (
        f"import logging, os\n{BASIC}{IMPORT}store = dist.HashStore()\n"
        f"_C._log_warning('first'); _C._flush_log()\n{LOG}"
        "try: store.wait(['missing'], 0)\n"
        "except dist.DistStoreError as error: os.write(2, b'caught\\n')\nos._exit(0)"
    )
    assert said(code) == "WARNING|None|first\nWARNING|None|careful\ncaught\n"


def test_a_handler_that_hangs_does_not_keep_the_process():
    """One without a lock: else logging's own end waits for it."""
    code = (
        f"import logging, threading\n{IMPORT}"
        "class Handler(logging.Handler):\n"
        "    def createLock(self): self.lock = None\n"
        "    def handle(self, record): self.emit(record)\n"
        "    def emit(self, record): threading.Event().wait()\n"
        "logging.getLogger('distlite').addHandler(Handler())\n"
        f"{JOIN}{LOG}_C._log_warning('left')\n"
    )
    assert re.fullmatch(rf"{LINE}left\n", said(code))


def test_a_forked_child_logs_for_itself():
    code = (
        f"import logging, os, threading\n{IMPORT}"
        "is_in, go_on = threading.Event(), threading.Event()\n"
        "parent = os.getpid()\n"
        "class Handler(logging.Handler):\n"
        "    def createLock(self): self.lock = None\n"
        "    def handle(self, record): self.emit(record)\n"
        "    def emit(self, record):\n"
        "        if os.getpid() == parent: is_in.set(); go_on.wait(60)\n"
        "        who = 'parent' if os.getpid() == parent else 'child'\n"
        "        os.write(2, f'{who} {record.getMessage()}\\n'.encode())\n"
        "logging.getLogger('distlite').addHandler(Handler())\n"
        f"{JOIN}{LOG}is_in.wait(60)\n_C._log_warning('queued')\n"
        # A thread that starts takes locks of ASan's allocator, which GCC's does not
        # release in a child.
        "def states():\n"
        "    for task in set(os.listdir('/proc/self/task')) - {str(parent)}:\n"
        "        with open(f'/proc/self/task/{task}/stat') as file:\n"
        "            yield file.read().rpartition(')')[2].split()[0]\n"
        "while set(states()) != {'S'}: os.sched_yield()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    _C._log_warning('new'); _C._flush_log(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "go_on.set()\n"
    )
    # Python 3.12 and later warn of forks beside threads.
    told = said(code, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert told == "child new\nparent careful\nparent queued\n"


def test_a_child_of_multiprocessing_ends_with_its_lines():
    code = (
        f"import logging, multiprocessing\n{BASIC}{IMPORT}"
        "def work():\n    for i in range(20): _C._log_warning(str(i))\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\n"
        "process.start(); process.join(60)\nassert process.exitcode == 0\n"
    )
    assert said(code) == "".join(f"WARNING|None|{i}\n" for i in range(20))
