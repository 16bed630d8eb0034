# SPDX-License-Identifier: BSD-3-Clause
"""C files as the lint tests see them: comments blanked, functions told apart.

Leans on the layout that clang-format enforces (a function's name and both its braces
stand at the beginning of a line), so no parser is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

_TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_INCLUDE = re.compile(r"^\s*#\s*include\s*([\"<])([^\">]+)[\">]", re.MULTILINE)
_NAME = re.compile(r"^(\w+)\((.*)\)[^()]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[str, ...]
    line: int  # of its name
    body: str  # blanked, braces included

    @property
    def line_count(self) -> int:
        """From the line of its name to its closing brace."""
        return self.head_lines + self.body.count("\n") + 1

    head_lines: int = 1


@dataclass(frozen=True)
class Source:
    path: str  # from the root, with slashes
    text: str

    @property
    def code(self) -> str:
        """The text with comments, strings and characters blanked; lines stay."""
        return _TOKEN.sub(_blank, self.text)

    @property
    def includes(self) -> list[tuple[bool, str]]:
        """(is it in quotes, what), in order."""
        text = re.sub(r"/\*.*?\*/", _blank_comment, self.text, flags=re.DOTALL)
        return [(quote == '"', name) for quote, name in _INCLUDE.findall(text)]

    @property
    def functions(self) -> list[Function]:
        return list(_functions(self.code))


def _blank_comment(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _blank(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] in "\"'":
        return text[0] + " " * (len(text) - 2) + text[-1]
    return _blank_comment(match)


def _functions(code: str) -> list[Function]:
    lines = code.split("\n")
    found = []
    for start, line in enumerate(lines):
        if line.rstrip() != "{":
            continue
        head = start
        while head > 0 and not re.search(r"[;}\\]\s*$|^\s*(#.*)?$", lines[head - 1]):
            head -= 1
        end = next(i for i in range(start, len(lines)) if lines[i].rstrip() == "}")
        text = "\n".join(lines[head:start])
        match = _NAME.search(text)
        if match is None:
            continue
        name_line = head + text[: match.start()].count("\n")
        found.append(
            Function(
                name=match[1],
                parameters=tuple(split_commas(match[2])),
                line=name_line + 1,
                body="\n".join(lines[start : end + 1]),
                head_lines=start - name_line,
            )
        )
    return found


def split_commas(text: str) -> list[str]:
    """At the commas outside brackets; "void" and nothing are no parameters."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    parts = [" ".join(part.split()) for part in parts]
    return [] if parts in (["void"], [""]) else parts


@cache
def csrc_files() -> tuple[Source, ...]:
    paths = sorted(p for p in CSRC.rglob("*") if p.suffix in (".c", ".h"))
    return tuple(Source(p.relative_to(ROOT).as_posix(), p.read_text()) for p in paths)
