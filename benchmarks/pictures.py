# SPDX-License-Identifier: BSD-3-Clause
"""Draws the tables of docs/performance.md and docs/scale.md: `pictures.py [--check]`.

The pages' tables are the stored results, so that pictures and tables cannot disagree.
The pictures go into docs/images; that of the README is drawn for dark pages, too.  A
picture keeps a digest of its page's tables; --check needs no matplotlib, and ends with
1 if one was drawn from other tables.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import KIB, MIB, REPOSITORY

PAGE = REPOSITORY / "docs" / "performance.md"
SCALE_PAGE = PAGE.with_name("scale.md")
FOLDER = REPOSITORY / "docs" / "images"
THEMES = {
    "light": {"text": "black", "grid": "#d0d7de", "ours": "#0969da", "paper": "white"},
    "dark": {"text": "#e6edf3", "grid": "#3d444d", "ours": "#58a6ff", "paper": "none"},
}
PEERS = ("#bc4c00", "#8250df", "#2da44e", "#6e7781")
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB}
NEAR = "Two ranks, cores that share a cache"
FAR = "Two ranks, cores that do not"
FOUR = "Four ranks on the two cores"


Cells = Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Table:
    """The titles of its columns, and of each row its name and the others' numbers."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Cells]]

    def row(self, name: str) -> Cells:
        """The numbers of the row of that name."""
        return next(cells for each, cells in self.rows if each == name)


def cells_of(line: str) -> list[str]:
    """The texts of a row, without the marks of code and bold print."""
    return [re.sub(r"[*`]", "", cell).strip() for cell in line.strip()[1:-1].split("|")]


def numbers_of(cell: str) -> tuple[float, ...]:
    """Those of a cell such as '1,210 / 2,110'; none for one that was not measured."""
    return tuple(float(n) for n in re.findall(r"[\d.]+", cell.replace(",", "")))


def table_below(heading: str, page: Path = PAGE) -> Table:
    """The first table of a section of the page."""
    _, _, section = page.read_text().partition(f"# {heading}\n")
    begins = itertools.dropwhile(lambda line: line[:1] != "|", section.splitlines())
    lines = [*itertools.takewhile(lambda line: line[:1] == "|", begins)]
    cells = [cells_of(line) for line in lines]
    rows = [(name, [numbers_of(each) for each in rest]) for name, *rest in cells[2:]]
    return Table(cells[0][1:], rows)


def bytes_of(text: str) -> int:
    """Of a column's title, such as '64 KiB'."""
    number, unit = text.split()
    return int(number) * UNITS[unit]


def digest(page: Path) -> str:
    """Of all its tables."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


# Of one picture: draws into a matplotlib figure, with the colours of a theme.
Draw = Callable[[Any, dict[str, str]], None]


def draw_lines(
    axes: Any, title: str, lines: dict[str, dict[int, float]], theme: dict[str, str]
) -> None:
    """Times over sizes or ranks; the first line is ours."""
    for number, (name, points) in enumerate(lines.items()):
        colour = theme["ours"] if number == 0 else PEERS[number - 1]
        axes.plot(list(points), list(points.values()), "o-", color=colour, label=name)
    axes.set(title=title, xscale="log", yscale="log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(alpha=0.6)
    axes.legend(frameon=False, labelcolor=theme["text"])


def label_sizes(axes: Any, columns: Sequence[str]) -> None:
    """Every second size at the axis."""
    shown = columns[:: 2 if len(columns) > 4 else 1]
    axes.set_xticks([bytes_of(each) for each in shown], shown, minor=False)
    axes.set_xticks([], minor=True)


def pair_of_lines(table: Table, row: str, peer: str) -> dict[str, dict[int, float]]:
    """Ours and the peer's numbers of a row."""
    sizes = [bytes_of(column) for column in table.columns]
    cells = table.row(row)
    return {
        name: {s: cell[side] for s, cell in zip(sizes, cells, strict=True) if cell}
        for side, name in enumerate(("distlite", peer))
    }


def latency(figure: Any, theme: dict[str, str]) -> None:
    """Two ranks of one host, over the size of the array."""
    panels = figure.subplots(1, 4)
    near = table_below(NEAR)
    names = {
        "all_reduce": "all_reduce",
        "broadcast": "broadcast",
        "send, recv, there and back": "send and recv, there and back",
    }
    for axes, (row, title) in zip(panels, names.items(), strict=False):
        lines = pair_of_lines(near, row, "best of three MPIs")
        draw_lines(axes, title, lines, theme)
        label_sizes(axes, near.columns)
    older = table_below("Older libraries")
    sizes = [bytes_of(column) for column in older.columns]
    lines = {
        name: {s: cell[0] for s, cell in zip(sizes, cells, strict=True)}
        for name, cells in older.rows
    }
    title = "all_reduce, older MPIs and gloo"
    draw_lines(panels[3], title, lines, theme)
    label_sizes(panels[3], older.columns)
    panels[0].set_ylabel("microseconds")


