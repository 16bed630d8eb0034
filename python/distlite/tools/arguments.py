# SPDX-License-Identifier: BSD-3-Clause
"""The words after a subcommand, with the help that `distlite run` has, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from textwrap import wrap

from distlite._version import __version__
from distlite.launch.table import HELP_WIDTH, entry


class Parser(argparse.ArgumentParser):
    """Accepts '-' and '_' between the words of an option, and lays out its help.

    Args:
        name: The subcommand.
        description: What it does.
        positional: What follows the options, for the line of usage.
    """

    def __init__(self, name: str, description: str, positional: str = "") -> None:
        super().__init__(prog=f"distlite {name}", description=description)
        self.add_argument(
            "--version",
            action="version",
            version=f"distlite {__version__}",
            help="show the version",
        )
        self._positional = positional
        self._general = list(self._actions)  # --help and --version, shown last

    def words(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parses the words, or those of this process if None; exits with code 2 and a
        usage line if they are wrong."""
        if arguments is None:
            arguments = sys.argv[1:]
        return self.parse_args([_hyphenated(word) for word in arguments])

    def format_usage(self) -> str:
        return f"usage: {self.prog} [options] {self._positional}".rstrip() + "\n"

    def format_help(self) -> str:
        lines = [self.format_usage(), *wrap(self.description or "", HELP_WIDTH), ""]
        own = [action for action in self._actions if action not in self._general]
        for action in (*own, *self._general):
            lines += entry(_head(action), _text(action))
        return "\n".join([*lines, ""])


def _hyphenated(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _head(action: argparse.Action) -> str:
    """Returns how an option is written: "-o, --output FILE"."""
    names = ", ".join(action.option_strings)
    metavar = action.metavar
    if action.nargs != 0:
        metavar = str(metavar or action.dest.upper())
    if action.nargs == "?":
        metavar = f"[{metavar}]"
    return f"{names} {metavar or ''}".strip()


def _text(action: argparse.Action) -> str:
    """Returns the help text, with the default in brackets."""
    text = "show this" if action.dest == "help" else action.help or ""
    default = action.default
    if action.nargs == 0 or default in (None, ""):
        return text
    return (
        f"{text} [{default:g}]" if isinstance(default, float) else f"{text} [{default}]"
    )
