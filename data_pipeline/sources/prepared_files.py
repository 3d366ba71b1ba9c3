"""Record files near the instances that read them: staged to their host, indexed once per host, the same for all."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, TypeVar

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.order import validation_batch
from ipulaunch.data_pipeline.parallel import throttled
from ipulaunch.data_pipeline.records.index import Contents, Index, open_index
from ipulaunch.data_pipeline.share import host_share, records_of_host, staged_share
from ipulaunch.data_pipeline.sources.source import Meet, Progress, Source
from ipulaunch.data_pipeline.staging import Copy, stage, whole_files
from ipulaunch.topology.planning.plan import Plan

Files = Sequence[Path]
Records = Any  # a source with an index
Made = TypeVar("Made")


class Position(NamedTuple):
    """An instance among the others."""

    plan: Plan
    instance: int
    threads: int
    meet: Meet
    progress: Progress

    @property
    def is_first_of_host(self) -> bool:
        return self.plan.placements[self.instance].local_index == 0

    def told(self, what: str) -> Callable[[int, int], None]:
        """Reports how far something is."""
        return throttled(functools.partial(self.progress, what))

    def in_turns(self, make: Callable[[], Made]) -> Made:
        """What is made, by the first instance of each host before the others, which then find what it leaves."""
        made = make() if self.is_first_of_host else None
        self.meet("indexed")
        return make() if made is None else made


def _stage(groups: Iterable[List[Copy]], target: Path, at: Position) -> None:
    stage(
        [copy for copies in groups for copy in copies],
        target,
        index=at.plan.placements[at.instance].local_index,
        instances=at.plan.neighbours_of(at.instance),
        progress=at.told("staging"),
    )
    at.meet("staged")  # by the other instances of this host too


def staged(files: Mapping[str, Files], job: Job, at: Position) -> Dict[str, Files]:
    """Copies of all files on the disk of this host."""
    data = job.settings.data
    target, tolerant = Path(data.stage_dir or ""), data.bad_records == "skip"
    groups = {split: whole_files(found, data.path, target, tolerant=tolerant) for split, found in files.items()}
    _stage(groups.values(), target, at)
    return {split: [copy.place for copy in copies] for split, copies in groups.items()}


def shared(
    read: Callable[..., Records], files: Mapping[str, Files], job: Job, at: Position, contents: Optional[Contents]
) -> Dict[str, Source]:
    """Sources of the records of this host's share alone, which are staged to its disk."""
    data = job.settings.data
    target, tolerant = Path(data.stage_dir or ""), data.bad_records == "skip"
    asked = {"train": data.n_train, "validation": data.n_valid}
    share, batch = host_share(at.plan, at.instance), validation_batch(job.settings, at.plan.batch)

    def indexes() -> Dict[str, Index]:
        told = at.told("indexing")
        return {
            split: open_index(found, threads=at.threads, progress=told, tolerant=tolerant, contents=contents)
            for split, found in files.items()
        }

    # To index a packed set is to unpack it: where its directory is writable, one instance does it for all hosts.
    first = indexes() if at.instance == 0 else None
    at.meet("indexed by the first")
    found = at.in_turns(lambda: first or indexes())
    samples = {split: min(asked[split], index.records) for split, index in found.items()}
    _agree(samples, at)
    groups: List[List[Copy]] = []
    for split, index in found.items():
        if samples[split]:
            mine = records_of_host(split, samples[split], share, batch)
            copies, found[split] = staged_share(index, mine, data.path, target, tolerant=tolerant)
            groups.append(copies)
    _stage(groups, target, at)
    return _with_defects({split: read(split, files[split], index=index) for split, index in found.items()}, at)


def indexed(read: Callable[..., Records], files: Mapping[str, Files], at: Position) -> Dict[str, Source]:
    """The first instance of each host builds the index, if there is none; the others find it."""

    def make() -> Dict[str, Records]:
        return {split: read(split, found, progress=at.told("indexing")) for split, found in files.items()}

    sources = at.in_turns(make)
    _agree({split: source.samples for split, source in sources.items()}, at)
    return _with_defects(sources, at)


def _agree(samples: Dict[str, int], at: Position) -> None:
    """An error unless all instances have found as many samples: they would fall out of step."""
    found = " and ".join(map(str, samples.values()))
    first = at.meet(found)
    if first != found:
        raise DataError(
            f"instance {at.instance} finds {found} samples, instance 0 finds {first}",
            hint="the files must be the same on all hosts; ipulaunch data verify finds damaged ones",
        )


def _with_defects(sources: Mapping[str, Records], at: Position) -> Dict[str, Source]:
    """All instances see the same defects of files; the first one reports them."""
    if at.instance == 0:
        for source in sources.values():
            source.bad.update({-1 - number: defect for number, defect in enumerate(source.index.defects)})
    return dict(sources)
