# SPDX-License-Identifier: BSD-3-Clause
"""Dtypes that only move: ranks whose arrays are of different ones hear of it."""

import dtype_ranks
import pytest
from workers import run_ranks

OTHER = "another dtype (#"
# What each of the two ranks has.
NAMES = {
    "units": ("datetime64[s]", "datetime64[ms]"),
    "multiples": ("timedelta64[25s]", "timedelta64[s]"),
    "sizes": ("S256", "S512"),
    "texts": ("U3", "S12"),
    "long doubles": ("longdouble", "V16"),
    "numbers": ("datetime64[ns]", "int64"),
}
# Of these a rank has only the name of its own, and a hash of the other's.
RECORDS = {
    "records": (
        "{a: int32 at 0, b: float32 at 4, 8 bytes}",
        "{b: float32 at 0, a: int32 at 4, 8 bytes}",
    ),
    "subarrays": (
        "{a: int16[2, 3] at 0, 12 bytes}",
        "{a: int16[3, 2] at 0, 12 bytes}",
    ),
    "nested": (
        "{r: {a: int32 at 0, b: float32 at 4, 8 bytes} at 0, 8 bytes}",
        "{r: {b: float32 at 0, a: int32 at 4, 8 bytes} at 0, 8 bytes}",
    ),
    "orders": (
        "{a: int32 at 0, 4 bytes}",
        "{a: byte-swapped int32 at 0, 4 bytes}",
    ),
    "fields": (
        "{t: datetime64[s] at 0, 8 bytes}",
        "{t: datetime64[us] at 0, 8 bytes}",
    ),
}
COLLECTIVES = {"broadcast", "all_gather", "gather", "scatter", "all_to_all"}
MESSAGES = {"send", "to anybody", "isend"}

places = pytest.mark.parametrize("hints", ["", "AB"], ids=["one host", "two hosts"])


@places
def test_every_rank_hears_of_both_dtypes(hints):
    results = run_ranks(dtype_ranks.differ, 2, hints=hints)
    for rank, found in enumerate(results):
        assert found.keys() == NAMES.keys() | RECORDS.keys()
        assert found["units"].keys() == COLLECTIVES | MESSAGES
        if rank == 0:
            # The sender of a small message has done with it.
            sent = {texts.pop(kind) for texts in found.values() for kind in MESSAGES}
            assert sent == {"no error"}
        for pair, names in NAMES.items():
            for kind, text in found[pair].items():
                assert text.index(names[0]) < text.rindex(names[1]), (pair, kind, text)
    for rank, found in enumerate(results):
        for pair, names in RECORDS.items():
            for kind, text in found[pair].items():
                assert OTHER in text, (pair, kind, text)
                # Of a collective another rank's text may have come first.
                known = names if kind in COLLECTIVES else names[rank : rank + 1]
                assert any(name in text for name in known), (pair, kind, text)


@places
def test_what_does_not_change_the_elements_is_not_compared(hints):
    good = [(True, True)] * len(dtype_ranks.TWINS)
    assert run_ranks(dtype_ranks.agree, 2, hints=hints) == [good, good]


def test_the_debug_mode_names_records_on_both_sides():
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    for found in run_ranks(dtype_ranks.differ, 2, env=env):
        for pair, names in (NAMES | RECORDS).items():
            text = found[pair]["all_gather"]
            assert f"Tensor dtypes: {names[0]} vs {names[1]}" in text
