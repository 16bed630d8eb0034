# SPDX-License-Identifier: BSD-3-Clause
"""The public functions and classes, by their names in the reference."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

# The public names of each module; None is the module's __all__.
MODULES: dict[str, list[str] | None] = {
    "": None,
    "data_parallel": None,
    "elastic": None,
    "functional": None,
    "launch": None,
    "run": None,
    "spawn": None,
    "stores": None,
    "testing": None,
}


def public() -> Iterator[tuple[str, Any]]:
    """Each name with what it stands for."""
    for part, names in MODULES.items():
        module = importlib.import_module(f"distlite.{part}".rstrip("."))
        for name in module.__all__ if names is None else names:
            yield f"{part}.{name}".lstrip("."), getattr(module, name)
