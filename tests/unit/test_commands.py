# SPDX-License-Identifier: BSD-3-Clause
"""What all subcommands of `distlite` have in common."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import distlite
from distlite.launch.arguments import COMMANDS
from distlite.launch.command import main
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
        # The text begins beside the option, or on the next line.
        assert re.match(r"  (-[a-z], )?--[a-z-]+( \S+)?(  +\S|$)", head), head


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_each_has_the_version(words, capsys):
    expected = f"distlite {distlite.__version__}\n"
    assert said(capsys, *words, "--version") == (0, expected, "")


def test_the_package_can_be_run_as_the_command(capsys):
    command = [sys.executable, "-m", "distlite", "ps", "--help"]
    assert subprocess.check_output(command, text=True) == said(capsys, *command[3:])[1]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_what_is_no_option_is_refused_with_the_usage(words, capsys):
    script = [] if words and words[0] != "run" else [__file__]
    code, out, err = said(capsys, *words, "--nonsense", *script)
    assert (code, out) == (2, "")
    name = " ".join(["distlite", *words])
    usage, error = err.splitlines()
    assert usage.startswith(f"usage: {name} [options]")
    assert error == f"{name}: error: unrecognized arguments: --nonsense"


def test_the_help_lists_all_commands(capsys):
    listed = re.findall(r"^  distlite (\w+)  ", said(capsys, "--help")[1], re.M)
    assert listed == list(COMMANDS)


def test_options_of_tools_are_written_as_those_of_run():
    parse = doctor._parser().parse_args
    for words in (["-n", "3"], ["--nproc-per-node=3"], ["--nproc_per_node", "3"]):
        assert parse(words).nproc_per_node == 3
    # Only names of options: values keep what they have.
    assert trace._parser().parse_args(["--output=a_b", "c_d"]).output == "a_b"
    assert trace._parser().parse_args(["--output=a_b", "c_d"]).dumps == ["c_d"]
    assert "[2]" in doctor._parser().format_help()
    assert "[30.0]" in doctor._parser().format_help()
    assert "[trace.json]" in trace._parser().format_help()
