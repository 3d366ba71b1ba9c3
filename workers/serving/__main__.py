"""`python -m ipulaunch.workers.serving WORKLOAD ...`: exports a model; events are JSON lines on stdout."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

from ipulaunch.configs.exports import refuse_occupied
from ipulaunch.data_pipeline.reported import Report, reported
from ipulaunch.topology.planning.popdist import read_place
from ipulaunch.workers.lifecycle.lifetime import end_with_parent
from ipulaunch.workers.pasted_line import plan_of_pasted_line
from ipulaunch.workers.serving.arguments import read_request
from ipulaunch.workers.serving.serving_settings import choose_iterations, choose_pipeline, serving_settings
from ipulaunch.workers.startup import prepare_tensorflow, start_pasted


def main() -> int:
    """The exit code of one export."""
    end_with_parent()
    return reported(lambda report: _run(sys.argv[1:], report))


def _run(words: List[str], report: Report) -> Dict[str, Any]:
    """Prepare the process for the job as for an instance that is alone, export, and return what --json shows."""
    request = read_request(words)
    refuse_occupied(request.directory, request.version, adds=request.adds)
    is_pipelined, warnings = choose_pipeline(request.job.settings, request.is_pipelined)
    settings = serving_settings(request.job.settings, is_pipelined=is_pipelined)
    iterations = choose_iterations(settings.pipeline, request.iterations)
    job = request.job._replace(settings=settings)
    start = start_pasted(job, read_place({}, 1))
    threads = prepare_tensorflow(start)

    from ipulaunch.workers.backends.collective import Alone
    from ipulaunch.workers.backends.selection import make_backend, make_devices

    threads.in_force()
    make_devices(job)
    plan = plan_of_pasted_line(job, start.batch, start.place, start.binding, lambda text: [text])
    backend = make_backend(job, plan, 0, Alone())

    from ipulaunch.workers.serving.export import export

    record, more = export(request, backend, iterations, report)
    path = str((request.directory / str(request.version)).absolute())
    return {**record.data(), "path": path, "warnings": [*warnings, *more]}


if __name__ == "__main__":
    sys.exit(main())
