# SPDX-License-Identifier: BSD-3-Clause
"""The options of ``distlite run``.

The options are torchrun's, each with '-' or '_' between the words, and with a default
from the environment (PET_NNODES for --nnodes).  An option that is not in the table is
an error. They are parsed without argparse, whose import takes longer than all that the
launcher does before its ranks run.
"""

from __future__ import annotations

import os
import sys

from distlite._environment import flag_of
from distlite._version import __version__
from distlite.launch.cores import gpu_count, usable_cores
from distlite.launch.numa import MODES
from distlite.launch.signals import named_signals
from distlite.launch.table import COMMANDS, FLAG, OPTIONS, SHORT, help_text, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 29500  # torchrun's, where several nodes must agree on one
RUN_PATH = (
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)
GRACE_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
START_METHODS = ("spawn", "fork", "forkserver")
STDOUT, STDERR = 1, 2  # bits of the values of --redirects and --tee


class UsageError(ValueError):
    """The command line is wrong."""


class Options:
    """One node's part of a job."""

    command: tuple[str, ...] = ()
    nproc_per_node = 1
    nnodes = 1
    node_rank = 0
    arrives = False  # c10d: a node's place is the order of arrival
    hosts_store: bool | None = None  # None: the node that can
    join_timeout = 600.0
    address = DEFAULT_ADDRESS
    local_address = ""  # this node's, for the others
    port = 0  # 0: any free one, on a job of one node
    run_id = "none"
    token: str | None = None  # made by this launcher; None: the environment's
    tls: str | None = None  # None: the environment's
    role = "default"
    max_restarts = 0
    log_dir: str | None = None
    redirects: tuple[int, ...] = ()
    tees: tuple[int, ...] = ()
    shown_ranks: frozenset[int] | None = None
    grace = 30.0
    signals: tuple[str, ...] = ()
    has_virtual_local_rank = False
    filters: tuple[tuple[str, ...], tuple[str, ...]] = (), ()  # of stdout, of stderr
    binds_cores = False
    numa_binding = ""
    uses_environment = False  # what `python -m distlite.launch` asks for
    passes_local_rank = False
    argument_position = 0  # of the script's first argument in the command

    @property
    def keeps_files(self) -> bool:
        """Returns whether files are asked for, which then stay after the job."""
        chosen = any(self.redirects) or any(self.tees) or any(self.filters)
        return self.log_dir is not None or chosen

    def is_redirected(self, local_rank: int, stream: int) -> bool:
        """Returns whether a stream (STDOUT or STDERR) goes to its file only."""
        return bool(self.redirects[local_rank] & stream) and not self.is_teed(
            local_rank, stream
        )

    def is_teed(self, local_rank: int, stream: int) -> bool:
        """Returns whether a stream goes to its file as well."""
        return bool(self.tees[local_rank] & stream)


def parse(arguments: Sequence[str], program: str = "distlite run") -> Options:
    """Parses the command line; exits with code 2 and a usage line if it is wrong."""
    try:
        values, command = _split(arguments)
        if values.get("version"):
            sys.stdout.write(f"distlite {__version__}\n")
            raise SystemExit(0)
        if values.get("help"):
            sys.stdout.write(help_text(program))
            raise SystemExit(0)
        return options_of(values, command)
    except UsageError as error:
        sys.stderr.write(f"{usage(program)}\n{program}: error: {error}\n")
        raise SystemExit(2) from None


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the options' values as text, and the program with its arguments."""
    values: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        name, value = _name_of(word)
        if OPTIONS[name].metavar == FLAG:
            if value is not None:
                raise UsageError(f"--{name} takes no value")
            value = "1"
        elif value is None:
            if not rest:
                raise UsageError(f"--{name} expects a value")
            value = rest.pop(0)
        values[name] = value
    return values, rest[1:] if rest[:1] == ["--"] else rest


def _name_of(word: str) -> tuple[str, str | None]:
    if word[1] != "-":
        name = SHORT.get(word[1])
        value = word[2:].removeprefix("=") or None
    else:
        text, equals, after = word[2:].partition("=")
        name, value = text.replace("_", "-"), after if equals else None
    if name is None or name not in OPTIONS:
        raise UsageError(f"unrecognized arguments: {word}")
    return name, value


