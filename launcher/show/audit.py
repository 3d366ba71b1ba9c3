"""The result of an audit in words."""

from __future__ import annotations

from typing import Any, List, Mapping

from ipulaunch.configs.text import counted


def audit_lines(result: Mapping[str, Any]) -> List[str]:
    """What an audit has looked at, and what holds."""
    since = f", from update {result['first_update']} on," if result["first_update"] else ""
    if result["last_update"] < result["epochs"] * result["updates_per_epoch"]:
        since += f"{'' if since else ','} up to update {result['last_update']},"
    lines = [
        f"{counted(result['rows'], 'row')} of {counted(result['instances'], 'instance')}"
        f" and {counted(result['replicas'], 'replica')}:"
        f" {counted(result['epochs'], 'epoch')} of {counted(result['updates_per_epoch'], 'update')}{since}"
        f" of {result['global_batch']} out of {result['samples']} samples, remainder {result['remainder']}"
    ]
    if result["replaced"]:
        unread = counted(result["replaced"], "sample")
        lines.append(f"note: {unread} could not be read and were replaced by a neighbour, as the run has recorded")
    if not result["discrepancies"]:
        once = {
            "drop": "no sample was taken twice in a pass",
            "repeat": "every sample was taken in every whole pass, twice only to fill the last update",
            "pad": "every sample was taken in every whole pass, twice only as padding",
        }
        lines += [
            "ok: every step of every replica was filled",
            f"ok: {'but for those, ' if result['replaced'] else ''}{once[result['remainder']]}",
            "ok: every micro-batch is the one that seed and epoch say",
            "ok: all instances took as many samples",
        ]
    return lines
