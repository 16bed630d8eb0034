# SPDX-License-Identifier: BSD-3-Clause
"""docs/wire.md says what csrc/store/request.c and csrc/store/tcp/wire.h say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = (ROOT / "docs" / "wire.md").read_text()
HEADER = (ROOT / "csrc" / "store" / "tcp" / "wire.h").read_text()
REQUEST_HEADER = (ROOT / "csrc" / "store" / "request.h").read_text()
REQUEST_SOURCE = (ROOT / "csrc" / "store" / "request.c").read_text()

# How the document writes the fields of a layout.
FIELDS = {
    "DL_FIELD_U32": "u32",
    "DL_FIELD_I64": "i64",
    "DL_FIELD_KEY": "key",
    "DL_FIELD_EXPECTED": "blob expected",
    "DL_FIELD_VALUE": "blob",
    "DL_FIELD_COUNT": "u64 n",
    "DL_FIELD_KEYS": "n keys",
    "DL_FIELD_PAIRS": "n times key and blob",
}


def opcodes() -> dict[str, int]:
    found = re.findall(r"\bDL_OP_(\w+) = (\d+)", REQUEST_HEADER)
    return {name: int(number) for name, number in found if name != "COUNT"}


def layouts() -> dict[int, tuple[str, list[str]]]:
    numbers = opcodes()
    row = r'\[DL_OP_(\w+)\] =\s+\{(?:"\w+"|NULL),\s+"(\w+)",\s+\{([\w,\s]+)\}'
    found = re.findall(row, REQUEST_SOURCE)
    return {
        numbers[op]: (
            name,
            [field for field in re.split(r",\s+", fields) if field in FIELDS],
        )
        for op, name, fields in found
    }


def documented() -> dict[int, tuple[str, str]]:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]*)\|", DOCUMENT, re.MULTILINE)
    return {int(number): (name, fields.strip()) for number, name, fields in rows}


def test_every_opcode_is_documented_with_its_fields() -> None:
    assert layouts().keys() == set(opcodes().values())
    assert documented().keys() == layouts().keys()
    for number, (name, fields) in layouts().items():
        told_name, told_fields = documented()[number]
        assert told_name == name
        told = told_fields.split(", ") if told_fields else []
        assert len(told) == len(fields), name
        for said, field in zip(told, fields, strict=True):
            assert said.startswith(FIELDS[field]), (name, said)


def test_limits_and_constants_are_documented() -> None:
    for macro, text in {
        "DL_WIRE_CHECKED 0x80": "`0x80`",
        "DL_WIRE_MAGIC 0x3C85F7CEu": "`0x3C85F7CE`",
        'DL_WIRE_HELLO "distlite/2"': "`distlite/2`",
        "DL_WIRE_LEAVE 0xC2": "`0xC2`",
        "DL_WIRE_KEY_LIMIT 8192u": "| key | 8192 bytes |",
        "DL_WIRE_VALUE_LIMIT (8u << 20)": f"| blob | {8 << 20} bytes |",
        "DL_WIRE_KEYS_LIMIT 131072u": "| n | 131072 |",
    }.items():
        assert f"#define {macro}\n" in HEADER
        assert text in DOCUMENT
