"""The timeline of a run as SVG: acknowledged and read per second, lag per link, under the faults that were active."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Final

from linkflap.harness.machine import cache

if not cache.home_is_writable():  # matplotlib would look through all fonts each time, and say so
    os.environ.setdefault("MPLCONFIGDIR", str(cache.folder() / "matplotlib"))

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from linkflap.harness.report.series import Floats, Series, Window

_COLORS: Final = ("#2563a8", "#c2591a", "#3f7d4e", "#7b4f9d", "#8a6d1d", "#4b7f8c", "#a43d5a", "#1f4e5f", "#4a5560")
_INK, _FAINT, _FAULT, _MARK = "#3a4149", "#d9dde2", "#d9a441", "#a33030"
_WIDTH: Final = 11.5
_MOST_LANES: Final = 8


def svg(series: Series) -> str:
    """One SVG element, without XML prolog, ready to stand in a page. The same series gives the same bytes."""
    buffer = io.StringIO()
    with matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "linkflap",
            "font.family": "sans-serif",
            "font.sans-serif": ["Inter", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"],
            "font.size": 9.0,
            "text.parse_math": False,
            "axes.edgecolor": _FAINT,
            "axes.labelcolor": _INK,
            "text.color": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
        }
    ):
        figure = _figure(series)
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _figure(series: Series) -> Figure:
    panels = [("acknowledged / s", series.acknowledged), ("read / s", series.read), ("lag, offsets", series.lag)]
    panels = [(title, lines) for title, lines in panels if lines] or panels[:1]
    lanes = _lanes(series)
    used = max(lanes.values(), default=-1) + 1
    heights = [0.34 * max(1, used) + 0.1, *(1.6 for _ in panels)]
    gap, below = 0.14, 0.5
    total = sum(heights) + gap * len(panels) + below + 0.05
    # Margins by hand: the layout engine's solver differs in the last bits from run to run, and with it the ids in the file.
    figure = Figure(figsize=(_WIDTH, total))
    axes = figure.subplots(
        len(heights),
        1,
        sharex=True,
        squeeze=False,
        height_ratios=heights,
        gridspec_kw={
            "left": 0.68 / _WIDTH,
            "right": 1 - 0.12 / _WIDTH,
            "bottom": below / total,
            "top": 1 - 0.05 / total,
            "hspace": gap * len(heights) / sum(heights),
        },
    )[:, 0]
    _faults(axes[0], series, lanes, used)
    clusters = sorted({*series.acknowledged, *series.read})
    colors = dict(zip(clusters, _COLORS, strict=False))
    for axis, (title, lines) in zip(axes[1:], panels, strict=True):
        _panel(axis, series, title, lines, colors)
    axes[-1].set_xlabel("seconds of workload")
    axes[-1].set_xlim(0.0, max(series.length, 0.1))
    return figure


def _lanes(series: Series) -> dict[str, int]:
    """Lane of each window, so that labels do not overlap; a lane is taken until its bar and its label have ended."""
    free: list[float] = []
    lanes: dict[str, int] = {}
    for window in series.windows:
        written = window.start + len(_label(window)) * series.length / 150
        lane = next((n for n, until in enumerate(free) if until <= window.start), len(free))
        lane = min(lane, _MOST_LANES - 1)
        if lane == len(free):
            free.append(0.0)
        free[lane] = max(window.start if window.lasting else window.end, written) + series.length / 100
        lanes[window.id] = lane
    return lanes


def _label(window: Window) -> str:
    return f"{window.fault} {window.target}" + ("" if window.bit is not False else " (did not bite)")


def _faults(axis: Axes, series: Series, lanes: Mapping[str, int], used: int) -> None:
    for window in series.windows:
        lane = lanes[window.id]
        width = series.length / 100 if window.lasting else max(window.end - window.start, series.length / 400)
        color = _FAULT if window.bit is not False else _FAINT
        axis.barh(lane, width, left=window.start, height=0.72, color=color, alpha=0.55, linewidth=0)
        late = window.start > 0.8 * series.length  # its label would leave the picture on the right
        axis.annotate(
            _label(window),
            (window.start if late is window.lasting else window.start + width, lane),
            xytext=(-4 if late else 4, 0),
            textcoords="offset points",
            ha="right" if late else "left",
            va="center",
            fontsize=8,
        )
    axis.set_ylim(max(1, used) - 0.4, -0.6)
    axis.set_yticks([])
    axis.set_ylabel("faults")
    axis.yaxis.set_label_coords(-0.045, 0.5)
    axis.tick_params(bottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _vertical(axis: Axes, series: Series) -> None:
    for mark in series.marks:
        axis.axvline(mark.at, color=_MARK, linewidth=1.1, linestyle=(0, (4, 2)))


def _panel(axis: Axes, series: Series, title: str, lines: Mapping[str, Floats], colors: Mapping[str, str]) -> None:
    for window in series.windows:
        if not window.lasting:  # a shade to the end of the run would say nothing
            axis.axvspan(window.start, window.end, color=_FAULT, alpha=0.13 if window.bit is not False else 0.05, linewidth=0)
    _vertical(axis, series)
    for index, (name, values) in enumerate(lines.items()):
        color = colors.get(name, _COLORS[-1 - index % len(_COLORS)])
        axis.plot(series.at, values, color=color, linewidth=1.3, label=name, solid_joinstyle="round")
        if name in colors:
            axis.fill_between(series.at, values, color=color, alpha=0.10, linewidth=0)
    if not lines:
        axis.text(0.5, 0.5, "nothing was recorded", transform=axis.transAxes, ha="center", va="center", color="#8a929b")
    highest = max((float(np.nanmax(v)) for v in lines.values() if not np.all(np.isnan(v))), default=0.0)
    axis.set_ylim(0.0, highest * 1.12 or 1.0)
    axis.set_ylabel(title)
    axis.yaxis.set_label_coords(-0.045, 0.5)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axis.grid(axis="y", color=_FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    if lines:
        axis.legend(loc="upper left", ncols=len(lines), frameon=False, fontsize=8, handlelength=1.4, borderaxespad=0.2)
