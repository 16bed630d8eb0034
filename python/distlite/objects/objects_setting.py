# SPDX-License-Identifier: BSD-3-Clause
"""What the environment says about how objects travel."""

from __future__ import annotations

import os

__all__ = ["VARIABLE", "objects_setting"]

VARIABLE = "DISTLITE_OBJECTS"
CHOICES = ("pickle", "proved", "safe")

_setting: str | None = None


def objects_setting() -> str:
    """Returns one of CHOICES, or an empty text if none was made.

    The environment is read once.

    Raises:
        ValueError: It has a value that does not exist.
    """
    global _setting
    if _setting is None:
        _setting = _read()
    return _setting


def _read() -> str:
    chosen = os.environ.get(VARIABLE, "")
    if chosen and chosen not in CHOICES:
        raise ValueError(
            f"environment variable {VARIABLE}: {chosen!r} is not one of its values: "
            f"{', '.join(CHOICES)}"
        )
    return chosen
