# SPDX-License-Identifier: BSD-3-Clause
"""What all subcommands of `distlite` have in common."""

from __future__ import annotations

import re

import pytest

import distlite
from distlite.launch import table
from distlite.launch.command import COMMANDS, main
from distlite.tools import doctor, trace

# The command itself among them, which runs a script.
WORDS = [[], *([name] for name in COMMANDS)]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        main(words)
    out, err = capsys.readouterr()
    return end.value.code, out, err


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_has_one_style(words, capsys):
    code, text, _ = said(capsys, *words, "--help")
    assert code == 0
    assert said(capsys, *words, "-h") == (0, text, "")
    name = " ".join(["distlite", *words])
    first, empty, description, *_ = lines = text.splitlines()
    assert first.startswith(f"usage: {name} [options]")
    assert empty == ""
    assert re.match(r"[A-Z].*[^ ]$", description)
    assert max(map(len, lines)) < 80
    heads = [line for line in lines if line.startswith("  -")]
    assert [head for head in heads if head.startswith("  -h, --help  ")]
    assert [head for head in heads if head.startswith("  --version  ")]
    for head in heads:
        # The text begins in its column, or on the next line.
        option, text = head[: table.HELP_COLUMN], head[table.HELP_COLUMN :]
        if option[-1] != " " or not text:
            option, text = head, ""
        assert re.fullmatch(r"  (-[a-z], )?--[a-z-]+( \S+)? *", option), head
        assert not text.startswith(" "), head


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_each_has_the_version(words, capsys):
    expected = f"distlite {distlite.__version__}\n"
    assert said(capsys, *words, "--version") == (0, expected, "")


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_what_is_no_option_is_refused_with_the_usage(words, capsys):
    code, out, err = said(capsys, *words, "--nonsense")
    assert (code, out) == (2, "")
    name = " ".join(["distlite", *words])
    usage, error = err.splitlines()
    assert usage.startswith(f"usage: {name} [options]")
    assert error == f"{name}: error: unrecognized arguments: --nonsense"


def test_the_help_lists_all_commands(capsys):
    assert list(table.COMMANDS) == list(COMMANDS)
    listed = re.findall(r"^  distlite (\w+)  ", said(capsys, "--help")[1], re.M)
    assert listed == list(COMMANDS)


def test_options_of_tools_are_written_as_those_of_run():
    parse = doctor._parser().words
    for words in (["-n", "3"], ["--nproc-per-node=3"], ["--nproc_per_node", "3"]):
        assert parse(words).nproc_per_node == 3
    # Only names of options: values keep what they have.
    assert trace._parser().words(["--output=a_b", "c_d"]).output == "a_b"
    assert trace._parser().words(["--output=a_b", "c_d"]).dumps == ["c_d"]
    assert "[2]" in doctor._parser().format_help()
    assert "[30]" in doctor._parser().format_help()
    assert "[trace.json]" in trace._parser().format_help()
