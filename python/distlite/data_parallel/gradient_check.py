# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all ranks have the same parameters, and finds out which gradients are
missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._C import ProcessGroup
from .gradient_buckets import Parameter

# The number of parameters that a message names.
NAMES = 8


def same_everywhere(
    parameters: Sequence[Parameter], settings: Mapping[str, Any], group: ProcessGroup
) -> None:
    """Raises the same ValueError on all ranks unless all have the same parameters.

    It is collective. Names, their order, shapes, dtypes, and the settings of the
    reducer are compared.
    """
    import hashlib
    import os

    from .._C import all_gather_object

    known = [(parameter.key, parameter.describe()) for parameter in parameters]
    mine = known, dict(settings), os.uname().nodename
    digests: list[Any] = [None] * group.size()
    digest = hashlib.sha256(repr((known, sorted(settings.items()))).encode()).digest()
    all_gather_object(digests, digest, group)
    if len(set(digests)) == 1:
        return
    told: list[Any] = [None] * group.size()
    all_gather_object(told, mine, group)
    for rank, theirs in zip(_ranks_of(group), told, strict=True):
        difference = _difference(f"rank {rank} ({theirs[2]})", theirs, told[0])
        if difference:
            raise ValueError(
                f"GradientReducer: the ranks' parameters differ: {difference}, unlike "
                f"rank {_ranks_of(group)[0]} ({told[0][2]}). All ranks must make the "
                "same reducer of the same parameters in the same order"
            )


def _difference(who: str, theirs: Any, first: Any) -> str:
    """Returns the first difference, or an empty text."""
    for (key, text), (first_key, first_text) in zip(theirs[0], first[0], strict=False):
        if key != first_key:
            return f"{who} has {key!r} where there should be {first_key!r}"
        if text != first_text:
            return f"{key!r} is {text} on {who}, not {first_text}"
    count, first_count = len(theirs[0]), len(first[0])
    if count < first_count:
        return f"{who} has no {first[0][count][0]!r}"
    if count > first_count:
        return f"{who} has {theirs[0][first_count][0]!r}"
    for name, value in first[1].items():
        if theirs[1][name] != value:
            return f"{name} is {theirs[1][name]!r} on {who}, not {value!r}"
    return ""


def _ranks_of(group: ProcessGroup) -> list[int]:
    """Returns the global ranks in group order; for a group made by hand, 0 to size -
    1."""
    from ..groups.world import world

    info = world.groups.get(group)
    return list(range(group.size())) if info is None else info.ranks


def unused_everywhere(used: np.ndarray, group: ProcessGroup) -> set[int]:
    """Returns the places that no rank has marked with a 1.  It is collective."""
    from .._C import all_reduce
    from ..groups.reduce_op import ReduceOp

    anywhere = used.copy()
    all_reduce(anywhere, ReduceOp.MAX, group)
    return set(np.flatnonzero(anywhere == 0).tolist())


def explain_missing(
    used: np.ndarray, parameters: Sequence[Parameter], group: ProcessGroup
) -> RuntimeError:
    """Returns a text that says which ranks had no gradient of which parameters, the
    same on all ranks.  It is collective."""
    from .._C import all_gather_single

    everybodys = np.empty((group.size(), len(used)), used.dtype)
    all_gather_single(everybodys, used, group=group)
    texts = []
    for rank, row in zip(_ranks_of(group), everybodys, strict=True):
        names = [repr(parameters[i].key) for i in np.flatnonzero(row == 0).tolist()]
        if names:
            more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
            texts.append(f"rank {rank}: {', '.join(names[:NAMES])}{more}")
    return RuntimeError(
        "GradientReducer: finish() was called without a gradient of every parameter. "
        f"Missing are, on {'; on '.join(texts)}. Call ready() for each of them before "
        "finish(), or, if some take no part in some steps, make the reducer with "
        "find_unused=True"
    )
