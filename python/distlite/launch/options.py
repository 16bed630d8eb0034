# SPDX-License-Identifier: BSD-3-Clause
"""One node's part of a job, as the options of ``distlite run`` describe it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from distlite._environment import flag_of
from distlite.launch.arguments import COMMANDS, make_parser
from distlite.launch.cores import gpu_count, usable_cores
from distlite.launch.signals import named_signals

DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 29500  # torchrun's, where several nodes must agree on one
RUN_PATH = (
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)
GRACE_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
# How often each rank may be started again, so that a program that cannot run ends.
RESTARTS_OF_EACH = 3
STDOUT, STDERR = 1, 2  # bits of the values of --redirects and --tee


class Options:
    """One node's part of a job."""

    command: tuple[str, ...] = ()
    nproc_per_node = 1
    nnodes = 1  # with `is_open` as many as the job needs
    max_nodes = 1  # that take part, beside spares
    spares = 0
    journal: str | None = None  # of the store, if this node serves it
    last_call = 5.0  # seconds for more than the least nodes to come
    is_standby = False  # serves it in place of a node that is lost
    node_rank = 0
    arrives = False  # c10d: a node's place is the order of arrival
    hosts_store: bool | None = None  # None: the node that can
    join_timeout = 600.0
    address = DEFAULT_ADDRESS
    # Where a standby serves the store, if not at the same address.
    second: tuple[str, int] | None = None
    local_address = ""  # this node's, for the others
    port = 0  # 0: any free one, on a job of one node
    run_id = "none"
    token: str | None = None  # made by this launcher; None: the environment's
    tls: str | None = None  # None: the environment's
    role = "default"
    max_restarts = 0  # of all ranks or, with `goes_on`, of each of them
    on_failure = "restart"
    log_dir: str | None = None
    redirects: tuple[int, ...] = ()
    tees: tuple[int, ...] = ()
    shown_ranks: frozenset[int] | None = None
    grace = 30.0
    signals: tuple[str, ...] = ()
    has_virtual_local_rank = False
    filters: tuple[list[str], list[str]] = [], []  # of stdout, of stderr
    numa_binding = ""

    @property
    def goes_on(self) -> bool:
        """Returns whether a rank that fails is started again while the others go on."""
        return self.on_failure == "continue"

    @property
    def has_peers(self) -> bool:
        """Returns whether there are, or may be, other nodes."""
        return self.max_nodes > 1 or self.spares > 0

    @property
    def is_open(self) -> bool:
        """Returns whether nodes come and go."""
        varies = self.goes_on or self.spares > 0 or self.max_nodes > self.nnodes
        return self.has_peers and varies

    @property
    def size_text(self) -> str:
        """Returns the number of nodes, for messages and for comparing."""
        if not self.is_open:
            return str(self.nnodes)
        return f"{self.nnodes}:{self.max_nodes} and {self.spares} spare"

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
    lines = [f"  distlite {name:<14}  {text}" for name, text in COMMANDS.items()]
    commands = "\n".join(["\n\nOther commands, each with its own --help:", *lines])
    try:
        parser = make_parser(program, commands if program == "distlite" else "")
    except ValueError as error:  # a variable of the environment
        print(f"{program}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if not arguments:
        parser.error(
            "no script is given, as in `distlite run -n 4 script.py`; "
            "`distlite --help` shows the options and the other commands"
        )
    args = parser.parse_args(arguments)
    try:
        return options_of(args)
    except ValueError as error:
        parser.error(str(error))


def options_of(args: Namespace) -> Options:
    """Converts the values of this parser, or of torch's, to options.

    Raises:
        ValueError: They do not fit together.
    """
    options = Options()
    options.nproc_per_node = _process_count(str(args.nproc_per_node))
    options.nnodes, options.max_nodes = _node_counts(str(args.nnodes))
    options.spares = _at_least_0("--spares", getattr(args, "spares", 0))
    options.node_rank = _at_least_0("--node-rank", args.node_rank)
    options.role = args.role
    _set_restarts(options, args)
    _check_sizes(options, args)
    options.has_virtual_local_rank = args.virtual_local_rank
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if options.has_virtual_local_rank and shown is not None:
        count = len(shown.split(","))
        if count < options.nproc_per_node:
            raise ValueError(
                f"--virtual-local-rank: CUDA_VISIBLE_DEVICES={shown} has {count} "
                f"GPU(s) for {options.nproc_per_node} ranks"
            )
    options.grace = _grace(args)
    options.signals = tuple(filter(None, args.signals_to_handle.split(",")))
    try:
        named_signals(options.signals)
    except ValueError as error:
        raise ValueError(f"--signals-to-handle: {error}") from None
    _refuse_classes(args)
    options.numa_binding = args.numa_binding or ""
    _set_rendezvous(options, args)
    options.token = _token(getattr(args, "token", "env"), options.has_peers)
    tls = getattr(args, "tls", "env")
    options.tls = None if tls == "env" else tls
    options.local_address = args.local_addr or ""
    is_alone = not options.has_peers and options.address == DEFAULT_ADDRESS
    if options.local_address and is_alone:
        options.address = options.local_address
    _set_output(options, args)
    options.command = _command(args)
    return options


def _at_least_0(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}: {value} is not 0 or more")
    return value


def _set_restarts(options: Options, args: Namespace) -> None:
    # torch's parser does not know --on-failure.
    options.on_failure = getattr(args, "on_failure", Options.on_failure)
    count = _at_least_0("--max-restarts", args.max_restarts)
    # None at all is what "stop" is for, and torchrun's default.
    options.max_restarts = count or (RESTARTS_OF_EACH if options.goes_on else 0)
    if options.on_failure == "stop" and count:
        raise ValueError(f"--max-restarts {count}: --on-failure stop restarts nothing")


def _check_sizes(options: Options, args: Namespace) -> None:
    if options.is_open and options.on_failure == "stop":
        varies = options.nnodes != options.max_nodes
        given = f"--nnodes {args.nnodes}" if varies else f"--spares {options.spares}"
        raise ValueError(f"{given}: --on-failure stop restarts nothing")


def _refuse_classes(args: Namespace) -> None:
    """Refuses names of classes that depend on internals of torchrun."""
    if args.logs_specs:
        raise ValueError(
            f"--logs-specs {args.logs_specs}: torch's LogsSpecs classes are not "
            "supported; use --log-dir, --redirects, --tee and --local-ranks-filter"
        )
    if args.event_log_handler not in ("", "null"):
        raise ValueError(
            f"--event-log-handler {args.event_log_handler}: this launcher emits no "
            "events, so only 'null' is accepted; its report on stderr and its exit "
            "status show how a job ended"
        )


def _grace(args: Namespace) -> float:
    name, text = "--shutdown-timeout", args.shutdown_timeout
    if text is None:
        name, text = GRACE_VARIABLE, os.environ.get(GRACE_VARIABLE) or Options.grace
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name} must be a number of seconds, not {text}")
    return seconds


