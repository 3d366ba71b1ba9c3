"""`ipulaunch submit`: from the command line to the scheduler."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

pytestmark = pytest.mark.core

Run = Callable[..., Any]
POD = ("submit", "cosmoflow", "--pod", "16")
SLURM = (*POD, "--scheduler", "slurm")
KUBERNETES = (*POD, "--scheduler", "kubernetes", "--container-image", "x")
CPUS = ("--engine", "openmpi", "--host-layout", "1x4")


def _files(path: Path) -> List[str]:
    return sorted(child.name for child in path.iterdir())


@pytest.mark.parametrize("words", [("--account", "a b"), ("--num-replicas", "3")], ids=["job", "plan"])
def test_a_refused_job_leaves_no_directory(words: Tuple[str, ...], ipulaunch: Run, tmp_path: Path) -> None:
    assert ipulaunch(*SLURM, *words).code in (2, 3)
    assert not (tmp_path / "runs").exists()


def test_dry_run_asks_nobody_and_makes_nothing(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    before = _files(tmp_path)
    assert ipulaunch(*SLURM, "--dry-run").code == 0
    assert (scheduler.calls, _files(tmp_path)) == ([], before)


def test_a_job_that_names_no_images_is_not_queued(ipulaunch: Run, scheduler: Any) -> None:
    words = ("submit", "cifar10", "--pod", "4", "--scheduler", "slurm")
    code, _, err = ipulaunch(*words)
    assert (code, scheduler.calls) == (5, []) and "cifar10 needs its images" in err


@pytest.mark.parametrize("name", ["slurm", "pbs"])
def test_refusals_name_what_the_user_gave(
    name: str, ipulaunch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*POD, "--scheduler", name, "--dry-run")
    _, _, err = ipulaunch(*words, "--run-dir", "my run")
    assert f"the run directory '{tmp_path}/my run' is refused" in err
    for option in ("--account", "--partition", "--mail-user"):
        _, _, err = ipulaunch(*words, option, "a b")
        assert f"error: {option} 'a b' is refused" in err
    (tmp_path / "My Dir").mkdir()
    monkeypatch.chdir(tmp_path / "My Dir")
    code, _, err = ipulaunch(*words)
    assert (code, f"the working directory '{tmp_path}/My Dir' is refused" in err) == (2, True)


def test_run_directory_that_exists(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    code, _, err = ipulaunch(*SLURM, "--run-dir", "r1")
    assert (code, scheduler.calls) == (2, [])
    assert "there is a directory r1 already" in err


def _called(script: str) -> List[str]:
    """The options of the call that starts the run, as a shell reads them."""
    words = shlex.split(script.partition("else\n  set -- ipulaunch ")[2].partition("\nfi\n")[0].replace("\\\n", ""))
    return [word for word in words if not word.startswith(("--run-dir", "--hosts", "--vipu-partition"))]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("cosmoflow", "--pod", "16"), id="cosmoflow"),
        pytest.param(("cosmoflow", "--pod", "16", "--num-instances", "4", "--global-batch-size", "64"), id="batch"),
        pytest.param(("cosmoflow", "--pod", "8", *CPUS), id="rehearsal"),
        pytest.param(("mnist", "--pipelining", "--engine", "openmpi", "--host-layout", "1x2"), id="mnist"),
        pytest.param(
            ("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--dataset-path", "/a b"),
            id="pipeline",
        ),
        pytest.param(("imagenet", "--pod", "16", "--set", "optimizer.name=lars", "--dataset-path", "d"), id="set"),
    ],
)
def test_call_in_the_script_plans_the_same(words: Any, ipulaunch: Run) -> None:
    """The plan is pinned: planned again on hosts of another kind, it is the same but for their cores."""
    wanted = json.loads(ipulaunch("submit", *words, "--scheduler", "slurm", "--dry-run", "--json").out)
    code, out, err = ipulaunch(*_called(wanted["script"]), "--host-layout", "2x32", "--dry-run", "--json")
    assert code == 0, err
    found = json.loads(out)
    for name in ("replicas", "ipus_per_replica", "ilds", "batch"):
        assert found["plan"][name] == wanted["plan"][name]
    assert len(found["plan"]["placements"]) == len(wanted["plan"]["placements"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("--scheduler", "slurm", "--namespace", "x"), "--namespace means nothing to slurm", id="namespace"
        ),
        pytest.param(("--scheduler", "pbs", "--volume", "a:/b"), "--volume means nothing to pbs", id="volume"),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--volume", "claim"),
            "--volume 'claim' is refused",
            id="volume-without-path",
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--volume", "claim:here"),
            "--volume 'claim:here' is refused",
            id="volume-of-relative-path",
        ),
        pytest.param(("--scheduler", "slurm", "--queue", "q"), "--queue means nothing to slurm", id="queue"),
        pytest.param(("--scheduler", "slurm", "--label", "a=b"), "--label means nothing to slurm", id="label"),
        pytest.param(
            ("--scheduler", "pbs", "--annotation", "a=b"), "--annotation means nothing to pbs", id="annotation"
        ),
        pytest.param(
            (*KUBERNETES[len(POD) :], "--label", "a=b", "--label", "a=c"),
            "--label a is given twice: 'b' and 'c'",
            id="label-twice",
        ),
        pytest.param(
            (*KUBERNETES[len(POD) :], "--label", "kueue.x-k8s.io/queue-name=a", "--queue", "b"),
            "--queue b and --label kueue.x-k8s.io/queue-name=a name two queues",
            id="two-queues",
        ),
        pytest.param(
            (*KUBERNETES[len(POD) :], "--run-dir", "r" * 37),
            f"the name {'r' * 37} has 37 letters, and names of IPUJobs can have at most 36",
            id="long-name",
        ),
        pytest.param(
            (*KUBERNETES[len(POD) :], "--run-dir", "r" * 70),
            f"the name {'r' * 70} has 70 letters, and names of IPUJobs can have at most 36",
            id="name-that-is-too-long-for-all-kinds",
        ),
        pytest.param(("--scheduler", "pbs", "--hosts", "a"), "--hosts means nothing to pbs", id="hosts"),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--account", "a"),
            "--account means nothing to kubernetes",
            id="account",
        ),
        pytest.param(("--scheduler", "pbs", "--mail-type", "REQUEUE"), "PBS sends no mail for REQUEUE", id="mail"),
        pytest.param(("--scheduler", "kubernetes"), "none is named", id="image"),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--requeue"),
            "IPUJobs are not started again",
            id="again",
        ),
        pytest.param((), "no scheduler is named", id="scheduler"),
        pytest.param(("--scheduler", "slurm", "--time", "1:30"), "--time '1:30' is not a limit", id="time"),
        pytest.param(("--scheduler", "slurm", "--time", "0"), "leaves no time", id="no-time"),
        pytest.param(
            ("--scheduler", "slurm", "--time", "2"), "asked to stop 120 s before its limit of 120 s", id="short-time"
        ),
        pytest.param(
            ("--scheduler", "slurm", "--signal-lead", "300"),
            "--signal-lead 300 has no effect without --time",
            id="lead",
        ),
        pytest.param(
            ("--scheduler", "pbs", "--signal-lead", "300"), "--signal-lead 300 has no effect without --time", id="timer"
        ),
        pytest.param(
            ("--scheduler", "slurm", "--time", "2-00:00:00", "--signal-lead", "65536"),
            "asked to stop 65536 s before its limit, and Slurm takes 65535 s at most",
            id="long-lead",
        ),
        pytest.param(("--scheduler", "slurm", "--hosts", "a", "--nodes", "2"), "and 1 host named", id="nodes"),
        pytest.param(
            ("--scheduler", "slurm", "--nodes", "2", "--container-image", "x"), "on 2 hosts: MPI would", id="container"
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--resume", "auto"),
            "looks for runs here",
            id="auto",
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--env", "HOME"), "do not reach a Pod", id="env"
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--nodes", "2", *CPUS), "give --volume", id="shared"
        ),
        pytest.param(("--scheduler", "slurm", "--env", "MY_TOKEN=x1"), "would show a secret", id="secret"),
    ],
)
def test_what_makes_no_sense_is_refused(words: Any, said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*POD, *words, "--dry-run")
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pod", "128"), "128 IPUs, and the IPU Operator makes partitions of at most 64 (R15)"),
        (("--pod", "64", "--nodes", "4"), "4 hosts, but an IPUJob has 1 worker Pod (R15)"),
    ],
)
def test_limits_of_the_ipu_operator(words: Any, said: str, ipulaunch: Run) -> None:
    more = ("--scheduler", "kubernetes", "--container-image", "x", "--dry-run")
    code, _, err = ipulaunch("submit", "cosmoflow", *words, *more)
    assert code == 3
    assert said in err


HOSTILE = [
    "a b",
    "a;reboot",
    "$(reboot)",
    "a\nb",
    "`id`",
    "'",
    '"',
    "-x",
    "",
    "a|b",
    "ä",
    "a\x00b",
    "../x y",
    "x" * 600,
]
FIELDS: Dict[str, List[str]] = {
    "--account": ["slurm"],
    "--partition": ["slurm"],
    "--mail-user": ["slurm"],
    "--container-image": ["slurm", *CPUS],
    "--vipu-partition": ["slurm"],
    "--namespace": ["kubernetes", "--container-image", "x"],
    "--volume": ["kubernetes", "--container-image", "x"],
    "--queue": ["kubernetes", "--container-image", "x"],
    "--label": ["kubernetes", "--container-image", "x"],
    "--label=team": ["kubernetes", "--container-image", "x"],
    "--annotation": ["kubernetes", "--container-image", "x"],
    "--time": ["slurm"],
    "--run-dir": ["slurm"],
    "--directive": ["slurm"],
}


# An option of the scheduler, a file name, what no command line can hold, and the value that a label need not have.
_ALLOWED = (("--directive", "-x"), ("--run-dir", "-x"), ("--run-dir", "a\x00b"), ("--label=team", ""))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        pytest.param(flag, value, id=f"{flag}-{ascii(value)[:12]}")
        for flag in FIELDS
        for value in HOSTILE
        if (flag, value) not in _ALLOWED
    ],
)
def test_hostile_names_are_refused(flag: str, value: str, ipulaunch: Run, scheduler: Any) -> None:
    code, out, err = ipulaunch(*POD, f"{flag}={value}", "--scheduler", *FIELDS[flag])
    assert (code, out, scheduler.calls) == (2, "", [])
    assert "Traceback" not in err


@pytest.mark.parametrize("line", ["a\nb", "a\rb", "\x1b[2J", "a\x00b"])
def test_setup_is_one_line(line: str, ipulaunch: Run, scheduler: Any) -> None:
    code, out, _ = ipulaunch(*SLURM, "--setup", line)
    assert (code, out, scheduler.calls) == (2, "", [])


@pytest.mark.parametrize("value", ["a b", "a;reboot", "$(reboot)", "`id`", "'", '"', "$HOME", "a\\b", "*"])
def test_hostile_settings_are_quoted(value: str, ipulaunch: Run) -> None:
    out = ipulaunch(*SLURM, "--data-dir", f"/{value}", "--dry-run").out
    assert f"--data-dir=/{value}" in _called(out)


@pytest.mark.parametrize(
    "words", [("--data-dir", "d"), ("--checkpoint-output-dir", "d"), ("--executable-cache-path", "d")]
)
def test_paths_are_named_in_full(words: Tuple[str, str], ipulaunch: Run, tmp_path: Path) -> None:
    out = ipulaunch(*SLURM, *words, "--dry-run").out
    assert f"{words[0]}={tmp_path}/d" in _called(out)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--data-dir", "d"), 6, "--data-dir: data.directory is d, relative"),
        (("--set", "training.checkpoint_output_dir=d"), 6, "--set: training.checkpoint_output_dir is d, relative"),
        (("--executable-cache-path", "d"), 2, "--executable-cache-path is d, relative"),
        (("--python", "bin/python"), 2, "--python is bin/python, relative"),
        (("--resume", "runs/before"), 2, "--resume runs/before is relative"),
    ],
)
def test_a_pod_is_given_whole_paths_only(words: Any, code: int, said: str, ipulaunch: Run) -> None:
    found, out, err = ipulaunch(*KUBERNETES, "--dry-run", *words)
    assert (found, out) == (code, "")
    assert f"error: {said} to the directory here, which a Pod does not see\nhint: " in err
    assert (
        ipulaunch(
            *KUBERNETES, "--dry-run", words[0], words[1].replace("=d", "=/d") if "=" in words[1] else f"/{words[1]}"
        ).code
        == 0
    )


def test_settings_have_no_second_line(ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*SLURM, "--data-dir", "a\n#SBATCH --x", "--dry-run")
    assert (code, out) == (6, "")
    assert "expected one line" in err


SETUP = ("--setup", "export WANDB_API_KEY=$(cat ~/k)")


@pytest.mark.parametrize("scheduler_name", ["slurm", "pbs", "kubernetes"])
def test_a_variable_that_the_job_sets_itself_need_not_be_set_here(scheduler_name: str, ipulaunch: Run) -> None:
    words = ("--scheduler", scheduler_name, *SETUP, "--env", "WANDB_API_KEY", "--dry-run")
    more = ("--container-image", "x") if scheduler_name == "kubernetes" else ()
    code, out, err = ipulaunch(*POD, *words, *more)
    assert code == 0, err
    assert "--env=WANDB_API_KEY" in out and "export WANDB_API_KEY=$(cat ~/k)" in out
    assert "#PBS -v" not in out  # qsub refuses the names of variables that it does not have


def test_a_variable_that_nothing_sets_is_refused(ipulaunch: Run) -> None:
    code, _, err = ipulaunch(*SLURM, "--env", "WANDB_API_KEY", "--dry-run")
    assert code == 2 and "--env WANDB_API_KEY: it is not set here, and no --setup could set it in the job" in err
    assert "WANDB_API_KEY=VALUE" not in err and "--setup 'export WANDB_API_KEY=$(cat FILE)'" in err
    code, _, err = ipulaunch(*SLURM, "--env", "LIBRARY_X", "--dry-run")
    assert code == 2 and "give --env LIBRARY_X=VALUE" in err


def test_pbs_is_told_the_names_of_variables(ipulaunch: Run) -> None:
    names = ("--env", "WANDB_API_KEY", "--env", "LIBRARY", "--env", "SHOWN=1")
    env = {"WANDB_API_KEY": "canary-1", "LIBRARY": "canary-2"}
    out = ipulaunch(*POD, "--scheduler", "pbs", *names, "--dry-run", env=env).out
    assert "#PBS -v WANDB_API_KEY,LIBRARY\n" in out and "canary" not in out
    assert "#PBS -v" not in ipulaunch(*POD, "--scheduler", "pbs", "--dry-run").out


def test_a_pod_takes_a_secret_from_kubernetes(ipulaunch: Run) -> None:
    import yaml

    out = ipulaunch(*KUBERNETES, "--env", "WANDB_API_KEY=secret:my-wandb/api_key", "--dry-run").out
    container = yaml.safe_load(out)["spec"]["workers"]["template"]["spec"]["containers"][0]
    reference = {"secretKeyRef": {"name": "my-wandb", "key": "api_key"}}
    assert container["env"] == [{"name": "WANDB_API_KEY", "valueFrom": reference}]
    assert container["args"][0].count("--env=WANDB_API_KEY") == 2 and "secret:" not in out


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("A_TOKEN=x1", "would show a secret in the manifest", "give --env A_TOKEN=secret:NAME/KEY"),
        ("A_TOKEN", "the variables here do not reach a Pod", "give --env A_TOKEN=secret:NAME/KEY"),
        ("LIBRARY", "the variables here do not reach a Pod", "give --env LIBRARY=VALUE"),
        ("A_TOKEN=secret:name", "key '' is refused", "SECRET/KEY"),
        ("A_TOKEN=secret:Name/key", "'Name' is refused", "small letters"),
        ("A_TOKEN=secret:name/k$y", "'k$y' is refused", "letters"),
        ("A B", "'A B' is refused", "the name of a variable"),
    ],
)
def test_what_a_pod_cannot_be_given_is_refused(text: str, said: str, hint: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*KUBERNETES, "--env", text, "--dry-run")
    assert (code, out) == (2, "")
    assert said in err and hint in err.partition("hint: ")[2]


def test_names_of_jobs_have_the_length_that_their_kind_can_have(ipulaunch: Run) -> None:
    def code(letters: int, *more: str) -> int:
        found: int = ipulaunch(*KUBERNETES, "--dry-run", "--run-dir", "r" * letters, *more).code
        return found

    assert (code(36), code(37)) == (0, 2)
    assert (code(50, *CPUS), code(51, *CPUS)) == (0, 2)


def test_labels_come_from_the_site_and_from_options_which_win(ipulaunch: Run, tmp_path: Path) -> None:
    import yaml

    (tmp_path / "site.yaml").write_text(
        "kubernetes: {queue: site-queue, labels: [team=a, cost=1], annotations: ['note=a, b']}\n"
    )
    words = (*KUBERNETES, "--site", "./site.yaml", "--dry-run")
    job = yaml.safe_load(ipulaunch(*words, "--label", "team=b", "--annotation", "more=x=y").out)
    ours = {"app.kubernetes.io/managed-by": "ipulaunch", "kueue.x-k8s.io/queue-name": "site-queue"}
    assert job["metadata"]["labels"] == {**ours, "team": "b", "cost": "1"}
    assert job["metadata"]["annotations"] == {"note": "a, b", "more": "x=y"}
    pod = job["spec"]["workers"]["template"]["metadata"]
    assert pod == {"labels": {"team": "b", "cost": "1"}, "annotations": {"note": "a, b", "more": "x=y"}}
    job = yaml.safe_load(ipulaunch(*words, "--queue", "mine").out)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "mine"


def test_kubernetes_replaces_nothing_in_the_shell(ipulaunch: Run) -> None:
    import yaml

    lines = ("renice -n 5 $$", "x=$(hostname)", "y=$(cat ~/y)")
    out = ipulaunch(*KUBERNETES, *(word for line in lines for word in ("--setup", line)), "--dry-run").out
    shell = yaml.safe_load(out)["spec"]["workers"]["template"]["spec"]["containers"][0]["args"][0]
    assert shell.splitlines()[1:4] == ["renice -n 5 $$$", "x=$$(hostname)", "y=$(cat ~/y)"]  # $$ becomes $


def test_a_pod_that_is_lost_with_its_node_does_not_fail_the_job(ipulaunch: Run) -> None:
    import yaml

    words = ("--scheduler", "kubernetes", "--container-image", "x", "--requeue", *CPUS, "--dry-run")
    spec = yaml.safe_load(ipulaunch("submit", "cosmoflow", "--pod", "4", *words).out)["spec"]
    lost, stopped, failed = spec["podFailurePolicy"]["rules"]  # the first that fits counts
    assert lost == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert (stopped["onExitCodes"]["values"], stopped["action"]) == ([75], "Ignore")
    assert (failed["onExitCodes"]["operator"], failed["action"]) == ("NotIn", "FailJob")


@pytest.mark.parametrize("requeue", [True, False], ids=["again", "once"])
def test_each_pod_has_the_limit_of_time_for_itself_where_others_may_follow(requeue: bool, ipulaunch: Run) -> None:
    import yaml

    words = ("--scheduler", "kubernetes", "--container-image", "x", "--time", "60", *CPUS, "--dry-run")
    words += ("--requeue",) if requeue else ()
    spec = yaml.safe_load(ipulaunch("submit", "cosmoflow", "--pod", "4", *words).out)["spec"]
    limits = [part.get("activeDeadlineSeconds") for part in (spec, spec["template"]["spec"])]
    assert limits == ([None, 3480] if requeue else [3480, None])


def test_a_rehearsal_asks_for_cores_where_trainings_ask_for_ipus(ipulaunch: Run) -> None:
    words = ("--site", "alcf-bow-pod64", "--scheduler", "slurm", *CPUS, "--dry-run")
    out = ipulaunch("submit", "cosmoflow", "--pod", "4", *words).out
    assert "#SBATCH --cpus-per-task=" in out and "#SBATCH --ipus" not in out


def test_a_part_of_a_pod_asks_for_its_own_hosts(ipulaunch: Run) -> None:
    part = ("submit", "cosmoflow", "--pod", "256", "--ipus")
    assert "#SBATCH --nodes=1\n" in ipulaunch(*part, "16", "--scheduler", "slurm", "--dry-run").out
    assert "#SBATCH --nodes=2\n" in ipulaunch(*part, "128", "--scheduler", "slurm", "--dry-run").out
    code, _, err = ipulaunch(*part, "64", "--scheduler", "kubernetes", "--container-image", "x", "--dry-run")
    assert code == 0, err


@pytest.mark.parametrize(
    ("size", "said"),
    [
        pytest.param("--pod 128 --nodes 1", "--nodes 1, and pod128 needs 2 hosts", id="pod"),
        pytest.param("--ipus 128 --nodes 1", "--nodes 1, and 128 IPUs need 2 hosts", id="ipus"),
        pytest.param("--pod 256 --ipus 128 --nodes 1", "--nodes 1, and 128 IPUs of pod256 need 2 hosts", id="part"),
        pytest.param("--num-replicas 128 --nodes 1", "--nodes 1, and 128 IPUs need 2 hosts", id="replicas"),
        pytest.param("--pod 256 --nodes 2", "--nodes 2, and pod256 needs 4 hosts", id="some"),
    ],
)
def test_fewer_hosts_than_needed_are_refused(size: str, said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("submit", "cosmoflow", *size.split(), "--scheduler", "slurm", "--dry-run")
    assert (code, out) == (3, "")
    assert err == f"error: {said}\nhint: use --nodes {said.split()[-2]} or leave it out\n"


def test_as_many_hosts_as_needed_or_more_are_fine(ipulaunch: Run) -> None:
    slurm = ("--scheduler", "slurm", "--dry-run", "--nodes")
    for words, nodes in (("--pod 128", "2"), ("--pod 128", "4"), ("--pod 256 --ipus 64", "1")):
        assert f"#SBATCH --nodes={nodes}\n" in ipulaunch("submit", "cosmoflow", *words.split(), *slurm, nodes).out
    crowded = ("--pod", "64", "--host-layout", "1x16", "--num-instances", "64")  # too much for one host
    assert ipulaunch("submit", "cosmoflow", *crowded, *slurm, "4").code == 0
    assert ipulaunch(*POD, *CPUS, *slurm, "1").code == 0


def test_a_job_on_ipus_has_one_pod(ipulaunch: Run, tmp_path: Path) -> None:
    code, _, err = ipulaunch(*KUBERNETES, "--nodes", "2", "--dry-run")
    assert code == 3 and "hint: leave --nodes out" in err
    (tmp_path / "site.yaml").write_text("hosts: {ipus_per_host: 4}\n")
    code, _, err = ipulaunch(*KUBERNETES, "--site", "./site.yaml", "--dry-run")
    assert code == 3 and "4 hosts, but an IPUJob" in err and "hint: use --nodes 1, or a site without" in err
    assert ipulaunch(*KUBERNETES, "--site", "./site.yaml", "--nodes", "1", "--dry-run").code == 0


def test_resumed_run_is_named_in_full(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    out = ipulaunch(*SLURM, "--resume", "before", "--dry-run").out
    assert f"--resume={tmp_path}/before" in _called(out)


def test_help_has_a_heading_for_the_scheduler(ipulaunch: Run) -> None:
    out = ipulaunch("submit", "cosmoflow", "--help").out
    assert "Scheduler settings:" in out
    assert "Print the script or manifest and stop." in out


def test_unknown_workload(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("submit", "cosmoflw")
    assert code == 2
    assert "did you mean cosmoflow?" in err


@pytest.mark.parametrize("more", [(), ("--nodes", "2"), ("--hosts", "a,b")], ids=["one", "two", "named"])
def test_hosts_like_this_one_are_told_once(more: Tuple[str, ...], ipulaunch: Run) -> None:
    err = ipulaunch(*SLURM, "--engine", "openmpi", "--dry-run", *more).err
    assert err.count("like this") == 1
    assert "like this" not in ipulaunch(*SLURM, *CPUS, "--dry-run", *more).err
