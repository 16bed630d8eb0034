# SPDX-License-Identifier: BSD-3-Clause
"""What is drawn with matplotlib, which is large: it is installed beside torch."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest
from launching import launch

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
