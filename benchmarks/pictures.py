# SPDX-License-Identifier: BSD-3-Clause
"""Draws the tables of docs/performance.md and docs/scale.md: `pictures.py [--check]`.

The pages' tables are the stored results, so that pictures and tables cannot disagree.
Each picture is drawn for light pages and for dark ones, into docs/images, with the date
and the machine that its section states.  It keeps a digest of its page's tables;
--check needs no matplotlib, and ends with 1 if one was drawn from other tables.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import KIB, MIB, REPOSITORY
from plots import label_y

PAGE = REPOSITORY / "docs" / "performance.md"
SCALE_PAGE = PAGE.with_name("scale.md")
FOLDER = REPOSITORY / "docs" / "images"
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB}
NEAR = "Two ranks, cores that share a cache"
FAR = "Two ranks, cores that do not"
FOUR = "Four ranks on the two cores"
MANY = "Many ranks"
FIRST = "First calls"
GLOO = "Beside gloo"
BEST = "best MPI"


@dataclass(frozen=True)
class Theme:
    """The colours of a picture; the first line of a panel is ours."""

    paper: str
    text: str
    grid: str
    lines: Sequence[str]
    # Of a heat map: faster, as fast, slower.
    heat: tuple[str, str, str]


THEMES = {
    "light": Theme(
        *("white", "black", "#d0d7de"),
        ("#0969da", "#bc4c00", "#8250df", "#2da44e", "#6e7781"),
        ("#2166ac", "#f7f7f7", "#b2182b"),
    ),
    "dark": Theme(
        *("none", "#e6edf3", "#3d444d"),
        ("#58a6ff", "#f0883e", "#bc8cff", "#3fb950", "#8b949e"),
        ("#1f6feb", "#21262d", "#da3633"),
    ),
}

Cells = Sequence[tuple[float, ...]]
# By name: y by x.  "gloo, far" has gloo's colour, and is dashed.
Lines = Mapping[str, Mapping[int, float]]


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
    """Those of a cell such as '1,210 / 2,110'; none for one that was not measured, and
    not a number for a side that was not, as in '12 / - / 14'."""
    found = re.findall(r"[\d.]+|(?<=/ )-", cell.replace(",", ""))
    return tuple(math.nan if n == "-" else float(n) for n in found)


def section_of(heading: str, page: Path = PAGE) -> str:
    """The text below a heading of the page, and all that follows."""
    _, found, section = page.read_text().partition(f"# {heading}\n")
    assert found, f"{page.name} has no section {heading!r}"
    return section


def table_below(heading: str, page: Path = PAGE) -> Table:
    """The first table of a section of the page."""
    lines = section_of(heading, page).splitlines()
    begins = itertools.dropwhile(lambda line: line[:1] != "|", lines)
    whole = itertools.takewhile(lambda line: line[:1] == "|", begins)
    cells = [cells_of(line) for line in whole]
    # A row that begins with a size or a number belongs to the rows above it.
    rows: list[tuple[str, Cells]] = []
    prefix = ""
    for name, *rest in cells[2:]:
        full = name
        if rows and re.match(r"\d+ (B|KiB|MiB)$", name):
            full = f"{prefix} {name}"
        else:
            prefix = re.sub(r" \d+ (B|KiB|MiB)$", "", name)
        rows.append((full, [numbers_of(each) for each in rest]))
    return Table(cells[0][1:], rows)


def measured(heading: str, page: Path = PAGE) -> str:
    """The date and the machine: what the section's line "Measured on ..." says."""
    found = re.search(
        r"^Measured on ([^.]+)\.", section_of(heading, page), re.MULTILINE
    )
    assert found, f"{page.name} does not say when {heading!r} was measured"
    return " ".join(found[1].split())


def bytes_of(text: str) -> int:
    """Of a column's title, such as '64 KiB'."""
    number, unit = text.split()
    return int(number) * UNITS[unit]


def digest(page: Path) -> str:
    """Of all its tables, and of what says when they were measured."""
    rows = [x for x in page.read_text().splitlines() if x.startswith(("|", "Measured"))]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


# Of one picture: draws into a matplotlib figure, with the colours of a theme, and
# returns when and where it was measured.
Draw = Callable[[Any, Theme], str]


