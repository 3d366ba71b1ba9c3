"""What records say in words: on the launcher's display, and in the log of the instance that writes them."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ipulaunch.configs.text import counted

_ASIDE = ("event", "time_ns", "instance", "update", "epoch", "epochs", "samples", "samples_per_s", "checkpoint")


def measured(record: Mapping[str, Any]) -> Dict[str, float]:
    """The metrics in a record."""
    return {name: value for name, value in record.items() if name not in _ASIDE and type(value) in (int, float)}


def metrics_text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def in_words(record: Mapping[str, Any]) -> str:
    """One line for people; nothing for records that only count."""
    kind = record["event"]
    if kind == "started":
        place, binding = record["place"], record["binding"]
        return (
            f"instance {place['instance']} of {place['instances']} on {record['host']}: process {record['pid']},"
            f" CPUs {binding['cpus']}, TensorFlow {record['tensorflow']}, Python {record['python']}"
        )
    if kind == "warning":
        return f"warning: {record['message']}"
    if kind == "resumed":
        return f"resumed after update {record['update']}: {record['path']}"
    if kind == "training":
        left_out = f"; {counted(record['left_out'], 'sample')} left out per epoch" if record["left_out"] else ""
        updates = counted(record["updates_per_epoch"], "weight update")
        return f"training: {counted(record['epochs'], 'epoch')} of {updates}{left_out}"
    if kind == "log":
        return f"epoch {record['epoch']}/{record['epochs']}: {metrics_text(measured(record))}"
    if kind == "checkpoint":
        return f"checkpoint of update {record['update']}: {record['path']}"
    if kind == "validation":
        return f"validation of {record.get('checkpoint', 'the weights')}: {metrics_text(measured(record))}"
    if kind == "loading":
        return "loading the program, before the clock starts"
    if kind == "time_to_train":
        return f"time to train: {record['seconds']:.1f} s, with validation"
    return ""
