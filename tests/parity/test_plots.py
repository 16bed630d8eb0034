# SPDX-License-Identifier: BSD-3-Clause
"""What is drawn with matplotlib, which is large: it is installed beside torch."""

from __future__ import annotations

import argparse
import importlib
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

from distlite.tools import plot

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
BENCHMARKS = EXAMPLES.with_name("benchmarks")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_loss_curve(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    file = tmp_path / "loss.png"
    words = ["--nproc-per-node", 2, EXAMPLES / "train_digits.py", "--plot", file]
    result = launch(words, timeout=100)
    assert result.returncode == 0, result.stderr
    assert f"[rank0]: loss curve: {file}" in result.stdout.splitlines()
    assert file.read_bytes().startswith(PNG)


def test_the_doctor_draws_its_links(tmp_path):
    file = tmp_path / "links.png"
    command = [sys.executable, "-m", "distlite.tools.doctor", "--plot", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Links" in done.stdout and done.stderr == ""
    assert file.read_bytes().startswith(PNG)


def test_the_doctor_knows_what_it_can_draw(tmp_path):
    plot.check("links.png")
    plot.check("LINKS.SVG")
    for name in ("links", "links.txt"):
        with pytest.raises(ValueError, match=rf"{name}: the name .* in one of .*\.png"):
            plot.check(name)


def facts_of(ranks: int, hosts: int, is_measured: bool, refused: set) -> dict:
    """What the doctor could have found, with rank-dependent numbers."""
    host_of = [rank * hosts // ranks for rank in range(ranks)]
    links = []
    for first, second in itertools.permutations(range(ranks), 2):
        is_refused = (first, second) in refused
        latency = 2.0 + first + second
        links.append(
            {
                "from": first,
                "to": second,
                "same_host": host_of[first] == host_of[second],
                "connect_ms": None if is_refused else 0.1 * latency,
                "error": "refused" if is_refused else None,
                "latency_us": latency if is_measured else None,
                "mb_per_s": 1e3 * latency if is_measured else None,
                "times_us": [[8, latency], [1 << 20, 100.0]] if is_measured else [],
            }
        )
    return {
        "world_size": ranks,
        "hosts": [f"node{host}" for host in range(hosts)],
        "ranks": [{"host": f"node{host}", "stack": str(host)} for host in host_of],
        "links": links,
        "errors": ["refused"] * len(refused),
        "warnings": [],
    }


def text_of(facts: dict, file: Path) -> str:
    """Of a picture whose text is text."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot.draw(facts, str(file))
    return file.read_text()


def test_a_picture_of_two_hosts(tmp_path):
    text = text_of(facts_of(4, 2, True, {(0, 3)}), tmp_path / "links.svg")
    assert "distlite doctor: 4 ranks on 2 hosts; 1 error, 0 warnings" in text
    for shown in ("latency (microseconds)", "same host, 2 pairs", "1 MiB", "node1"):
        assert f">{shown}" in text
    assert ">different hosts, 4 pairs<" in text and ">not measured<" not in text
    assert text.count(">node1  2<") == 3  # one in each matrix


def test_a_picture_without_a_group(tmp_path):
    text = text_of(facts_of(3, 1, False, {(0, 2)}), tmp_path / "links.svg")
    assert text.count(">not measured<") == 3 and "same host" not in text


@pytest.mark.parametrize("hosts", [1, 5])
def test_a_picture_of_many_ranks(tmp_path, hosts):
    """As many labels as there is room for, and no numbers in the cells."""
    text = text_of(facts_of(40, hosts, True, set()), tmp_path / "links.svg")
    assert "distlite doctor: 40 ranks on " in text
    assert ">38<" not in text and text.count(">node4<") == (3 if hosts > 1 else 0)


def test_a_picture_of_one_rank(tmp_path):
    text = text_of(facts_of(1, 1, False, set()), tmp_path / "links.svg")
    assert "1 rank on 1 host;" in text and text.count(">not measured<") == 4


@pytest.fixture
def plots(monkeypatch):
    """The benchmarks' own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("plots")


def test_the_lines_of_a_benchmark(plots, tmp_path, capsys):
    import matplotlib

    file = tmp_path / "new" / "lines.svg"
    sizes = {8: 0.5, 1 << 10: 2.0, 1 << 11: 3.0, 1 << 20: 200_000.0}
    panels = {
        "all_reduce": {"distlite": sizes, "openmpi": {8: 1.0}},
        "barrier": {"distlite": {}},
    }
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plots.draw_sizes(file, panels)
    assert capsys.readouterr().out == f"plot: {file}\n"
    text = file.read_text()
    for shown in ("8 B", "2 KiB", "1 MiB", "100,000", "microseconds", "openmpi"):
        assert f">{shown}<" in text
    assert ">1 KiB<" not in text  # too close to the next one
    assert ">barrier<" not in text  # nothing of it was measured
    plots.draw_sizes(file, {})
    assert capsys.readouterr().out == ""


def test_a_benchmark_without_matplotlib(plots, tmp_path, capsys, monkeypatch):
    """The default is to draw what can be drawn, but a file that was asked for is
    refused before anything is measured."""
    monkeypatch.setattr(plots, "has_matplotlib", lambda: False)
    plots.draw_sizes(tmp_path / "lines.png", {"all_reduce": {"distlite": {8: 1.0}}})
    assert capsys.readouterr().out == (
        "no plot: it needs matplotlib: pip install matplotlib\n"
    )
    parser = argparse.ArgumentParser()
    plots.add_option(parser, "collectives")
    assert parser.parse_args([]).plot.name == "collectives.png"
    with pytest.raises(SystemExit):
        parser.parse_args(["--plot", "lines.png"])
    assert "--plot: needs matplotlib: pip install" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