def draw_lines(axes: Any, title: str, lines: Lines, theme: Theme) -> None:
    """Lines over sizes, ranks, hosts or clients, on logarithmic axes."""
    names = list(dict.fromkeys(name.split(",")[0] for name in lines))
    for name, points in lines.items():
        axes.plot(
            list(points),
            list(points.values()),
            color=theme.lines[names.index(name.split(",")[0])],
            linestyle="--" if "," in name else "-",
            marker="o",
            markersize=4,
            label=name,
        )
    axes.set(title=title, xscale="log", yscale="log")
    label_y(axes, [y for points in lines.values() for y in points.values()])
    axes.tick_params(which="minor", length=0)
    axes.grid(alpha=0.6)
    axes.legend(frameon=False, labelcolor=theme.text, fontsize=8)


def label_x(axes: Any, values: Sequence[int], texts: Sequence[str]) -> None:
    """Labels the measured values only."""
    axes.set_xticks(values, texts, minor=False)
    axes.set_xticks([], minor=True)


def label_sizes(axes: Any, columns: Sequence[str]) -> None:
    """As many sizes as have room."""
    shown = columns[:: max(1, len(columns) // 2 - (len(columns) < 7))]
    label_x(axes, [bytes_of(each) for each in shown], shown)


def pair_of_lines(
    table: Table, row: str, names: Sequence[str] = ("distlite", BEST)
) -> dict[str, dict[int, float]]:
    """Ours and the peer's numbers of a row, over sizes."""
    sizes = [bytes_of(column) for column in table.columns]
    cells = zip(sizes, table.row(row), strict=True)
    found = [(size, cell) for size, cell in cells if cell]
    return {name: {s: c[side] for s, c in found} for side, name in enumerate(names)}


OPERATIONS = {
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "send, recv, there and back": "send and recv, there and back",
}


def latency(figure: Any, theme: Theme) -> str:
    """Two ranks of one host, over the size of the array."""
    panels = figure.subplots(1, 4)
    near = table_below(NEAR)
    for axes, (row, title) in zip(panels, OPERATIONS.items(), strict=False):
        draw_lines(axes, title, pair_of_lines(near, row), theme)
        label_sizes(axes, near.columns)
    gloo = table_below(GLOO)
    sizes = [bytes_of(column) for column in gloo.columns]
    lines = {
        name: {s: cell[0] for s, cell in zip(sizes, cells, strict=True)}
        for name, cells in gloo.rows
    }
    draw_lines(panels[3], "all_reduce beside gloo", lines, theme)
    label_sizes(panels[3], gloo.columns)
    panels[0].set_ylabel("microseconds")
    return measured(NEAR)


def bandwidth(figure: Any, theme: Theme) -> str:
    """The same, as bytes of the array per second."""
    near = table_below(NEAR)
    rows = ("all_reduce", "broadcast", "all_gather_single", "sendrecv")
    panels = figure.subplots(1, len(rows))
    for axes, row in zip(panels, rows, strict=True):
        lines = {
            name: {size: size / us / 1e3 for size, us in points.items() if size >= 1024}
            for name, points in pair_of_lines(near, row).items()
        }
        draw_lines(axes, row, lines, theme)
        label_sizes(axes, near.columns[1:])
    panels[0].set_ylabel("GB/s")
    return measured(NEAR)


def near_far(figure: Any, theme: Theme) -> str:
    """What cores that do not share a cache cost."""
    panels = figure.subplots(1, 3)
    tables = {"": table_below(NEAR), ", far cores": table_below(FAR)}
    for axes, (row, title) in zip(panels, OPERATIONS.items(), strict=True):
        lines = {
            name + far: points
            for far, table in tables.items()
            for name, points in pair_of_lines(table, row).items()
        }
        draw_lines(axes, title, lines, theme)
        label_sizes(axes, tables[""].columns)
    panels[0].set_ylabel("microseconds")
    return measured(NEAR)


def first_calls(figure: Any, theme: Theme) -> str:
    """What the first calls of a process cost, beside those of a loop."""
    table = table_below(FIRST)
    rows = ("all_reduce", "broadcast", "all_gather_single")
    panels = figure.subplots(1, len(rows))
    for axes, row in zip(panels, rows, strict=True):
        lines = {
            name + which: points
            for which in ("", ", first calls")
            for name, points in pair_of_lines(table, row + which).items()
        }
        draw_lines(axes, row, lines, theme)
        label_sizes(axes, [size for size in table.columns if size != "16 KiB"])
    panels[0].set_ylabel("microseconds")
    return measured(FIRST)


def ratios(axes: Any, title: str, table: Table, theme: Theme) -> None:
    """Ours divided by the peer's number."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("ratios", theme.heat)
    found = [
        [cell[0] / cell[1] if cell else math.nan for cell in cells]
        for _, cells in table.rows
    ]
    logarithms = [[math.log2(value) for value in row] for row in found]
    axes.imshow(logarithms, cmap=colours, vmin=-2, vmax=2, aspect="auto")
    for y, row in enumerate(found):
        for x, value in enumerate(row):
            if not math.isnan(value):
                ink = "white" if abs(math.log2(value)) > 1.2 else theme.text
                text = f"{value:.2f}"
                axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
    axes.set_title(title)
    axes.set_xticks(range(len(table.columns)), table.columns)
    axes.set_yticks(range(len(table.rows)), [name for name, _ in table.rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def one_host(figure: Any, theme: Theme) -> str:
    """The time of each operation divided by that of the best MPI."""
    panels = figure.subplots(1, 3)
    titles = {
        NEAR: "2 ranks, cores that share a cache",
        FAR: "2 ranks, cores that do not",
        FOUR: "4 ranks on 2 cores",
    }
    for axes, (heading, title) in zip(panels, titles.items(), strict=True):
        ratios(axes, title, table_below(heading), theme)
    for axes in panels[1:]:
        axes.set_yticklabels([])
    return measured(NEAR)


def over_ranks(row: str, size: str) -> dict[str, dict[int, float]]:
    """Of 2 and 4 ranks, and of those of the table of many ranks."""
    found: dict[int, tuple[float, ...]] = {}
    for ranks, heading in ((2, NEAR), (4, FOUR)):
        table = table_below(heading)
        found[ranks] = table.row(row)[list(table.columns).index(size)]
    many = table_below(MANY)
    for column, cell in zip(many.columns, many.row(f"{row} {size}"), strict=True):
        found[int(column.split()[0])] = cell
    return {
        name: {ranks: cell[side] for ranks, cell in found.items() if cell}
        for side, name in enumerate(("distlite", BEST))
    }


def ranks(figure: Any, theme: Theme) -> str:
    """More and more ranks on two cores."""
    shown = [
        *(("all_reduce", "8 B"), ("all_reduce", "64 KiB")),
        *(("broadcast", "64 KiB"), ("all_to_all_single", "64 KiB")),
    ]
    panels = figure.subplots(1, len(shown))
    for axes, (row, size) in zip(panels, shown, strict=True):
        lines = over_ranks(row, size)
        draw_lines(axes, f"{row}, {size}", lines, theme)
        counts = list(lines["distlite"])
        label_x(axes, counts, [str(n) for n in counts])
        axes.set_xlabel("ranks")
    panels[0].set_ylabel("microseconds")
    return measured(MANY)


def many_ranks(figure: Any, theme: Theme) -> str:
    """8, 16 and 64 ranks on two cores, as ratios."""
    table = table_below(MANY)
    half = (len(table.rows) + 1) // 2
    parts = table.rows[:half], table.rows[half:]
    for axes, part in zip(figure.subplots(1, 2), parts, strict=True):
        ratios(axes, "", Table(table.columns, part), theme)
    return measured(MANY)


def hosts(figure: Any, theme: Theme) -> str:
    """More and more hosts of one rank each."""
    table = table_below("Many hosts")
    counts = [int(column.split()[0]) for column in table.columns]
    shown = ("barrier", "all_reduce 64 KiB", "broadcast 1 MiB", "all_to_all 64 KiB")
    panels = figure.subplots(1, len(shown))
    for axes, row in zip(panels, shown, strict=True):
        cells = list(zip(counts, table.row(row), strict=True))
        lines = {
            name: {count: cell[side] for count, cell in cells if cell}
            for side, name in enumerate(("distlite", "gloo"))
        }
        draw_lines(axes, row, lines, theme)
        label_x(axes, counts, [str(n) for n in counts])
        axes.set_xlabel("hosts")
    panels[0].set_ylabel("milliseconds")
    return measured("Many hosts")


def links(figure: Any, theme: Theme) -> str:
    """Hosts that a link with a rate and a delay connects."""
    table = table_below("Several hosts")
    names = ("distlite", "gloo", "Open MPI", "MPICH", None, "the link")
    titles = {
        "2 hosts, 0.1 ms:": "2 hosts, 0.1 ms each way",
        "2 hosts, 5 ms:": "2 hosts, 5 ms each way",
        "4 hosts, 1 ms:": "4 hosts, 1 ms each way",
    }
    panels = figure.subplots(1, len(titles))
    for axes, (prefix, title) in zip(panels, titles.items(), strict=True):
        rows = [
            (name.removeprefix(prefix).strip(), cells)
            for name, cells in table.rows
            if name.startswith(prefix)
        ]
        lines = {
            name: {bytes_of(s): c[side][0] for s, c in rows if c[side]}
            for side, name in enumerate(names)
            if name
        }
        draw_lines(axes, title, lines, theme)
        label_sizes(axes, [size for size, _ in rows])
    panels[0].set_ylabel("all_reduce, milliseconds")
    return measured("Several hosts")


def failures(figure: Any, theme: Theme) -> str:
    """From the death of a rank to the exceptions of the others."""
    table = table_below("Failures")
    counts = [int(ranks) for ranks, _ in table.rows]
    lines = {
        name: {int(ranks): cells[column][0] for ranks, cells in table.rows}
        for name, column in (("distlite", 0), ("gloo", 2))
    }
    axes = figure.subplots()
    draw_lines(axes, "A rank is killed", lines, theme)
    label_x(axes, counts, [str(n) for n in counts])
    axes.set(xlabel="ranks", ylabel="milliseconds")
    return measured("Failures")


def scale(figure: Any, theme: Theme) -> str:
    """Clients of a store, up to those of 12,288 hosts."""
    table = table_below("Measured", SCALE_PAGE)
    clients = [int(row.replace(",", "")) for row, _ in table.rows]
    panels = figure.subplots(1, 2)
    for side, (axes, title) in enumerate(zip(panels, ("init", "barrier"), strict=True)):
        lines = {
            name.replace(",", ""): {
                count: cells[column][side]
                for count, (_, cells) in zip(clients, table.rows, strict=True)
                if cells[column]
            }
            for column, name in enumerate(table.columns)
        }
        draw_lines(axes, title, lines, theme)
        label_x(axes, clients, [f"{n:,}" for n in clients])
        axes.set(xlabel="clients of one store", ylabel="seconds")
    return measured("Measured", SCALE_PAGE)


# By name: how it is drawn, and how large it is in inches.
PICTURES: dict[str, tuple[Draw, tuple[float, float]]] = {
    "latency": (latency, (14, 3.4)),
    "bandwidth": (bandwidth, (14, 3.4)),
    "first_calls": (first_calls, (12, 3.6)),
    "near_far": (near_far, (12, 3.6)),
    "one_host": (one_host, (15, 4.2)),
    "ranks": (ranks, (14, 3.4)),
    "many_ranks": (many_ranks, (11, 5.4)),
    "hosts": (hosts, (14, 3.4)),
    "links": (links, (12, 3.6)),
    "failures": (failures, (5.2, 3.4)),
    "scale": (scale, (11, 4)),
}


def page_of(name: str) -> Path:
    """Where its tables are."""
    return SCALE_PAGE if name == "scale" else PAGE


def paths() -> Iterator[tuple[str, str, Path]]:
    """Each picture's name, theme and file."""
    for name, theme in itertools.product(PICTURES, THEMES):
        yield name, theme, FOLDER / f"{name}-{theme}.svg"


def settings_of(theme: Theme) -> dict[str, Any]:
    """Of matplotlib; text stays text, and the same tables give the same bytes."""
    inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inks, theme.text),
        "axes.edgecolor": theme.grid,
        "grid.color": theme.grid,
        "axes.facecolor": "none",
        "figure.facecolor": theme.paper,
        "svg.fonttype": "none",
        "svg.hashsalt": "distlite",
        "font.size": 9,
    }


def draw_all() -> None:
    """Every picture."""
    import matplotlib
    from matplotlib.figure import Figure

    for name, theme, path in paths():
        draw, size = PICTURES[name]
        with matplotlib.rc_context(settings_of(THEMES[theme])):
            figure = Figure(figsize=size, layout="constrained")
            when = draw(figure, THEMES[theme])
            figure.supxlabel(f"measured on {when}", x=0.995, ha="right", fontsize=7)
            sign = {"Date": None, "Description": digest(page_of(name))}
            figure.savefig(path, metadata=sign)
        print(path.relative_to(REPOSITORY))


def outdated() -> list[str]:
    """The pictures that are missing, or were drawn from other tables."""
    signs = {path: digest(page_of(name)) for name, _, path in paths()}
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
