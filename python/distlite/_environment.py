# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the environment: switches, and how objects travel."""

from __future__ import annotations

import functools
import os

OBJECTS_VARIABLE = "DISTLITE_OBJECTS"
OBJECTS_CHOICES = ("pickle", "proved", "safe")


def flag_of(name: str, text: str) -> bool:
    """Returns what a switch says; the words are those of the core, in any case. An
    empty text is False.

    Raises:
        ValueError: It is none of the words; with `name`.
    """
    word = text.lower()
    if word in ("", "0", "false", "f", "no", "n"):
        return False
    if word in ("1", "true", "t", "yes", "y"):
        return True
    raise ValueError(
        f"{name} must be 1 or 0, true or false, yes or no, not {text[:100]!r}"
    )


@functools.cache
def objects_setting() -> str:
    """Returns one of OBJECTS_CHOICES, or an empty text if none was made.

    The environment is read once.

    Raises:
        ValueError: It has a value that does not exist.
    """
    chosen = os.environ.get(OBJECTS_VARIABLE, "")
    if chosen and chosen not in OBJECTS_CHOICES:
        raise ValueError(
            f"environment variable {OBJECTS_VARIABLE}: {chosen!r} is not one of its "
            f"values: {', '.join(OBJECTS_CHOICES)}"
        )
    return chosen
