from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.data_pipeline.order import Shuffle, whole_updates
from ipulaunch.topology import Batch, Placement, Plan
from ipulaunch.topology.planning.batch import updates_per_epoch
from ipulaunch.topology.planning.plan import to_json

_BATCH = Batch(micro_size=3, replicas=4, accumulation=2)


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., RunDirectory]:
    """A run of two epochs of 50 samples on two instances, with what a faithful tracer writes."""

    def make(
        remainder: str = "drop", samples: int = 50, first: int = 0, per_epoch: Optional[int] = None, **data: Any
    ) -> RunDirectory:
        run = RunDirectory(tmp_path / "run")
        placements = tuple(Placement(n, "h", n, (0,), 1, str(n), 2 * n) for n in range(2))
        run.path.mkdir()
        run.plan.write_text(to_json(Plan("cosmoflow", "POD4", 4, 1, 1, _BATCH, placements, False)))
        training = Training(
            num_epochs=2,
            seed=7,
            remainder=remainder,
            weight_updates_per_epoch=per_epoch,
            resume="earlier" if first else None,
        )
        settings = CosmoflowSettings(data=CosmoflowData(n_train=50, **data), training=training)
        run.job.write_text(to_yaml(Job("cosmoflow", "cpu", settings)))
        rows: Dict[int, List[str]] = {0: [], 1: []}
        shuffle = Shuffle(7, settings.data.shuffle_block, settings.data.shuffle_window)
        per_pass = updates_per_epoch(samples, _BATCH, remainder)
        for update in range(first, 2 * (per_epoch or per_pass)):
            epoch, at = divmod(update, per_pass)
            order, _ = whole_updates(samples, shuffle, epoch, _BATCH, remainder)
            part = order.reshape(-1, 2, 4, 3)[at]
            for step, replica in np.ndindex(2, 4):
                rows[replica // 2] += [f"{epoch},{update},{step},{replica},{one}\n" for one in part[step, replica]]
        said = {"samples": samples, "epochs": 2, "updates_per_epoch": per_epoch or per_pass, "first_update": first}
        for instance, lines in rows.items():
            run.instance(instance).mkdir()
            run.samples(instance).write_text("epoch,update,step,replica,sample\n" + "".join(lines))
            begun = [{"event": "started", "host": "h"}, {"event": "training", "left_out": 0, **said}]
            run.events(instance).write_text("".join(json.dumps(event) + "\n" for event in begun) + '{"event": "upd')
            run.done(instance).touch()
        return run

    return make
