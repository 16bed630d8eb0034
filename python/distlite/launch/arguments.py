# SPDX-License-Identifier: BSD-3-Clause
"""The words after ``distlite``: the parser of its commands, and the options of
``distlite run``, which are torchrun's and a few more.

Each option of ``run`` can be written with '-' or '_' between the words, and takes its
default from the environment (PET_NNODES for --nnodes).
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from distlite._environment import flag_of
from distlite._version import __version__
from distlite.launch.numa import MODES

# The subcommands of `distlite`, which runs a script if its first word is none of these.
COMMANDS = {
    "run": "run a script; the name may be left out",
    "ps": "show what each rank on this host is doing",
    "trace": "write a trace of the ranks' last operations",
    "doctor": "check whether the hosts of a job can work together",
}


class Formatter(argparse.HelpFormatter):
    """Shows each option in one spelling, and its default."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=79)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(name for name in action.option_strings if "_" not in name)
        value = "" if action.nargs == 0 else self._format_args(action, "X")
        return f"{names} {value}".strip()

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        is_shown = action.nargs != 0 and action.default not in (None, "", [])
        return f"{text} [%(default)s]" if is_shown else text


class Parser(argparse.ArgumentParser):
    """Accepts '-' and '_' between the words of an option.

    Args:
        prog: The command; None is the name of this program.
        description: What it does.
        positional: What follows the options, for the line of usage.
    """

    def __init__(
        self, prog: str | None, description: str, positional: str = ""
    ) -> None:
        # With abbreviations, an option of the script that begins as several of the
        # launcher's do would be refused as ambiguous.
        super().__init__(
            prog=prog,
            usage=f"%(prog)s [options] {positional}".rstrip(),
            description=description,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        version = f"distlite {__version__}"
        self.add_argument(
            "--version", action="version", version=version, help="show the version"
        )

    def add_argument(self, *names: str, **given: Any) -> argparse.Action:
        spellings = dict.fromkeys(
            (*names, *(f"--{n[2:].replace('-', '_')}" for n in names if n[:2] == "--"))
        )
        return super().add_argument(*spellings, **given)


def make_parser(prog: str | None = None, others: str = "") -> Parser:
    """Returns the parser of ``run``; its values have torchrun's names and types.

    Args:
        prog: The command; None is the name of this program.
        others: Other commands, for the help.

    Raises:
        ValueError: A variable of the environment has none of the values of its option.
    """
    parser = Parser(
        prog,
        f"Run a script as several ranks, on one host or several.{others}",
        "script [arguments of the script]",
    )

    def option(names: str, metavar: str, default: object, text: str, **given: Any):  # type: ignore[no-untyped-def]
        words = names.split()
        variable = variable_of(words[-1])
        default = os.environ.get(variable) or default
        choices = given.get("choices", ())
        if os.environ.get(variable) and choices and default not in choices:
            known = ", ".join(choices)
            raise ValueError(f"{variable}: {default!r} is not one of {known}")
        parser.add_argument(
            *words, metavar=metavar, default=default, help=text, **given
        )

    def flag(names: str, text: str) -> None:
        words = names.split()
        variable = variable_of(words[-1])
        is_on = flag_of(variable, os.environ.get(variable, ""))
        parser.add_argument(*words, action="store_true", default=is_on, help=text)

    option(
        "-n --nproc-per-node",
        "N",
        "1",
        "ranks on this node: a number; cpu: one per usable core; gpu: one per GPU; "
        "auto: gpu if there is one, else cpu",
    )
    option(
        "--nnodes",
        "N",
        "1:1",
        "number of nodes of the job; MIN:MAX: nodes come and go",
    )
    option(
        "--spares",
        "N",
        0,
        "further nodes that wait until a node is lost; nodes above MAX wait as well",
        type=int,
    )
    option(
        "--node-rank",
        "R",
        0,
        "this node's number, from 0; for the static backend",
        type=int,
    )
    option("--master-addr", "HOST", "127.0.0.1", "address of node 0")
    option(
        "--master-port",
        "PORT",
        None,
        "port of the job's store; default: any free one, or 29500 on several nodes",
        type=int,
    )
    option(
        "--local-addr",
        "HOST",
        None,
        "name of this node in messages of the others; with one node also MASTER_ADDR",
    )
    option(
        "--rdzv-backend",
        "NAME",
        "static",
        "how nodes are numbered: static: by --node-rank; c10d: in the order in which "
        "they arrive",
    )
    option(
        "--rdzv-endpoint",
        "HOST:PORT",
        "",
        "address at which the nodes meet; HOST:PORT,HOST:PORT: and that of a standby",
    )
    option(
        "--rdzv-id",
        "ID",
        "none",
        "name of the job; nodes with another name are refused",
    )
    option(
        "--rdzv-conf",
        "K=V,...",
        "",
        "join_timeout=SECONDS to wait for the nodes; last_call_timeout=SECONDS to wait "
        "for more than MIN (5); is_host=true|false: whether this node serves the "
        "store; where nodes come and go, journal=FILE: keep the store in a file, so "
        "that the launcher that serves it can be started again; standby=true: serve "
        "the store from that file when its launcher is lost",
    )
    flag("--standalone", "run on one node, with any free port")
    option(
        "--token",
        "KIND",
        "env",
        "secret of the job: env: from DISTLITE_TOKEN or DISTLITE_TOKEN_FILE, if set; "
        "auto: the same, or else a new one (one node only)",
    )
    option(
        "--tls",
        "MODE",
        "env",
        "encryption: off; psk: with a key derived from the token; cert: with "
        "certificates; env: from DISTLITE_TLS",
        choices=("env", "off", "psk", "cert"),
    )
    option(
        "--max-restarts",
        "N",
        0,
        "how often to restart all ranks after a failure; with --on-failure continue, "
        "how often to restart each rank (0: 3 times)",
        type=int,
    )
    option(
        "--on-failure",
        "WHAT",
        "restart",
        "when a rank fails: restart: restart all ranks, as often as --max-restarts "
        "allows; stop: end all ranks; continue: restart this rank while the others go "
        "on (for programs with distlite.elastic)",
        choices=("restart", "stop", "continue"),
    )
    option(
        "--monitor-interval",
        "S",
        0.1,
        "no effect, for torchrun's command lines: the end of a rank is noticed at once",
        type=float,
    )
    option(
        "--start-method",
        "NAME",
        "spawn",
        "no effect, for torchrun's command lines: each rank is a new program",
        choices=("spawn", "fork", "forkserver"),
    )
    option(
        "--shutdown-timeout",
        "S",
        None,
        "seconds from SIGTERM to SIGKILL; default: 30",
        type=int,
    )
    option(
        "--signals-to-handle",
        "NAMES",
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "signals that end the job",
    )
    option("--role", "NAME", "default", "the ranks' ROLE_NAME")
    option("--log-dir", "FOLDER", None, "folder for the ranks' output files")
    option(
        "-r --redirects",
        "STREAMS",
        "0",
        "write output to files only: 1: stdout; 2: stderr; 3: both; or by local rank, "
        "as in 0:1,1:3",
    )
    option(
        "-t --tee", "STREAMS", "0", "write output to files as well as to the terminal"
    )
    option(
        "--local-ranks-filter",
        "RANKS",
        "",
        "show the output of these local ranks only, as in 0,2",
    )
    option(
        "--duplicate-stdout-filters",
        "WORDS",
        [],
        "copy lines of stdout with one of these words to filtered_stdout.log; write a "
        "comma in a word as ,,",
        type=comma_separated,
    )
    option(
        "--duplicate-stderr-filters",
        "WORDS",
        [],
        "copy lines of stderr to filtered_stderr.log",
        type=comma_separated,
    )
    option("--logs-specs", "NAME", None, "not supported")
    option(
        "--event-log-handler",
        "NAME",
        "null",
        "null; others are not supported",
    )
    option(
        "--numa-binding",
        "MODE",
        None,
        "bind each rank to cores near its GPU or, without GPUs, to a part of the host: "
        f"{', '.join(MODES)}",
        choices=MODES,
    )
    flag(
        "--virtual-local-rank", "each rank has LOCAL_RANK 0, and sees only its own GPU"
    )
    flag("-m --module", "run a module, as python -m does")
    flag("--no-python", "run a program that is not a Python script")
    flag("--run-path", "run the script with runpy.run_path")
    parser.add_argument("training_script", help=argparse.SUPPRESS)
    parser.add_argument(
        "training_script_args", nargs=argparse.REMAINDER, help=argparse.SUPPRESS
    )
    return parser


def variable_of(name: str) -> str:
    """Returns the name of the variable that has an option's default."""
    return "PET_" + name.removeprefix("--").upper().replace("-", "_")


def comma_separated(text: str) -> list[str]:
    """Returns the words of a list; two commas stand for one within a word."""
    words = text.replace(",,", "\0").split(",")
    return [word.replace("\0", ",") for word in words if word]
