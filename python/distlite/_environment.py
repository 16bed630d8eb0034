# SPDX-License-Identifier: BSD-3-Clause
"""The words that switch something on or off in the environment."""

from __future__ import annotations


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