def _set_rendezvous(options: Options, args: Namespace) -> None:
    """Sets where the nodes meet, and how each gets its number."""
    backend, is_alone = args.rdzv_backend, not options.has_peers
    if backend not in ("static", "c10d"):
        raise ValueError(f"--rdzv-backend must be 'static' or 'c10d', not {backend!r}")
    options.run_id = args.rdzv_id
    _set_conf(options, args.rdzv_conf)
    options.address = args.master_addr
    if args.standalone:
        if not is_alone:
            raise ValueError("--standalone is for one node")
        options.address = DEFAULT_ADDRESS
        return
    options.arrives = (backend == "c10d" and not is_alone) or options.is_open
    default = 0 if is_alone else DEFAULT_PORT
    options.port = default if args.master_port is None else args.master_port
    if args.rdzv_endpoint:
        first, *others = args.rdzv_endpoint.split(",")
        options.address, options.port = _endpoint(first, default)
        _set_second(options, others)
    elif options.arrives:
        need = "nodes that come and go need"
        need = need if options.is_open else "--rdzv-backend c10d needs"
        raise ValueError(f"{need} --rdzv-endpoint")
    if not 0 <= options.port <= 65535:
        raise ValueError(f"--master-port: {options.port} is not in 0..65535")
    if options.port == 0 and not is_alone:
        raise ValueError("several nodes need --master-port, the same on all of them")
    if not options.arrives and options.node_rank >= options.nnodes:
        raise ValueError(
            f"--node-rank {options.node_rank} is not less than the number of nodes, "
            f"{options.nnodes}"
        )


def _set_second(options: Options, others: Sequence[str]) -> None:
    if not others:
        return
    if len(others) > 1 or not options.is_open:
        raise ValueError(
            "--rdzv-endpoint: a second HOST:PORT, for the standby, is for nodes that "
            "come and go, and there is no third"
        )
    if options.hosts_store and options.journal is None:
        raise ValueError(
            "--rdzv-endpoint with a second HOST:PORT and is_host=true need --rdzv-conf "
            "journal=FILE, which the standby goes on with"
        )
    options.second = _endpoint(others[0], options.port)


def _token(kind: str, has_peers: bool) -> str | None:
    """Returns a new token for the job; None if the environment has the token or there
    is none."""
    if kind not in ("env", "auto"):
        # The error does not repeat the value, which may be a token.
        raise ValueError(
            "--token must be 'env' or 'auto', not the token itself, because every user "
            "can read command lines; set DISTLITE_TOKEN"
        )
    names = [n for n in ("DISTLITE_TOKEN", "DISTLITE_TOKEN_FILE") if n in os.environ]
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} are both set; unset one of them")
    if names and not os.environ[names[0]]:
        raise ValueError(f"{names[0]} is empty; unset it for a job without a token")
    if names or kind == "env":
        return None
    if has_peers:
        raise ValueError(
            "--token auto makes a token for one node; on several, set the same "
            "DISTLITE_TOKEN or DISTLITE_TOKEN_FILE on each of them"
        )
    return os.urandom(32).hex()


