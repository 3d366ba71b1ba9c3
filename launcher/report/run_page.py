"""The page about one run."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipulaunch.configs.runs.events import measured, metrics_text
from ipulaunch.configs.runs.secrets import MASK, is_secret
from ipulaunch.configs.settings.schema import leaves, plain_value, value_of
from ipulaunch.configs.text import counted, duration, some, utc
from ipulaunch.launcher.report import how_it_went
from ipulaunch.launcher.report.audit import Audit
from ipulaunch.launcher.report.drawing import number_text
from ipulaunch.launcher.report.page import rendered
from ipulaunch.launcher.report.story import RunStory
from ipulaunch.launcher.schedulers.scheduler import DONE, FAILED
from ipulaunch.launcher.show.picture import draw_plan

_MOST_ROWS = 1024  # instances
_MOST_NAMES = 12
DEFAULT = "default"
_SHIPPED = ("configs/workloads/", "configs/apis/")  # a preset is somebody's choice


def run_page(story: RunStory, audit: Optional[Audit], renewed_s: Optional[int] = None) -> str:
    """The page; one about a run that goes on asks for itself again after so many seconds."""
    given, others = settings_rows(story)
    return rendered(
        "run.html",
        renewed_s=renewed_s if story.goes_on else None,
        goes_on=story.goes_on,
        written=utc(story.read_at_s),
        name=story.name,
        state=story.state.word,
        said=story.state.said,
        mood={DONE: "good", FAILED: "bad"}.get(story.state.word, "warn"),
        head=_head(story),
        plan_facts=_plan_facts(story),
        picture=draw_plan(story.plan) if story.plan else "",
        command=story.command,
        places=_places(story),
        left_out_places=max(0, len(story.instances) - _MOST_ROWS),
        given=given,
        others=others,
        has_origins=bool(story.origins),
        is_program=story.job is None,
        panels=how_it_went.panels(story.measures),
        not_drawn=how_it_went.not_drawn(story.measures),
        times=how_it_went.times(story),
        is_sampled=any(records.is_sampled for records in story.instances),
        slowest=how_it_went.slowest(story),
        timeline=how_it_went.timeline(story),
        attempts=how_it_went.attempt_rows(story),
        left_out_attempts=story.left_out_attempts,
        warnings=how_it_went.warnings(story),
        ending=_ending(story),
        failure=story.failure,
        failed_on=_host_of(story, story.failure.instance) if story.failure else "",
        log_lines=story.log_lines if story.state.word != DONE and not story.failure else (),
        engine_lines=story.engine_lines if story.state.word == FAILED else (),
        checkpoints=story.checkpoints[-_MOST_NAMES:],
        checkpoint_count=len(story.checkpoints),
        traces=story.traces_samples,
        audit=audit,
    )


def settings_rows(story: RunStory) -> Tuple[List[Tuple[str, str, str]], List[Tuple[str, str, str]]]:
    """Key, value and origin of the settings that somebody chose, and of the others."""
    if story.job is None:
        return [], []
    settings = story.job.settings
    chosen: List[Tuple[str, str, str]] = []
    others: List[Tuple[str, str, str]] = []
    for leaf in leaves(type(settings)):
        value, origin = value_of(settings, leaf.key), story.origins.get(leaf.key, "")
        text = MASK if is_secret(leaf.key) and value is not None else setting_text(value)
        is_chosen = origin != DEFAULT and not origin.startswith(_SHIPPED) if origin else value != leaf.default
        (chosen if is_chosen else others).append((leaf.key, text, origin or "not recorded"))
    return chosen, others


def setting_text(value: object) -> str:
    """The value of a setting as people write it."""
    plain = plain_value(value)
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, list):
        return ", ".join(map(str, plain)) or "none"
    return "-" if plain is None else str(plain)


def _head(story: RunStory) -> List[Tuple[str, str]]:
    plan, first_s = story.plan, story.first_s
    leader = story.instances[0]
    total = leader.training.total_updates if leader.training else 0
    rates = how_it_went.rates(story)
    waits = how_it_went.wait_of(story)
    return [
        ("workload", f"{plan.workload} on {plan.system}{_on_what(story)}" if plan else ""),
        ("began", utc(first_s) if first_s else ""),
        (
            "took",
            f"{duration(max(0.0, story.last_s - first_s))}{' so far' if story.goes_on else ''}" if first_s else "",
        ),
        ("attempts", str(story.attempts[-1].number)),
        ("updates", f"{leader.update:,} of {total:,}" if total else ""),
        ("throughput", f"{number_text(sum(rates.values()))} samples/s" if rates else ""),
        ("waiting", f"for data {100 * waits:.0f} % of the time" if waits is not None else ""),
    ]


def _on_what(story: RunStory) -> str:
    if story.job is None:
        return ""
    return ", rehearsed on CPUs" if story.job.is_rehearsal else ", on IPUs"


def _plan_facts(story: RunStory) -> List[Tuple[str, str]]:
    plan, started = story.plan, [records.started for records in story.instances if records.started]
    facts: List[Tuple[str, str]] = []
    if plan:
        facts += [
            ("plan", plan.division),
            ("batch", plan.batch.formula if story.job else ""),
            ("hosts", some(plan.hosts, _MOST_NAMES)),
        ]
    training = story.instances[0].training
    facts += [
        ("trains with", training.api if training else ""),
        ("TensorFlow", some(sorted({event.tensorflow for event in started}), _MOST_NAMES)),
        ("Python", some(sorted({event.python for event in started}), _MOST_NAMES)),
        ("backend", some(sorted({event.backend for event in started}), _MOST_NAMES)),
        ("samples", f"{training.samples:,}, {training.left_out:,} left out in each epoch" if training else ""),
        ("data", f"a prepared set: {training.preparation}" if training and training.preparation else ""),
    ]
    return facts


def _places(story: RunStory) -> List[Tuple[Any, ...]]:
    """Where each instance ran, as it has read it back, and how it did."""
    rates = how_it_went.rates(story)
    rows = []
    for records in story.instances[:_MOST_ROWS]:
        started, waits = records.started, how_it_went.waiting_for_data(records)
        rate = rates.get(records.instance)
        rows.append(
            (
                records.instance,
                records.host or _host_of(story, records.instance),
                started.cpus if started else "-",
                started.binding.get("memory", "-") if started else "-",
                _pairs(started.threads) if started else "-",
                f"{records.update:,}" if records.last else story.exits.get(records.instance, "-"),
                number_text(rate) if rate is not None else "-",
                f"{100 * waits:.0f} %" if waits is not None else "-",
            )
        )
    return rows


def _pairs(threads: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in list(threads.items())[:8])


def _host_of(story: RunStory, instance: int) -> str:
    placements = story.plan.placements if story.plan else ()
    return placements[instance].host if instance < len(placements) else ""


def _ending(story: RunStory) -> List[Tuple[str, str]]:
    """What the launcher and the summary say of the end."""
    summary = story.summary
    endings = story.attempts[-1].endings
    rows: List[Tuple[str, str]] = []
    if endings:
        rows.append(("verdict", f"exit code {endings[-1].exit_code}: {endings[-1].headline}"))
        rows.append(("at", endings[-1].time))
    metrics, best, target = (_mapping(summary.get(name)) for name in ("metrics", "best", "target"))
    rows += [
        ("final", metrics_text(measured(metrics))),
        ("best", _best(best, summary.get("judged_by"))),
        ("target", _target(target)),
        ("time to train", _seconds(summary.get("time_to_train_s"))),
        ("updates took", _seconds(summary.get("train_s"))),
    ]
    for key, noun in (("replaced_samples", "sample"), ("damaged_files", "file")):
        count = summary.get(key)
        if isinstance(count, int) and count:
            rows.append((key.replace("_", " "), f"{counted(count, noun)} that could not be read whole"))
    return rows


def _best(best: Mapping[str, Any], judged_by: object) -> str:
    if not best.get("checkpoint"):
        return ""
    by = f" by {judged_by}" if isinstance(judged_by, str) else ""
    return f"{best['checkpoint']}{by}: {metrics_text(measured(best))}"


def _target(target: Mapping[str, Any]) -> str:
    if "value" not in target:
        return ""
    reached = _mapping(target.get("reached_by"))
    by = f"reached by {reached.get('checkpoint', 'the weights')}" if reached else "not reached"
    return f"{target['value']}: {by}"


def _seconds(value: object) -> str:
    return duration(value) if isinstance(value, (int, float)) and 0 <= value < 1e12 else ""


def _mapping(value: object) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}
