# SPDX-License-Identifier: BSD-3-Clause
"""What the environment says about how objects travel."""

from __future__ import annotations

import os

__all__ = ["VARIABLE", "objects_setting"]

VARIABLE, OLDER = "DISTLITE_OBJECTS", "DISTLITE_SAFE_OBJECTS"
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
    is_safe = os.environ.get(OLDER, "0") not in ("", "0")
    if chosen and chosen not in CHOICES:
        raise ValueError(
            f"environment variable {VARIABLE}: {chosen!r} is not one of its values: "
            f"{', '.join(CHOICES)}"
        )
    if is_safe and chosen not in ("", "safe"):
        raise ValueError(
            f"environment variables {VARIABLE}={chosen} and {OLDER}=1, which is an "
            f"older name of {VARIABLE}=safe, contradict each other: unset one"
        )
    return "safe" if is_safe else chosen
