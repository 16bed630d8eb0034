# SPDX-License-Identifier: BSD-3-Clause
"""Hostile bytes for the codec of safe mode: `safe_codec.py --seconds 60 --seed 1`.

The codec is half C and half Python, so this is no C target: it changes encoded values
as replay.c does, and decodes them.  Bytes that are taken must be a value that can be
encoded again; others are Malformed, and nothing takes long.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distlite import register_safe_type
from distlite.objects.safe_codec import Malformed, Unsafe, decode, encode

LARGEST = 64 << 10
# Of one input: what takes longer grows faster than the input.
PATIENCE = 5
MODULUS = sys.hash_info.modulus
NUMBERS = [0, 1, 127, 128, 255, 4096, 1 << 31, (1 << 62) + 1, (1 << 64) - 1]


@register_safe_type
@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


def values() -> Iterator[Any]:
    """What is changed: each kind of value, and those of whose kind much can be made."""
    zone = datetime.timezone(datetime.timedelta(minutes=90))
    yield [
        None,
        True,
        -5,
        1 << 70,
        1.5,
        2j,
        "text",
        "\udc80",
        b"bytes",
        bytearray(b"x"),
    ]
    yield {
        datetime.date(2020, 2, 29): datetime.datetime(2021, 1, 2, 3, 4, 5, 6, zone),
        (1, ("a", 2.5)): datetime.timedelta(-1, 5, 7),
        frozenset([1, frozenset([2])]): {1, 2, "three"},
        Pair(1, (2,)): [Pair([], {})],
    }
    yield [np.arange(6.0).reshape(2, 3), np.array(5, "u2"), np.float32(1.5)]
    yield np.zeros(2, [("a", "<i4"), ("b", "<f8", (2, 2))])
    yield {number * MODULUS + number % 3: None for number in range(40)}
    yield [[[[[[[[{"deep": ()}]]]]]]]]
    yield {7j, 7.5, (7.5, 1 << 2000), 1 << 2000}


def changed(data: bytearray, others: list[bytes], chance: random.Random) -> bytearray:
    """`data` with one thing changed."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(6)
    if kind == 0:
        other = chance.choice(others)
        begin = chance.randrange(len(other))
        data[at:at] = other[begin : begin + chance.randrange(1, 64)]
    elif kind == 1:
        del data[at : at + chance.randrange(1, 16)]
    elif kind == 2:
        number = chance.choice(NUMBERS)
        while number > 127:
            data.insert(at, number & 127 | 128)
            number, at = number >> 7, at + 1
        data.insert(at, number)
    elif kind == 3 and at < len(data):
        data[at] = chance.choice(b"NTFifsbltdcBopSZDaAgwmh\x00\xff")
    elif kind == 4 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    else:
        piece = data[at : at + chance.randrange(1, 32)]
        data[at:at] = piece * chance.randrange(1, 200)
    return data[:LARGEST]


def check(data: bytes) -> None:
    """Decodes the bytes, with two buffers beside them."""
    beside = [np.zeros(size, np.uint8) for size in (48, 8)]
    for buffers in ([], beside):
        try:
            value = decode(data, buffers)
        except (Malformed, MemoryError):
            continue
        try:
            encode(value, 1 << 62)
        except Unsafe as error:
            raise AssertionError(f"{data!r} became what cannot be sent") from error


def fuzz(seconds: float, seed: int) -> int:
    """Returns how many inputs were tried."""
    chance = random.Random(seed)
    inputs = [bytes(encode(value, 1 << 62)[0]) for value in values()]
    end = time.monotonic() + seconds
    runs = 0
    kept = os.environ.get("FUZZ_INPUT")
    while time.monotonic() < end:
        data = bytearray(chance.choice(inputs))
        for _ in range(chance.randrange(1, 5)):
            data = changed(data, inputs, chance)
        if kept:
            Path(kept).write_bytes(data)
        signal.alarm(PATIENCE)
        check(bytes(data))
        runs += 1
    signal.alarm(0)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"{fuzz(options.seconds, options.seed)} runs")


if __name__ == "__main__":
    main()