class _Values:
    """The text of each option: from the command line, from the environment, or the
    default."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        if name in self._given:
            return self._given[name]
        return os.environ.get(variable_of(name)) or OPTIONS[name].default

    def flag(self, name: str) -> bool:
        if name in self._given:
            return _flag(f"--{name}", self._given[name])
        return flag_from_environment(name)

    def integer(self, name: str, least: int, most: int = sys.maxsize) -> int:
        text = self.text(name)
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"--{name}: not a number: {text}") from None
        if not least <= value <= most:
            limits = f"{least}..{most}" if most < sys.maxsize else f"{least} or more"
            raise UsageError(f"--{name}: {value} is not in {limits}")
        return value

    def seconds(self, name: str) -> float:
        return _seconds(f"--{name}", self.text(name))


def variable_of(name: str) -> str:
    """Returns the name of the variable that has an option's default."""
    return "PET_" + name.upper().replace("-", "_")


def flag_from_environment(name: str) -> bool:
    """Returns the default of a flag."""
    variable = variable_of(name)
    return _flag(variable, os.environ.get(variable, ""))


def _flag(name: str, text: str) -> bool:
    try:
        return flag_of(name, text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{name}: not a time: {text}") from None
    if not 0 <= value < float("inf"):
        raise UsageError(f"{name}: not a time: {text}")
    return value


def options_of(given: dict[str, str], command: list[str]) -> Options:
    """Converts the options' values, as text by name; UsageError if one is wrong."""
    values, options = _Values(given), Options()
    options.nproc_per_node = _process_count(values.text("nproc-per-node"))
    options.nnodes = _node_count(values.text("nnodes"))
    options.node_rank = values.integer("node-rank", 0)
    options.role = values.text("role")
    options.max_restarts = values.integer("max-restarts", 0)
    options.has_virtual_local_rank = values.flag("virtual-local-rank")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if options.has_virtual_local_rank and shown is not None:
        count = len(shown.split(","))
        if count < options.nproc_per_node:
            raise UsageError(
                f"--virtual-local-rank: CUDA_VISIBLE_DEVICES={shown} has {count} "
                f"GPU(s) for {options.nproc_per_node} ranks"
            )
    options.uses_environment = values.flag("use-env")
    options.grace = _grace(values)
    options.signals = tuple(filter(None, values.text("signals-to-handle").split(",")))
    try:
        named_signals(options.signals)
    except ValueError as error:
        raise UsageError(f"--signals-to-handle: {error}") from None
    values.seconds("monitor-interval")
    if values.text("start-method") not in START_METHODS:
        raise UsageError(
            f"--start-method: {values.text('start-method')!r} is not one of "
            f"{', '.join(START_METHODS)}"
        )
    _refuse_classes(values)
    _set_binding(options, values)
    _set_meeting_point(options, values)
    options.token = _token(values.text("token"), options.nnodes)
    options.tls = _tls(values.text("tls"))
    options.local_address = values.text("local-addr")
    is_alone = options.nnodes == 1 and options.address == DEFAULT_ADDRESS
    if options.local_address and is_alone:
        options.address = options.local_address
    _set_output(options, values)
    options.command = _command(values, command)
    options.argument_position = len(options.command) - len(command) + 1
    return options


def _refuse_classes(values: _Values) -> None:
    """Refuses names of classes that depend on internals of torchrun."""
    if values.text("logs-specs"):
        raise UsageError(
            f"--logs-specs {values.text('logs-specs')}: torch's LogsSpecs classes are "
            "not supported; use --log-dir, --redirects, --tee "
            "and --local-ranks-filter"
        )
    if values.text("event-log-handler") not in ("", "null"):
        raise UsageError(
            f"--event-log-handler {values.text('event-log-handler')}: this launcher "
            "emits no events, so only 'null' is accepted; its report on stderr and its "
            "exit status show how a job ended"
        )


def _set_binding(options: Options, values: _Values) -> None:
    options.binds_cores = values.flag("bind-cores")
    options.numa_binding = values.text("numa-binding")
    if options.numa_binding and options.numa_binding not in MODES:
        raise UsageError(
            f"--numa-binding: {options.numa_binding!r} is not one of {', '.join(MODES)}"
        )
    if options.numa_binding and options.binds_cores:
        raise UsageError("--numa-binding is not allowed with --bind-cores")


def _grace(values: _Values) -> float:
    if values.text("shutdown-timeout"):
        return values.seconds("shutdown-timeout")
    text = os.environ.get(GRACE_VARIABLE)
    return _seconds(GRACE_VARIABLE, text) if text else Options.grace


def _set_meeting_point(options: Options, values: _Values) -> None:
    """Returns where the nodes meet, and how each gets its number."""
    backend, endpoint = values.text("rdzv-backend"), values.text("rdzv-endpoint")
    if backend not in ("static", "c10d"):
        raise UsageError(f"--rdzv-backend must be 'static' or 'c10d', not {backend!r}")
    options.run_id = values.text("rdzv-id")
    _set_conf(options, values.text("rdzv-conf"))
    options.address = values.text("master-addr")
    if values.flag("standalone"):
        if options.nnodes != 1:
            raise UsageError("--standalone is for one node")
        options.address, options.port = DEFAULT_ADDRESS, 0
        return
    options.arrives = backend == "c10d" and options.nnodes > 1
    if endpoint:
        options.address, options.port = _endpoint(endpoint, options.nnodes)
    elif backend == "c10d" and options.nnodes > 1:
        raise UsageError("--rdzv-backend c10d on several nodes needs --rdzv-endpoint")
    elif values.text("master-port"):
        options.port = values.integer("master-port", 0, 65535)
    else:
        options.port = DEFAULT_PORT if options.nnodes > 1 else 0
    if options.port == 0 and options.nnodes > 1:
        raise UsageError("several nodes need --master-port, the same on all of them")
    if not options.arrives and options.node_rank >= options.nnodes:
        raise UsageError(
            f"--node-rank {options.node_rank} is not less than the number of nodes, "
            f"{options.nnodes}"
        )


def _token(kind: str, nnodes: int) -> str | None:
    """Returns a new token for the job; None if the environment has the token or there
    is none."""
    if kind not in ("env", "auto"):
        # The error does not repeat the value, which may be a token.
        raise UsageError(
            "--token: 'env' or 'auto', and never the token itself, which every user "
            "could read from the command line; set DISTLITE_TOKEN"
        )
    names = [n for n in ("DISTLITE_TOKEN", "DISTLITE_TOKEN_FILE") if n in os.environ]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} are both set; unset one of them")
    if names and not os.environ[names[0]]:
        raise UsageError(f"{names[0]} is empty; unset it for a job without a token")
    if names or kind == "env":
        return None
    if nnodes > 1:
        raise UsageError(
            "--token auto makes a token for one node; on several, set the same "
            "DISTLITE_TOKEN or DISTLITE_TOKEN_FILE on each of them"
        )
    return os.urandom(32).hex()