def ratios(axes: Any, title: str, table: Table) -> None:
    """Ours divided by the peer's number; blue is faster, red slower."""
    found = [
        [cell[0] / cell[1] if cell else math.nan for cell in cells]
        for _, cells in table.rows
    ]
    colours = [[math.log2(value) for value in row] for row in found]
    axes.imshow(colours, cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto")
    for y, row in enumerate(found):
        for x, value in enumerate(row):
            if not math.isnan(value):
                ink = "white" if abs(math.log2(value)) > 1.2 else "black"
                text = f"{value:.2f}"
                axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
    axes.set_title(title)
    axes.set_xticks(range(len(table.columns)), table.columns)
    axes.set_yticks(range(len(table.rows)), [name for name, _ in table.rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def one_host(figure: Any, _: dict[str, str]) -> None:
    """The time of each operation divided by that of the best MPI."""
    panels = figure.subplots(1, 3)
    titles = {
        NEAR: "2 ranks, cores that share a cache",
        FAR: "2 ranks, cores that do not",
        FOUR: "4 ranks on 2 cores",
    }
    for axes, (heading, title) in zip(panels, titles.items(), strict=True):
        ratios(axes, title, table_below(heading))
    for axes in panels[1:]:
        axes.set_yticklabels([])


def many_ranks(figure: Any, _: dict[str, str]) -> None:
    """8, 16 and 64 ranks on two cores.  A row that begins with a size belongs to the
    operation of the rows above it."""
    table = table_below("Many ranks")
    rows: list[tuple[str, Cells]] = []
    operation = ""
    for name, cells in table.rows:
        operation = operation if name[0].isdigit() else name.split()[0]
        rows.append((f"{operation} {name}" if name[0].isdigit() else name, cells))
    half = (len(rows) + 1) // 2
    for axes, part in zip(
        figure.subplots(1, 2), (rows[:half], rows[half:]), strict=True
    ):
        ratios(axes, "", Table(table.columns, part))


def failures(figure: Any, theme: dict[str, str]) -> None:
    """From the death of a rank to the exceptions of the others."""
    table = table_below("Failures")
    lines = {
        name: {int(ranks): cells[column][0] for ranks, cells in table.rows}
        for name, column in (("distlite", 0), ("gloo", 2))
    }
    ranks = list(lines["distlite"])
    axes = figure.subplots()
    draw_lines(axes, "A rank is killed", lines, theme)
    axes.set_xticks(ranks, [str(n) for n in ranks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set(xlabel="ranks", ylabel="milliseconds")


def scale(figure: Any, theme: dict[str, str]) -> None:
    """Clients of a store, up to those of 12,288 hosts."""
    table = table_below("Measured", SCALE_PAGE)
    clients = [int(row.replace(",", "")) for row, _ in table.rows]
    for side, (axes, title) in enumerate(
        zip(figure.subplots(1, 2), ("init", "barrier"), strict=True)
    ):
        lines = {
            name: {
                count: cells[column][side]
                for count, (_, cells) in zip(clients, table.rows, strict=True)
                if cells[column]
            }
            for column, name in enumerate(table.columns)
        }
        draw_lines(axes, title, lines, theme)
        axes.set_xticks(clients, [f"{n:,}" for n in clients], minor=False)
        axes.set_xticks([], minor=True)
        axes.set(xlabel="clients", ylabel="seconds")


# By name and theme: how it is drawn, and how large it is in inches.
PICTURES: dict[tuple[str, str], tuple[Draw, tuple[float, float]]] = {
    ("latency", "light"): (latency, (14, 3.4)),
    ("latency", "dark"): (latency, (14, 3.4)),
    ("one_host", "light"): (one_host, (15, 4.2)),
    ("many_ranks", "light"): (many_ranks, (11, 5.4)),
    ("failures", "light"): (failures, (4.6, 3.4)),
    ("scale", "light"): (scale, (11, 4)),
}


def page_of(name: str) -> Path:
    """Where its tables are."""
    return SCALE_PAGE if name == "scale" else PAGE


def path_of(name: str, theme: str) -> Path:
    """Where a picture is."""
    return FOLDER / f"{name}-{theme}.svg"


def settings_of(theme: dict[str, str]) -> dict[str, Any]:
    """Of matplotlib; text stays text, and the same tables give the same bytes."""
    inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inks, theme["text"]),
        "axes.edgecolor": theme["grid"],
        "grid.color": theme["grid"],
        "axes.facecolor": "none",
        "figure.facecolor": theme["paper"],
        "svg.fonttype": "none",
        "svg.hashsalt": "distlite",
        "font.size": 9,
    }


def draw_all() -> None:
    """Every picture."""
    import matplotlib
    from matplotlib.figure import Figure

    for (name, theme), (draw, size) in PICTURES.items():
        with matplotlib.rc_context(settings_of(THEMES[theme])):
            figure = Figure(figsize=size, layout="constrained")
            draw(figure, THEMES[theme])
            path = path_of(name, theme)
            sign = {"Date": None, "Description": digest(page_of(name))}
            figure.savefig(path, metadata=sign)
        print(path.relative_to(REPOSITORY))


def outdated() -> list[str]:
    """The pictures that are missing, or were drawn from other tables."""
    signs = {path_of(*each): digest(page_of(each[0])) for each in PICTURES}
    return [
        path.name
        for path, sign in signs.items()
        if not path.exists() or sign not in path.read_text()
    ]


def main() -> int:
    """Exit code 1 if --check finds pictures that do not belong to the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="draw nothing")
    if parser.parse_args().check:
        old = outdated()
        print(f"drawn from other tables: {', '.join(old)}" if old else "up to date")
        return int(bool(old))
    draw_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
