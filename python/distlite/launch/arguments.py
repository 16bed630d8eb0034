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

START_METHODS = ("spawn", "fork", "forkserver")
# The subcommands of `distlite`, which runs a script if its first word is none of these.
COMMANDS = {
    "run": "the same, under the command's name",
    "ps": "show what each rank on this host is doing",
    "trace": "write the ranks' last operations as a Perfetto trace",
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
        ValueError: A flag's variable in the environment says neither yes nor no.
    """
    parser = Parser(
        prog,
        f"Run a script as several ranks on this host.{others}",
        "script [arguments of the script]",
    )

    def option(names: str, metavar: str, default: object, text: str, **given: Any):  # type: ignore[no-untyped-def]
        words = names.split()
        default = os.environ.get(variable_of(words[-1])) or default
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
        "number of nodes of the job; MIN:MAX with --on-failure continue",
    )
    option(
        "--spares",
        "N",
        0,
        "nodes that come after the first MIN and wait until one is lost, as do those "
        "above MAX",
        type=int,
    )
    option("--node-rank", "R", 0, "this node's number, from 0 (static)", type=int)
    option("--master-addr", "HOST", "127.0.0.1", "address of the node with rank 0")
    option(
        "--master-port",
        "PORT",
        None,
        "port of the job's store (any free one; 29500 on several nodes)",
        type=int,
    )
    option(
        "--local-addr",
        "HOST",
        None,
        "this node's address as the others reach it; on one node also MASTER_ADDR",
    )
    option(
        "--rdzv-backend",
        "NAME",
        "static",
        "static: nodes are numbered by --node-rank; c10d: in the order in which they "
        "arrive",
    )
    option("--rdzv-endpoint", "HOST:PORT", "", "address at which the nodes meet")
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
        "is_host=true|false, join_timeout=SECONDS; journal=FILE: with it a node's "
        "launcher that serves the store of --on-failure continue may be started again",
    )
    flag("--standalone", "run on one node, with any free port")
    option(
        "--token",
        "KIND",
        "env",
        "the secret of the job's store: env: that of DISTLITE_TOKEN or "
        "DISTLITE_TOKEN_FILE, if any; auto: that one, or a new one (one node)",
    )
    option(
        "--tls",
        "MODE",
        "env",
        "TLS of the job's store: off, psk (with a key made of the token), cert (with "
        "certificates); env: as DISTLITE_TLS says",
    )
    option(
        "--max-restarts",
        "N",
        0,
        "how often to restart all ranks when one fails; with --on-failure continue how "
        "often to start each of them again (0: 3 times)",
        type=int,
    )
    option(
        "--on-failure",
        "WHAT",
        "restart",
        "when a rank fails: restart: all ranks, if --max-restarts allows it; stop: end "
        "all; continue: start it again while the others go on (distlite.elastic)",
    )
    option(
        "--monitor-interval",
        "S",
        0.1,
        "torchrun's; without effect: the end of a rank is noticed at once",
        type=float,
    )
    option(
        "--start-method",
        "NAME",
        "spawn",
        "torchrun's; without effect: each rank is a new program",
        choices=START_METHODS,
    )
    option(
        "--shutdown-timeout",
        "S",
        None,
        "seconds from SIGTERM to SIGKILL (30)",
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
        "write output to files instead: 1 stdout, 2 stderr, 3 both, or by local rank: "
        "0:1,1:3",
    )
    option("-t --tee", "STREAMS", "0", "write output to files as well")
    option(
        "--local-ranks-filter",
        "RANKS",
        "",
        "show the output of these local ranks only: 0,2",
    )
    option(
        "--duplicate-stdout-filters",
        "WORDS",
        [],
        "copy lines of stdout with one of these words to filtered_stdout.log (write a "
        "comma in a word as two)",
        type=comma_separated,
    )
    option(
        "--duplicate-stderr-filters",
        "WORDS",
        [],
        "the same for stderr, to filtered_stderr.log",
        type=comma_separated,
    )
    option("--logs-specs", "NAME", None, "not supported: torch's LogsSpecs classes")
    option(
        "--event-log-handler",
        "NAME",
        "null",
        "only null is accepted: no events are emitted",
    )
    option(
        "--numa-binding",
        "MODE",
        None,
        "bind each rank to the cores near its GPU, or of its part of the host: "
        f"{', '.join(MODES)}",
        choices=MODES,
    )
    flag("--virtual-local-rank", "every rank sees LOCAL_RANK 0 and only its own GPU")
    flag("-m --module", "the script is the name of a module")
    flag("--no-python", "the script is a program, run without Python")
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
