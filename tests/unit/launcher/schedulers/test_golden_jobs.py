"""Whole scripts and manifests, compared with golden files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.core

GOLDEN = Path(__file__).parents[3] / "golden" / "jobs"
Run = Callable[..., Any]

CPUS = ("--engine", "openmpi", "--host-layout", "1x4")
IMAGE = ("--container-image", "registry.example/ipulaunch:1.0")
VENV = ("--setup", "source ~/venvs/tf2/bin/activate")
CASES = {
    "slurm_alcf_pod16.sh": ["cosmoflow", "--pod", "16", "--site", "alcf-bow-pod64", "--time", "60", *VENV],
    "slurm_hosts_pod64.sh": ["cosmoflow", "--pod", "64", "--site", "host-mapping", "--time", "1-00:00:00"],
    "slurm_everything.sh": [
        *("imagenet", "--pod", "16", "--scheduler", "slurm", "--config", "resnet50_16ipus_8k_bn_pipeline"),
        *("--dataset-path", "/data/image net", "--num-epochs", "2", "--set", "data.augment=false", "--verbose"),
        *("--account", "ab12", "--partition", "ipu,long", "--time", "12:00:00", "--no-requeue", "--grace", "300"),
        *("--mail-user", "me@example.org", "--mail-type", "END", "--mail-type", "fail", "--directive=--qos=high"),
        *("--setup", "module load poplar", "--env", "TF_POPLAR_FLAGS=--a --b", "--vipu-partition", "p1"),
        *("--hosts", "node7", "--no-update-partition", "--executable-cache-path", "/scratch/it's mine"),
    ],
    "slurm_rehearsal_pod4.sh": ["cosmoflow", "--pod", "4", "--scheduler", "slurm", "--requeue", "--time", "10", *CPUS],
    "slurm_quoted.sh": [
        *("cosmoflow", "--pod", "16", "--scheduler", "slurm", "--data-dir", "/data/$USER/`old`", "--env", "A=$(b) 'c'"),
    ],
    "slurm_container.sh": ["mnist", "--scheduler", "slurm", *IMAGE, *CPUS],
    "slurm_program.sh": [
        *("program", "--pod", "16", "--site", "alcf-bow-pod64", "--time", "60", "--requeue", "--grace", "30"),
        *("--max-restarts", "2", "-v", *VENV, "--", "python3", "my_train.py", "--data=/a b", "--pod", "16"),
    ],
    "pbs_program.sh": ["program", "--pod", "16", "--scheduler", "pbs", "--nodes", "2", *CPUS, "./mine"],
    "kubernetes_program.yaml": [
        *("program", "--pod", "4", "--scheduler", "kubernetes", "--requeue", *IMAGE, *CPUS, "python3", "$(x) 'y'"),
    ],
    "pbs_pod16.sh": [
        *("cosmoflow", "--pod", "16", "--scheduler", "pbs", "--account", "ab12", "--partition", "workq", "--requeue"),
        *("--time", "100:00:00", "--mail-user", "me@example.org", "--mail-type", "ALL"),
        "--directive=-l filesystems=home",
    ],
    "pbs_rehearsal_hosts.sh": [
        *("cosmoflow", "--pod", "16", "--scheduler", "pbs", "--nodes", "2", *CPUS, "--env", "HOME"),
    ],
    "kubernetes_ipujob.yaml": [
        *("cosmoflow", "--pod", "16", "--site", "epcc-eidf", *IMAGE, "--volume", "my-claim:/data", "--time", "60"),
        *("--namespace", "my-project", "--data-dir", "/data/cosmoflow"),
        *("--env", "WANDB_API_KEY=secret:wandb/api-key", "--queue", "my-project-user-queue"),
        *("--label", "example.org/team=cosmology", "--annotation", "example.org/note=first try: 16 IPUs"),
    ],
    "kubernetes_job.yaml": ["cosmoflow", "--pod", "4", "--scheduler", "kubernetes", "--requeue", *IMAGE, *CPUS],
    "kubernetes_mpijob.yaml": [
        *("cosmoflow", "--pod", "16", "--scheduler", "kubernetes", "--nodes", "2", *IMAGE, *CPUS),
        *("--volume", "shared:/shared", "--setup", "export OMP_PROC_BIND=false"),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, ipulaunch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    what, *options = CASES[name]
    words = ["submit", what, "--run-dir", "/home/me/runs/first", "--dry-run", *options]
    code, out, _ = ipulaunch(*words)
    assert code == 0
    assert ipulaunch(*words).out == out
    text = out.replace(str(tmp_path), "/home/me")
    path = GOLDEN / name
    if os.environ.get("REFRESH_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"if this change is meant: REFRESH_GOLDEN=1 pytest {__file__}"


def test_every_golden_file_has_a_case() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".yaml")])
def test_manifest_is_yaml(name: str) -> None:
    import yaml

    data = yaml.safe_load((GOLDEN / name).read_text(encoding="utf-8"))
    assert list(data) == ["apiVersion", "kind", "metadata", "spec"]
    assert data["metadata"]["name"] == "first"


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".sh")])
def test_directives_come_before_the_first_command(name: str) -> None:
    """Schedulers stop reading them there."""
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    directives = [index for index, line in enumerate(lines) if line.startswith(("#SBATCH", "#PBS"))]
    assert directives == list(range(1, 1 + len(directives)))
