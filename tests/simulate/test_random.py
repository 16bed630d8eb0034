# SPDX-License-Identifier: BSD-3-Clause
"""Neighbouring seeds of the simulator, and streams of one seed, share nothing."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from c_build import ROOT, Builder, emulated

pytestmark = pytest.mark.skipif(bool(emulated()), reason="it is loaded into Python")

DRAWS = 64
STREAMS = [1, 2, 3, 4, 5, 6, 7, 10, 11, 19, 20, 21]


class Random(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint64)]


def load(folder: Path) -> ctypes.CDLL:
    library = folder / "random.so"
    builder = Builder(sanitize="")
    source = "tests/simulate/random.c"
    command = [*builder.compiler, *builder.flags, "-shared", "-fPIC", source]
    subprocess.run([*command, "-o", library, "-lm"], cwd=ROOT, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.sim_random_of.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    loaded.sim_random_of.restype = Random
    loaded.sim_random_next.restype = ctypes.c_uint64
    return loaded


def test_no_two_streams_share_a_number(tmp_path: Path) -> None:
    library = load(tmp_path)
    seen: dict[int, tuple[int, int]] = {}
    seeds = [*range(700), *range(1 << 20, (1 << 20) + 150), *range(2**64 - 150, 2**64)]
    for seed in seeds:
        for stream in STREAMS:
            made = library.sim_random_of(seed, stream)
            for _ in range(DRAWS):
                number = library.sim_random_next(ctypes.byref(made))
                assert seen.setdefault(number, (seed, stream)) == (seed, stream)
    assert len(seen) == len(seeds) * len(STREAMS) * DRAWS


def test_neighbours_differ_in_half_of_their_bits(tmp_path: Path) -> None:
    library = load(tmp_path)

    def first(seed: int, stream: int) -> int:
        made = library.sim_random_of(seed, stream)
        return library.sim_random_next(ctypes.byref(made))

    for seed in range(1000):
        for other in (first(seed + 1, 1), first(seed, 2)):
            assert 8 < (first(seed, 1) ^ other).bit_count() < 56
