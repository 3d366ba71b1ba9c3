"""How fast the CPUs of a rehearsal compute, measured by all instances at once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Callable, Dict

from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.planning.plan import Plan, to_json


def last_event(job: Job, plan: Plan) -> Dict[str, Any]:
    options = {"job": to_yaml(job), "plan": to_json(plan), "seconds": 0.01}
    argv = [sys.executable, "-m", "ipulaunch.workers.device_rate"]
    done = subprocess.run(argv, input=json.dumps(options), capture_output=True, text=True, check=False)
    event: Dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return event


def test_all_instances_of_a_host_compute(make_plan: Callable[..., Plan]) -> None:
    overrides = [assignment(text, "--set") for text in ("model.name=toy_model", "data.synthetic_data=cpu")]
    job = Job("mnist", "cpu", resolve("mnist", rehearsal=True, overrides=overrides).settings)
    plan = make_plan(2, 2, layout=(1, 2))
    event = last_event(job, plan._replace(batch=plan.batch._replace(micro_size=4)))
    assert event["event"] == "result", event
    assert 0 < event["device_samples_per_s"]["low"] <= event["device_samples_per_s"]["high"]


def test_an_instance_that_fails_says_why(make_plan: Callable[..., Plan]) -> None:
    overrides = [assignment(text, "--set") for text in ("data.side=4", "model.n_conv_layers=5")]
    job = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True, overrides=overrides).settings)
    event = last_event(job, make_plan(2, 1, layout=(1, 1)))
    assert (event["event"], event["exit_code"]) == ("error", 7)
    assert event["message"].startswith("an instance of the measurement failed: ")
