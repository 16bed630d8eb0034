# SPDX-License-Identifier: BSD-3-Clause
"""The plots of the benchmarks, if matplotlib is installed: lines in panels."""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from measure import RESULTS, size_text

PLOT_COLUMNS = 4
LABELS_PER_AXIS = 7
NEEDED = "needs matplotlib: pip install matplotlib"

# By title and name of a line: y by x.
Panels = Mapping[str, Mapping[str, Mapping[int, float]]]


def has_matplotlib() -> bool:
    """Whether anything can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """--plot FILE; by default the picture goes into the results folder."""
    parser.add_argument(
        "--plot",
        type=_file,
        metavar="FILE",
        default=RESULTS / f"{name}.png",
        help=f"the picture, drawn with matplotlib [results/{name}.png]",
    )


def _file(text: str) -> Path:
    # Before anything is measured.
    if not has_matplotlib():
        raise argparse.ArgumentTypeError(NEEDED)
    return Path(text)


def draw(
    path: Path,
    panels: Panels,
    *,
    x_label: str,
    y_label: str,
    x_text: Callable[[int], str] = str,
) -> None:
    """One panel per title, one line per name, which has one colour in all of them; both
    axes are logarithmic, and `x_text` labels the measured x.  Says where the picture
    is, or that there is none."""
    panels = {title: lines for title, lines in panels.items() if any(lines.values())}
    if not panels:
        return
    if not has_matplotlib():
        print(f"no plot: it {NEEDED}")
        return
    from matplotlib.figure import Figure

    columns = min(len(panels), PLOT_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.5 * columns, 3.5 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    colours = {name: f"C{number}" for number, name in enumerate(names)}
    handles = {}
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        for name, points in lines.items():
            found = list(points), list(points.values())
            (handles[name],) = axes.plot(*found, marker="o", color=colours[name])
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.set(xscale="log", yscale="log")
        label_x(axes, {x for points in lines.values() for x in points}, x_text)
        label_y(axes, [y for points in lines.values() for y in points.values()])
        axes.grid(alpha=0.3)
    figure.legend(
        handles.values(), handles, loc="outside upper center", ncols=len(handles)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"plot: {path}")


def draw_sizes(path: Path, panels: Panels, *, y_label: str = "microseconds") -> None:
    """Draws lines over sizes in bytes."""
    draw(path, panels, x_label="size", y_label=y_label, x_text=size_text)


def label_x(axes: Any, values: Collection[int], text: Callable[[int], str]) -> None:
    """Labels the measured values, except those that are too close to a larger one."""
    least = math.log(max(values) / min(values)) / LABELS_PER_AXIS
    chosen: list[int] = []
    for value in sorted(values, reverse=True):
        if not chosen or math.log(chosen[-1] / value) >= least:
            chosen.append(value)
    axes.set_xticks(chosen, [text(value) for value in chosen])
    axes.set_xticks([], minor=True)


def label_y(axes: Any, values: Collection[float]) -> None:
    """Labels powers of ten, and values between them if the range is small."""
    from matplotlib.ticker import LogLocator

    decades = math.log10(max(values) / min(values))
    steps = (1,) if decades > 2.5 else (1, 2, 5) if decades > 0.6 else range(1, 10)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_minor_formatter("")
