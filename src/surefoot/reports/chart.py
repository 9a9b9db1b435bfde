"""The curve of a range test as a picture. Needs matplotlib."""

from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage, RunError, installing
from surefoot.records.lr_range import LrRange


def figure_for(path: Path) -> Any:
    """An empty figure that can be saved under this name."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage(f"--plot needs matplotlib: {installing('report', 'matplotlib')}") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    known = figure.canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in known:
        raise RunError(f"{path} has no known picture format; known: {', '.join(sorted(known))}")
    return figure


def save_chart(found: LrRange, figure: Any, path: Path) -> None:
    """Draws every loss, the smoothed curve and the rates that were read from it."""
    axes = figure.subplots()
    rates, course = [point.lr for point in found.points], [point.smooth_loss for point in found.points]
    axes.plot(rates, [point.loss for point in found.points], ".", color="0.75", label="loss of each step")
    axes.plot(rates, course, label="smoothed")
    marks = {"own": found.own_lr, "falls fastest": found.steepest_lr, "half of the gain is lost": found.edge_lr}
    for index, (name, rate) in enumerate(marks.items(), 1):
        if rate is not None:
            axes.axvline(rate, linestyle="--", color=f"C{index}", label=f"{name}: {rate:.2g}")
    room = 0.1 * (max(course) - min(course))
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss", title=found.recipe)
    axes.set_ylim(min(course) - room, max(course) + room)
    axes.legend()
    figure.savefig(path)
