# SPDX-License-Identifier: BSD-3-Clause
"""What ``distlite run`` was asked to do.

The options are torchrun's, each with '-' or '_' between the words.  Options of
torchrun that are not here are refused rather than ignored: a job that believes it has
restarts or log files must not start without them.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distlite.launch.cores import usable_cores

DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 29500  # torchrun's, where several nodes must agree on one


@dataclass(frozen=True)
class Options:
    """One node's part of a job."""

    command: tuple[str, ...]
    nproc_per_node: int = 1
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str = DEFAULT_ADDRESS
    master_port: int = 0  # 0: any free one, on a job of one node
    role: str = "default"

    @property
    def world_size(self) -> int:
        """Ranks of the whole job; every node runs the same number."""
        return self.nnodes * self.nproc_per_node

    def rank(self, local_rank: int) -> int:
        """The rank in the whole job of a rank of this node."""
        return self.node_rank * self.nproc_per_node + local_rank


def parse(arguments: Sequence[str], program: str = "distlite run") -> Options:
    """Parse the command line; exit with code 2 and a usage line if it is wrong."""
    parser = _parser(program)
    parsed = parser.parse_args(arguments)
    if parsed.standalone and parsed.nnodes != 1:
        parser.error("--standalone is for one node")
    if not 0 <= parsed.node_rank < parsed.nnodes:
        parser.error(
            f"--node-rank {parsed.node_rank} is not among {parsed.nnodes} node(s)"
        )
    address, port = parsed.master_addr, parsed.master_port
    if parsed.standalone:
        address, port = DEFAULT_ADDRESS, 0
    elif port is None:
        port = 0 if parsed.nnodes == 1 else DEFAULT_PORT
    elif port == 0 and parsed.nnodes > 1:
        parser.error("several nodes need a --master-port that all of them know")
    try:
        command = _command(parsed)
    except FileNotFoundError as error:
        parser.error(str(error))
    return Options(
        command=command,
        nproc_per_node=parsed.nproc_per_node,
        nnodes=parsed.nnodes,
        node_rank=parsed.node_rank,
        master_addr=address,
        master_port=port,
        role=parsed.role,
    )


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Run a script as several ranks on this host.",
        epilog="On a terminal the first rank's output is shown as it is, so that "
        "progress bars work; every other line begins with its rank.",
        allow_abbrev=False,
    )
    _add_size_options(parser)
    _add_address_options(parser)
    _add_program_options(parser)
    return parser


def _add(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """An option in both spellings."""
    underscored = "--" + name[2:].replace("-", "_")
    names = [name] if underscored == name else [name, underscored]
    parser.add_argument(*names, **settings)


def _add_size_options(parser: argparse.ArgumentParser) -> None:
    add = functools.partial(_add, parser)
    add(
        "--nproc-per-node",
        type=_process_count,
        default=1,
        metavar="N",
        help="ranks on this node: a number, or 'auto' or 'cpu' for one per usable core",
    )
    add("--nnodes", type=_node_count, default=1, metavar="N", help="nodes of the job")
    add(
        "--node-rank",
        type=int,
        default=0,
        metavar="R",
        help="this node's place, from 0",
    )
    add("--role", default="default", help="the ranks' ROLE_NAME")


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    add = functools.partial(_add, parser)
    add(
        "--master-addr",
        default=DEFAULT_ADDRESS,
        metavar="HOST",
        help="address of the node with rank 0 (default: %(default)s)",
    )
    add(
        "--master-port",
        type=_port,
        default=None,
        metavar="PORT",
        help=f"port of rank 0's store (default: any free one; on several nodes "
        f"{DEFAULT_PORT})",
    )
    add("--standalone", action="store_true", help="one node, any free port")


def _add_program_options(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "-m", "--module", action="store_true", help="the script is a module's name"
    )
    kind.add_argument(
        "--no-python",
        "--no_python",
        action="store_true",
        help="the script is a program to run as it is",
    )
    parser.add_argument("script", help="what every rank runs")
    parser.add_argument(
        "script_args", nargs=argparse.REMAINDER, metavar="...", help="its arguments"
    )


def _command(parsed: argparse.Namespace) -> tuple[str, ...]:
    # Four ranks that cannot find the script would say so four times.
    if parsed.no_python:
        if shutil.which(parsed.script) is None:
            raise FileNotFoundError(f"no program {parsed.script!r}")
        return (parsed.script, *parsed.script_args)
    # -u: what a rank prints is seen when it prints it, as under torchrun.
    python = [os.environ.get("PYTHON_EXEC", sys.executable), "-u"]
    if parsed.module:
        return (*python, "-m", parsed.script, *parsed.script_args)
    if not os.path.exists(parsed.script):
        raise FileNotFoundError(f"no script {parsed.script!r}")
    return (*python, parsed.script, *parsed.script_args)


def _process_count(text: str) -> int:
    if text in ("auto", "cpu"):
        return usable_cores()
    try:
        count = int(text)
    except ValueError:
        # torchrun's words.
        message = f"Unsupported nproc_per_node value: {text}"
        raise argparse.ArgumentTypeError(message) from None
    if count < 1:
        raise argparse.ArgumentTypeError("at least one process is needed")
    return count


def _node_count(text: str) -> int:
    least, _, most = text.partition(":")
    try:
        count = int(least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number of nodes: {text}") from None
    if most not in ("", least):
        raise argparse.ArgumentTypeError(f"a varying number of nodes, {text}")
    if count < 1:
        raise argparse.ArgumentTypeError("at least one node is needed")
    return count


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a port: {text}") from None
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not in 0..65535")
    return port
