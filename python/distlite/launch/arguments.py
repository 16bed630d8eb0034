# SPDX-License-Identifier: BSD-3-Clause
"""The launcher's options as an argparse parser, for programs that launch jobs.

The command line itself is parsed without argparse, whose import takes longer than all
else that the launcher does before it starts ranks.
"""

from __future__ import annotations

import argparse
import os

from distlite.launch.numa import MODES
from distlite.launch.options import (
    START_METHODS,
    UsageError,
    comma_separated,
    flag_from_environment,
    options_of,
    variable_of,
)
from distlite.launch.table import FLAG, OPTIONS, SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distlite.launch.options import Options


def _words(text: str) -> list[str]:
    return list(comma_separated(text))


# Options whose values in torchrun are not texts, or whose default is not the empty
# text.
TYPES: dict[str, Any] = {
    "max-restarts": int,
    "monitor-interval": float,
    "node-rank": int,
    "master-port": int,
    "shutdown-timeout": int,
    "duplicate-stdout-filters": _words,
    "duplicate-stderr-filters": _words,
}
CHOICES = {"start-method": START_METHODS, "numa-binding": MODES}
NOT_GIVEN = (
    *("master-port", "log-dir", "local-addr", "shutdown-timeout", "numa-binding"),
    "logs-specs",
)
LISTS = ("duplicate-stdout-filters", "duplicate-stderr-filters")
ENDING = ("help", "version")


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser; its values have torchrun's names and types.

    Raises:
        ValueError: A flag's variable in the environment says neither yes nor no.
    """
    # With abbreviations, an option of the script that begins as several of the
    # launcher's do would be refused as ambiguous.
    parser = argparse.ArgumentParser(
        description="Run a script as several ranks.", allow_abbrev=False
    )
    letters = {name: f"-{letter}" for letter, name in SHORT.items()}
    for name, option in OPTIONS.items():
        if name in ENDING:
            continue
        spellings = dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}"])
        words = [*filter(None, [letters.get(name)]), *spellings]
        text = option.text.replace("%", "%%")
        given: dict[str, Any] = {"dest": _attribute(name), "help": text}
        if option.metavar == FLAG:
            is_on = flag_from_environment(name)
            parser.add_argument(*words, action="store_true", default=is_on, **given)
            continue
        if name in CHOICES:
            given["choices"] = CHOICES[name]
        else:
            given["metavar"] = option.metavar
        kind = TYPES.get(name, str)
        parser.add_argument(*words, type=kind, default=_default(name), **given)
    parser.add_argument("training_script", help="the script to run")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def _default(name: str) -> Any:
    # argparse calls the option's type with the text only.
    if text := os.environ.get(variable_of(name)):
        return text
    if name in LISTS:
        return []
    if name == "nnodes":
        return "1:1"
    if name in NOT_GIVEN:
        return None
    return TYPES.get(name, str)(OPTIONS[name].default)


def _text_of(value: Any) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "1"
    if isinstance(value, list | tuple):
        return ",".join(str(each).replace(",", ",,") for each in value)
    return str(value)


def options_of_namespace(args: argparse.Namespace) -> Options:
    """Converts the values of this parser, or of torch's, to options.

    Raises:
        ValueError: They do not fit together.
    """
    values = {
        name: _text_of(getattr(args, _attribute(name)))
        for name in OPTIONS
        if hasattr(args, _attribute(name))
    }
    try:
        return options_of(values, [args.training_script, *args.training_script_args])
    except UsageError as error:
        raise ValueError(str(error)) from None
