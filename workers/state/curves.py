"""The curves of a run as pictures, where matplotlib is installed."""

from __future__ import annotations

from typing import Any, Dict, List

from ipulaunch.configs.runs.directory import RunDirectory

_ASIDE = ("update", "epoch", "checkpoint", "samples_per_s", "train_s", "learning_rate")


def draw_curves(run: RunDirectory, rows: List[Dict[str, Any]]) -> None:
    """Learning curves and throughput, as curves.png and curves.svg; nothing without rows, or without matplotlib."""
    if not rows:
        return
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name[4:] if name.startswith("val_") else name for row in rows for name in row))
    panels = [name for name in names if name not in _ASIDE]
    panels += ["samples_per_s"] if "samples_per_s" in names else []
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.6), squeeze=False)
    for axis, name in zip(axes[0], panels):
        for key, label, style in ((name, "training", "o-"), (f"val_{name}", "validation", "s--")):
            points = [(row["epoch"], row[key]) for row in rows if key in row]
            if points:
                axis.plot(*zip(*points), style, label=label, markersize=4)
        axis.set_title("samples/s" if name == "samples_per_s" else name)
        axis.set_xlabel("epoch")
        axis.set_ylim(bottom=0 if name == "samples_per_s" else None)
        axis.grid(alpha=0.3)
        if len(axis.lines) > 1:
            axis.legend()
    figure.suptitle(run.path.name)
    figure.tight_layout()
    for ending in ("png", "svg"):
        figure.savefig(run.curves(ending), dpi=120, bbox_inches="tight")  # also with a title wider than the panels
    pyplot.close(figure)