def _tls(mode: str) -> str | None:
    if mode not in ("env", "off", "psk", "cert"):
        raise UsageError(f"--tls: 'env', 'off', 'psk' or 'cert', not '{mode}'")
    return None if mode == "env" else mode


def _endpoint(text: str, nnodes: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:  # '[fd00::1]' has no port
        host, port = text, str(DEFAULT_PORT if nnodes > 1 else 0)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--rdzv-endpoint: not a host and port: {text}")
    return host, int(port)


def _set_conf(options: Options, text: str) -> None:
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        if key == "is_host" and value:
            options.hosts_store = _flag("--rdzv-conf: is_host", value)
        elif key in ("join_timeout", "timeout") and value.isdecimal():
            options.join_timeout = float(value)
        else:
            raise UsageError(
                f"--rdzv-conf: {pair!r} is neither is_host=true, is_host=false nor "
                "join_timeout=SECONDS"
            )


def _set_output(options: Options, values: _Values) -> None:
    count = options.nproc_per_node
    options.log_dir = values.text("log-dir") or None
    options.redirects = _streams(values.text("redirects"), "redirects", count)
    options.tees = _streams(values.text("tee"), "tee", count)
    options.filters = (
        comma_separated(values.text("duplicate-stdout-filters")),
        comma_separated(values.text("duplicate-stderr-filters")),
    )
    text = values.text("local-ranks-filter")
    if not text:
        return
    try:
        options.shown_ranks = frozenset(int(rank) for rank in text.split(","))
    except ValueError:
        raise UsageError(f"--local-ranks-filter: not ranks: {text}") from None
    for rank in options.shown_ranks - set(range(count)):
        raise UsageError(f"--local-ranks-filter: there is no local rank {rank}")


def comma_separated(text: str) -> tuple[str, ...]:
    """Returns the words of a list; two commas stand for one within a word."""
    words = text.replace(",,", "\0").split(",")
    return tuple(word.replace("\0", ",") for word in words if word)


def _streams(text: str, name: str, count: int) -> tuple[int, ...]:
    """Returns the streams of each local rank that '3' (all ranks) or '0:1,2:3'
    means."""
    chosen = [0] * count
    for item in text.split(","):
        rank, colon, value = item.rpartition(":")
        if value not in ("0", "1", "2", "3") or (colon and not rank.isdecimal()):
            raise UsageError(
                f"--{name}: {text!r} is neither 0, 1 (stdout), 2 (stderr) or 3 (both) "
                "nor a list such as 0:1,1:3"
            )
        if colon and int(rank) >= count:
            raise UsageError(f"--{name}: there is no local rank {rank}")
        for local_rank in [int(rank)] if colon else range(count):
            chosen[local_rank] = int(value)
    return tuple(chosen)


def _command(values: _Values, words: list[str]) -> tuple[str, ...]:
    kinds = [k for k in ("module", "no-python", "run-path") if values.flag(k)]
    if len(kinds) > 1:
        raise UsageError(f"--{kinds[1]} is not allowed with --{kinds[0]}")
    if not words:
        raise UsageError(
            "no script is given; name one, as in `distlite run -n 4 train.py`"
        )
    # One error of the launcher in place of one of each rank.
    script, kind = words[0], "".join(kinds)
    if kind == "no-python":
        if not _is_program(script):
            raise UsageError(f"program {script!r} not found")
        return tuple(words)
    # -u: a rank's output is shown at once, as under torchrun.
    python = [os.environ.get("PYTHON_EXEC", sys.executable), "-u"]
    if kind == "module":
        return (*python, "-m", *words)
    if not os.path.exists(script):
        raise UsageError(f"script {script!r} not found{_hint(script)}")
    if os.path.isdir(script) and not os.path.exists(f"{script}/__main__.py"):
        raise UsageError(
            f"script {script!r} is a folder without __main__.py{_hint(script)}"
        )
    return (*python, "-c", RUN_PATH, *words) if kind else (*python, *words)


def _hint(script: str) -> str:
    """Returns a suggestion for a script that does not exist."""
    if script.isdecimal():
        return (
            f"; the number of ranks is an option: `distlite run -n {script} train.py`"
        )
    if os.path.exists(f"{script}.py"):
        return f"; is it {script}.py?"
    if os.path.basename(script).startswith("python"):
        return "; scripts run by this Python, so leave it out: `distlite run train.py`"
    if _is_program(script):
        return "; --no-python runs a program that is not a script of Python"
    import difflib

    for command in difflib.get_close_matches(script, COMMANDS, 1):
        return f"; is `distlite {command}` meant?"
    return ""


def _is_program(name: str) -> bool:
    folders = [""] if "/" in name else os.get_exec_path()
    paths = (os.path.join(folder, name) for folder in folders)
    return any(os.access(p, os.X_OK) and not os.path.isdir(p) for p in paths)


def _process_count(text: str) -> int:
    if text == "cpu":
        return usable_cores()
    if text in ("auto", "gpu"):
        count = gpu_count()
        if text == "gpu" and count == 0:
            raise UsageError("--nproc-per-node gpu: no GPU was found on this host")
        return count or usable_cores()
    try:
        count = int(text)
    except ValueError:
        # The text begins as torchrun's does.
        raise UsageError(
            f"Unsupported nproc_per_node value: {text}; give a number, cpu, gpu or "
            "auto, as in `-n 4`"
        ) from None
    if count < 1:
        raise UsageError(f"--nproc-per-node {count}: at least one process is needed")
    return count


def _node_count(text: str) -> int:
    least, _, most = text.partition(":")
    if not least.isdecimal():
        raise UsageError(f"--nnodes: not a number of nodes: {text}")
    if most not in ("", least):
        raise UsageError(
            f"--nnodes {text}: a varying number of nodes is not supported; give one "
            "number"
        )
    if int(least) < 1:
        raise UsageError(f"--nnodes {text}: at least one node is needed")
    return int(least)