def _endpoint(text: str, default: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:  # '[fd00::1]' has no port
        host, port = text, str(default)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--rdzv-endpoint must be HOST:PORT, not {text}")
    return host, int(port)


def _set_conf(options: Options, text: str) -> None:
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        if key == "is_host" and value:
            options.hosts_store = flag_of("--rdzv-conf: is_host", value)
        elif key in ("join_timeout", "timeout") and value.isdecimal():
            options.join_timeout = float(value)
        elif key == "last_call_timeout" and value.isdecimal():
            options.last_call = float(value)
        elif key == "journal" and value and options.is_open:
            options.journal = value
        elif key == "standby" and value and options.is_open:
            options.is_standby = flag_of("--rdzv-conf: standby", value)
        else:
            raise ValueError(
                f"--rdzv-conf: {pair!r} is neither is_host=true, is_host=false, "
                "join_timeout=SECONDS, last_call_timeout=SECONDS nor, where nodes come "
                "and go, journal=FILE or standby=true"
            )
    if options.is_standby and options.journal is None:
        raise ValueError(
            "--rdzv-conf: standby=true needs journal=FILE, the file of the node that "
            "serves the store"
        )


def _set_output(options: Options, args: Namespace) -> None:
    count = options.nproc_per_node
    options.log_dir = args.log_dir or None
    options.redirects = _streams(args.redirects, "redirects", count)
    options.tees = _streams(args.tee, "tee", count)
    options.filters = args.duplicate_stdout_filters, args.duplicate_stderr_filters
    if not args.local_ranks_filter:
        return
    try:
        shown = frozenset(int(rank) for rank in args.local_ranks_filter.split(","))
    except ValueError:
        raise ValueError(
            "--local-ranks-filter must be ranks, such as 0,2, not "
            f"{args.local_ranks_filter}"
        ) from None
    options.shown_ranks = shown
    for rank in shown - set(range(count)):
        raise ValueError(f"--local-ranks-filter: there is no local rank {rank}")


def _streams(text: str, name: str, count: int) -> tuple[int, ...]:
    """Returns the streams of each local rank that '3' (all ranks) or '0:1,2:3'
    means."""
    chosen = [0] * count
    for item in text.split(","):
        rank, colon, value = item.rpartition(":")
        if value not in ("0", "1", "2", "3") or (colon and not rank.isdecimal()):
            raise ValueError(
                f"--{name}: {text!r} is neither 0, 1 (stdout), 2 (stderr) or 3 (both) "
                "nor a list such as 0:1,1:3"
            )
        if colon and int(rank) >= count:
            raise ValueError(f"--{name}: there is no local rank {rank}")
        for local_rank in [int(rank)] if colon else range(count):
            chosen[local_rank] = int(value)
    return tuple(chosen)


def _command(args: Namespace) -> tuple[str, ...]:
    flags = {"module": args.module, "no-python": args.no_python}
    flags["run-path"] = args.run_path
    kinds = [name for name, is_on in flags.items() if is_on]
    if len(kinds) > 1:
        raise ValueError(f"--{kinds[1]} is not allowed with --{kinds[0]}")
    # One error of the launcher in place of one of each rank.
    script, kind = args.training_script, "".join(kinds)
    words = (script, *args.training_script_args)
    if kind == "no-python":
        if not _is_program(script):
            raise ValueError(f"program {script!r} not found")
        return words
    # -u: a rank's output is shown at once, as under torchrun.
    python = [os.environ.get("PYTHON_EXEC", sys.executable), "-u"]
    if kind == "module":
        return (*python, "-m", *words)
    if not os.path.exists(script):
        raise ValueError(f"script {script!r} not found{_hint(script)}")
    if os.path.isdir(script) and not os.path.exists(f"{script}/__main__.py"):
        raise ValueError(
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
    return "; `distlite --help` shows the commands"


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
            raise ValueError("--nproc-per-node gpu: no GPU was found on this host")
        return count or usable_cores()
    try:
        count = int(text)
    except ValueError:
        # The text begins as torchrun's does.  -np 4 is read as -n with the value p.
        hint = (
            "mpirun's -np 4 is -n 4 or --nproc-per-node 4 here"
            if text.startswith("p")
            else "give a number, cpu, gpu or auto, as in `-n 4`"
        )
        raise ValueError(f"Unsupported nproc_per_node value: {text}; {hint}") from None
    if count < 1:
        raise ValueError(f"--nproc-per-node {count}: at least one process is needed")
    return count


def _node_counts(text: str) -> tuple[int, int]:
    """Returns the least and the largest number of nodes."""
    least, _, most = text.partition(":")
    most = most or least
    if not least.isdecimal() or not most.isdecimal():
        raise ValueError(f"--nnodes must be a number or MIN:MAX, not {text}")
    if int(least) < 1:
        raise ValueError(f"--nnodes {text}: at least one node is needed")
    if int(most) < int(least):
        raise ValueError(f"--nnodes {text}: the maximum is less than the minimum")
    return int(least), int(most)
