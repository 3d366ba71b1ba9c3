"""A measurement of a server on stdout."""

from __future__ import annotations

import json
from typing import Any, Dict

import click

from ipulaunch.launcher.show.picture import table


def print_measurement(result: Dict[str, Any], as_json: bool) -> None:
    """Throughput, latency, and accuracy where the samples have labels."""
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    for number, latency in enumerate(result.get("first_sender_ms", ())):
        click.echo(f"request {number}: {latency:.2f} ms")
    latency = result["latency_ms"]
    shown = ("mean", "p50", "p90", "p99", "min", "max")
    server = "ipulaunch's own server" if result["server"] == "own" else result["server"]
    rows = [
        ("server", f"{server}, model {result['model']}"),
        ("sent", f"{result['requests']} requests of {result['batch_size']} from {result['senders']} senders"),
        ("latency", ", ".join(f"{name} {latency[name]:.2f}" for name in shown) + " ms"),
    ]
    if result["accuracy"] is not None:
        which = "synthetic samples" if result["samples_are_synthetic"] else "samples"
        rows.append(("accuracy", f"{result['accuracy']:.4f} on {result['distinct_samples']} {which}"))
    click.echo(table(rows))
    click.echo(f"Average throughput: {result['throughput']:.1f} samples/sec")
