# SPDX-License-Identifier: BSD-3-Clause
"""The picture of ``distlite doctor --plot``: links as matrices, and time by size."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
Pairs = dict[tuple[int, int], float]
# The most ranks for which a matrix has numbers in its cells, and every rank at its
# axes.
NUMBERS_UNTIL, LABELS_UNTIL = 12, 16
NOT_MEASURED, FAILED = "0.92", "tab:red"
COLOURS = {"same host": "tab:blue", "different hosts": "tab:orange"}


def check(file: str) -> None:
    """Raises ValueError if such a file cannot be drawn here; called before anything is
    measured."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    kinds = FigureCanvasBase.get_supported_filetypes()
    suffix = Path(file).suffix.removeprefix(".").lower()
    if suffix not in kinds:
        known = ", ".join(f".{kind}" for kind in sorted(kinds))
        raise ValueError(f"--plot {file}: the name has to end in one of {known}")


def draw(facts: Facts, file: str) -> None:
    """Writes the picture of what `Diagnosis.facts` returns; needs matplotlib."""
    from matplotlib.figure import Figure

    links = facts["links"]
    figure = Figure(figsize=(12, 10), layout="constrained")
    figure.suptitle(_title(facts))
    (connect, latency), (bandwidth, curve) = figure.subplots(2, 2)
    _draw_matrix(connect, facts, _numbers(links, "connect_ms"))
    connect.set(title="time to connect (ms)")
    for link in links:
        if link["error"] is not None:
            where = (link["to"], link["from"])
            connect.plot(*where, marker="x", color=FAILED, markersize=12, mew=3)
    _draw_matrix(latency, facts, _numbers(links, "latency_us"))
    latency.set(title="latency (microseconds)")
    _draw_matrix(bandwidth, facts, _numbers(links, "mb_per_s", 1e-3))
    bandwidth.set(title="bandwidth (GB/s)")
    _draw_times(curve, links)
    figure.savefig(file, dpi=120, bbox_inches="tight")


def _title(facts: Facts) -> str:
    counts = {"rank": facts["world_size"], "host": len(facts["hosts"])}
    what = " on ".join(_count(number, word) for word, number in counts.items())
    found = {"error": len(facts["errors"]), "warning": len(facts["warnings"])}
    text = ", ".join(_count(number, word) for word, number in found.items())
    return f"distlite doctor: {what}; {text}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _numbers(links: list[Facts], name: str, factor: float = 1.0) -> Pairs:
    return {
        (link["from"], link["to"]): link[name] * factor
        for link in links
        if link[name] is not None
    }


def _draw_matrix(axes: Any, facts: Facts, numbers: Pairs) -> None:
    from matplotlib.colors import LogNorm

    size = facts["world_size"]
    axes.set(xlabel="to rank", ylabel="from rank", facecolor=NOT_MEASURED)
    _label_ranks(axes, facts)
    if not numbers:
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
        _say_that_nothing_was_measured(axes)
        return
    cells = [
        [numbers.get((row, column), math.nan) for column in range(size)]
        for row in range(size)
    ]
    least, most = min(numbers.values()), max(numbers.values())
    middle = math.sqrt(least * most)
    # The scale is wider than the range of the numbers: if all are equal, none is an
    # extreme.
    scale = LogNorm(least / 1.2, most * 1.2)
    image = axes.imshow(cells, cmap="Blues", norm=scale)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8)
    marks = [least, middle, most] if most > 1.1 * least else [middle]
    bar.set_ticks(marks, labels=[_number(mark) for mark in marks])
    bar.minorticks_off()
    if size > NUMBERS_UNTIL:
        return
    for (row, column), number in numbers.items():
        colour = "white" if number > middle * 1.05 else "black"
        text = _number(number)
        axes.text(column, row, text, ha="center", va="center", color=colour)


def _number(value: float) -> str:
    """Returns a number with two digits, or with all digits before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _say_that_nothing_was_measured(axes: Any) -> None:
    text = axes.text(0.5, 0.5, "not measured", transform=axes.transAxes)
    text.set(ha="center", va="center", backgroundcolor=NOT_MEASURED)


def _label_ranks(axes: Any, facts: Facts) -> None:
    """Labels the axes with the ranks, and hosts with their names at their first ranks,
    with lines between them."""
    ranks = facts["ranks"]
    count = len(ranks)
    starts = [
        rank
        for rank in range(count)
        if rank == 0 or ranks[rank]["stack"] != ranks[rank - 1]["stack"]
    ]
    names = {start: ranks[start]["host"] for start in starts if len(starts) > 1}
    ticks = starts if count > LABELS_UNTIL and names else list(range(count))
    ticks = ticks[:: math.ceil(len(ticks) / LABELS_UNTIL)]
    below = [f"{rank}\n{names[rank]}" if rank in names else f"{rank}" for rank in ticks]
    beside = [
        f"{names[rank]}  {rank}" if rank in names else f"{rank}" for rank in ticks
    ]
    axes.set_xticks(ticks, below)
    axes.set_yticks(ticks, beside)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color="black", linewidth=1)
        axes.axvline(start - 0.5, color="black", linewidth=1)


def _draw_times(axes: Any, links: list[Facts]) -> None:
    """Draws the median of the pairs on one host and of all other pairs, between the
    extremes."""
    axes.set(
        title="time of one message: median, fastest to slowest pair",
        xlabel="size",
        ylabel="time (microseconds)",
    )
    measured = [
        link for link in links if link["from"] < link["to"] and link["times_us"]
    ]
    if not measured:
        axes.set(xticks=[], yticks=[])
        _say_that_nothing_was_measured(axes)
        return
    for name, colour in COLOURS.items():
        chosen = [
            dict(link["times_us"])
            for link in measured
            if link["same_host"] == (name == "same host")
        ]
        if not chosen:
            continue
        sizes = list(chosen[0])
        columns = [[times[size] for times in chosen] for size in sizes]
        label = f"{name}, {_count(len(chosen), 'pair')}"
        extremes = [list(map(min, columns)), list(map(max, columns))]
        axes.fill_between(sizes, *extremes, color=colour, alpha=0.2, linewidth=0)
        middle = list(map(statistics.median, columns))
        axes.plot(sizes, middle, color=colour, marker="o", label=label)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [_size(size) for size in sizes], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")


def _size(size: int) -> str:
    """ "8 B", "64 KiB"."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
