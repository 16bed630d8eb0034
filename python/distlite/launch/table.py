# SPDX-License-Identifier: BSD-3-Clause
"""The launcher's options, one line each, and the help made of them."""

from __future__ import annotations

FLAG = ""


class Option:
    """How one option looks; without a metavar it is a flag."""

    __slots__ = ("default", "metavar", "text")

    def __init__(self, metavar: str, default: str, text: str) -> None:
        self.metavar = metavar
        self.default = default
        self.text = text


OPTIONS = {
    "nproc-per-node": Option(
        "N",
        "1",
        "ranks on this node: a number; cpu: one per usable core; gpu: one per GPU; "
        "auto: gpu if there is one, else cpu",
    ),
    "nnodes": Option("N", "1", "number of nodes of the job"),
    "node-rank": Option("R", "0", "this node's number, from 0 (static rendezvous)"),
    "master-addr": Option("HOST", "127.0.0.1", "address of the node with rank 0"),
    "master-port": Option(
        "PORT", "", "port of the job's store (any free one; 29500 on several nodes)"
    ),
    "local-addr": Option(
        "HOST",
        "",
        "this node's address as the others reach it; on one node also MASTER_ADDR",
    ),
    "rdzv-backend": Option(
        "NAME",
        "static",
        "static: nodes are numbered by --node-rank; c10d: in the "
        "order in which they arrive",
    ),
    "rdzv-endpoint": Option("HOST:PORT", "", "address at which the nodes meet"),
    "rdzv-id": Option(
        "ID", "none", "name of the job; nodes with another name are refused"
    ),
    "rdzv-conf": Option("K=V,...", "", "is_host=true|false, join_timeout=SECONDS"),
    "standalone": Option(FLAG, "", "run on one node, with any free port"),
    "token": Option(
        "KIND",
        "env",
        "the secret of the job's store: env: that of DISTLITE_TOKEN or "
        "DISTLITE_TOKEN_FILE, if any; auto: that one, or a new one (one node)",
    ),
    "tls": Option(
        "MODE",
        "env",
        "TLS of the job's store: off, psk (with a key made of the token), cert (with "
        "certificates); env: as DISTLITE_TLS says",
    ),
    "max-restarts": Option("N", "0", "how often to restart all ranks when one fails"),
    "monitor-interval": Option(
        "S", "0.1", "accepted and ignored: the end of a rank is noticed at once"
    ),
    "start-method": Option(
        "NAME", "spawn", "accepted and ignored: each rank is a new program"
    ),
    "shutdown-timeout": Option("S", "", "seconds from SIGTERM to SIGKILL (30)"),
    "signals-to-handle": Option(
        "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "signals that end the job"
    ),
    "role": Option("NAME", "default", "the ranks' ROLE_NAME"),
    "log-dir": Option("FOLDER", "", "folder for the ranks' output files"),
    "redirects": Option(
        "STREAMS",
        "0",
        "write output to files instead: 1 stdout, 2 stderr, 3 both, or "
        "by local rank: 0:1,1:3",
    ),
    "tee": Option("STREAMS", "0", "write output to files as well"),
    "local-ranks-filter": Option(
        "RANKS", "", "show the output of these local ranks only: 0,2"
    ),
    "duplicate-stdout-filters": Option(
        "WORDS",
        "",
        "copy lines of stdout with one of these words to filtered_stdout.log (write a "
        "comma in a word as two)",
    ),
    "duplicate-stderr-filters": Option(
        "WORDS", "", "the same for stderr, to filtered_stderr.log"
    ),
    "logs-specs": Option("NAME", "", "not supported: torch's LogsSpecs classes"),
    "event-log-handler": Option(
        "NAME", "null", "only null is accepted: no events are emitted"
    ),
    "numa-binding": Option(
        "MODE",
        "",
        "bind each rank to the cores near its GPU, or of its part of the host: node, "
        "socket, exclusive, core-complex",
    ),
    "bind-cores": Option(FLAG, "", "bind each rank to cores of its own"),
    "virtual-local-rank": Option(
        FLAG, "", "every rank sees LOCAL_RANK 0 and only its own GPU"
    ),
    "module": Option(FLAG, "", "the script is the name of a module"),
    "no-python": Option(FLAG, "", "the script is a program, run without Python"),
    "run-path": Option(FLAG, "", "run the script with runpy.run_path"),
    "use-env": Option(FLAG, "", "accepted and ignored: LOCAL_RANK is always set"),
    "help": Option(FLAG, "", "show this"),
    "version": Option(FLAG, "", "show the version"),
}
SHORT = {
    "n": "nproc-per-node",
    "m": "module",
    "r": "redirects",
    "t": "tee",
    "h": "help",
}
HELP_COLUMN = 28
HELP_WIDTH = 78


# The subcommands of `distlite`, which runs a script if its first word is none of these.
COMMANDS = {
    "run": "the same, under the command's name",
    "ps": "show what each rank on this host is doing",
    "trace": "write the ranks' last operations as a Perfetto trace",
    "doctor": "check whether the hosts of a job can work together",
}


def usage(program: str) -> str:
    """Returns the line that shows how the command is called."""
    return f"usage: {program} [options] script [arguments of the script]"


def help_text(program: str) -> str:
    """Returns the usage and a line or two for each option."""
    lines = [usage(program), "", "Run a script as several ranks on this host.", ""]
    if program == "distlite":
        lines += ["Other commands, each with its own --help:", ""]
        for name, text in COMMANDS.items():
            lines += entry(f"distlite {name}", text)
        lines += ["", "Options:", ""]
    letters = {name: letter for letter, name in SHORT.items()}
    for name, option in OPTIONS.items():
        letter = f"-{letters[name]}, " if name in letters else ""
        head = f"{letter}--{name} {option.metavar}".rstrip()
        default = f" [{option.default}]" if option.default else ""
        lines += entry(head, option.text + default)
    lines += [
        "",
        "On a terminal the first rank's output is shown as it is, so that progress",
        "bars work; every other line begins with its rank.",
        "",
    ]
    return "\n".join(lines)


def entry(name: str, text: str) -> list[str]:
    """Returns the lines for an option or a command."""
    from textwrap import wrap

    head, column = f"  {name}", " " * HELP_COLUMN
    lines = wrap(text, HELP_WIDTH - HELP_COLUMN)
    if len(head) < HELP_COLUMN:
        return [
            head.ljust(HELP_COLUMN) + lines[0],
            *(column + line for line in lines[1:]),
        ]
    return [head, *(column + line for line in lines)]
