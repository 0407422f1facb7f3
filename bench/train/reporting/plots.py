# SPDX-License-Identifier: Apache-2.0
"""The plots of the document, as SVG and PNG; the same results give the same files."""

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import (FuncFormatter, LogLocator, MaxNLocator, NullLocator,  # noqa: E402
                               PercentFormatter)

from .markdown import number  # noqa: E402
from .results import CLIENTS, known  # noqa: E402

# Okabe and Ito's colours, which those tell apart, too, who do not see red or green; one more of Tol's.
# Each client has the same everywhere, and a mark, so that print without colours does.
COLOURS = {
    "s3fs": "#d55e00", "s3fs_on_device": "#e69f00", "s3connector": "#cc79a7", "rclone": "#8c8c8c",
    "webdataset": "#882255", "mount": "#56b4e9", "plan": "#0072b2", "gdd": "#009e73", "local": "#000000",
}
MARKS = dict(zip(CLIENTS, "ovs^DP*X."))
GREY = "#606060"

STYLE = {
    "svg.hashsalt": "os2g", "svg.fonttype": "none", "figure.dpi": 110, "figure.figsize": (7.6, 4.2),
    "figure.constrained_layout.use": True, "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"], "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#e4e4e4", "legend.frameon": False,
}


def save(figure, directory, name):
    directory.mkdir(exist_ok=True)
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None, "Creator": None})
    figure.savefig(directory / f"{name}.png", metadata={"Software": None})
    pyplot.close(figure)


GROUPED = FuncFormatter(lambda value, _: f"{value:,g}")  # 2,500 and 0.5


def few(axis):
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(GROUPED)


def rows(axes, labels, ends):
    """Labels of horizontal bars, the first on top, and the figure at the end of each."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    for place, end in enumerate(ends):
        axes.text(end, place, f" {number(end)}", va="center", fontsize=9, color="#404040")
    axes.set_xlim(0, 1.15 * (max(ends) or 1))
    few(axes.xaxis)


def stacked(axes, labels, host, device, colours):
    """Host's CPU in full colour, the device's behind it, hatched."""
    places = range(len(labels))
    axes.barh(places, host, 0.66, color=colours)
    axes.barh(places, device, 0.66, left=host, color=[tint(c) for c in colours], hatch="////",
              edgecolor=colours, linewidth=0)
    rows(axes, labels, [a + b for a, b in zip(host, device)])
    axes.set_xlabel("CPU s for 1,000 samples")
    axes.legend(handles=[Patch(color=GREY, label="host"),
                         Patch(facecolor=tint(GREY), hatch="////", edgecolor=GREY, linewidth=0,
                               label="device")],
                loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def tint(colour):
    return [0.3 * part + 0.7 for part in to_rgb(colour)]


def cpu_of(section, found):
    return [[section.per_thousand(row, side) or 0 for row in found]
            for side in ("host_cpu_s", "device_cpu_s")]


def utilisation(section):
    clients = known(section.result)
    if not clients:
        return None
    figure, axes = pyplot.subplots()
    for name, points in clients:
        points = sorted((1e3 * p["step_s"], p["utilisation"]) for p in points if p["step_s"] > 0)
        axes.plot(*zip(*points), color=COLOURS[name], marker=MARKS[name], markersize=5, linewidth=1.6,
                  linestyle="--" if name == "local" else "-", label=CLIENTS[name])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(GROUPED)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0, symbol=" %"))
    axes.axhline(0.95, color="#808080", linewidth=0.8, linestyle=":")
    axes.set_xlabel("time of a step, ms")
    axes.set_ylabel("utilisation of the accelerator")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def cpu(section):
    clients = known(section.result)
    if not clients:
        return None
    figure, axes = pyplot.subplots(figsize=(7.6, 1.1 + 0.36 * len(clients)))
    stacked(axes, [CLIENTS[name] for name, _ in clients], *cpu_of(section, [row for _, row in clients]),
            [COLOURS[name] for name, _ in clients])
    return figure


def ablation(section):
    found = [row for row in section.result if row]
    if not found:
        return None
    labels = [row["idea"] for row in found]
    rates = [row.get("rate") or 0 for row in found]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7.6, 1.2 + 0.4 * len(found)))
    left.barh(range(len(found)), rates, 0.66, color=GREY)
    rows(left, labels, rates)
    left.set_xlabel("samples/s")
    stacked(right, [""] * len(found), *cpu_of(section, found), [GREY] * len(found))
    return figure


def device_curve(section):
    parts = sorted((part for part, found in section.result.items() if known(found)), key=float)
    if not parts:
        return None
    figure, axes = pyplot.subplots(figsize=(7.6, 3.6))
    for name in CLIENTS:
        points = [(float(part), section.result[part][name]["rate"]) for part in parts
                  if (section.result[part].get(name) or {}).get("rate")]
        if points:
            axes.plot(*zip(*points), color=COLOURS[name], marker=MARKS[name], markersize=6,
                      linewidth=1.6, label=CLIENTS[name])
    axes.set_xlim(0, 1.05)
    axes.set_ylim(bottom=0)
    axes.set_xticks([float(part) for part in parts], parts)
    axes.set_xlabel("the device's part of its core")
    axes.set_ylabel("samples/s")
    few(axes.yaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# name of the plot: (its section, who draws it)
ALL = {"utilisation": ("curve", utilisation), "cpu": ("compare", cpu),
       "ablation": ("ablation", ablation), "device_curve": ("device_curve", device_curve)}


def draw(results, directory):
    """Those whose sections were run; a plot of another time is removed."""
    with pyplot.rc_context(STYLE):
        for name, (section, plot) in ALL.items():
            found = results.get(section)
            figure = plot(found) if found else None
            if figure:
                save(figure, directory, name)
            else:
                for kind in ("svg", "png"):
                    (directory / f"{name}.{kind}").unlink(missing_ok=True)
