from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

HEAVY = ("tensorflow", "keras", "numpy", "rich", "mpi4py", "ipulaunch.workers", "ipulaunch.data_pipeline")
DRY_RUN = """
import sys
sys.argv = ["ipulaunch", "cosmoflow", "--pod", "16", "--dry-run", "--num-epochs", "3"]
from ipulaunch.launcher.cli.entry import main
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import ipulaunch.launcher.cli.main", id="import"),
        pytest.param(DRY_RUN, id="dry-run"),
        pytest.param(
            DRY_RUN.replace('"cosmoflow"', '"plan", "cosmoflow"').replace('"--dry-run"', '"--explain"'), id="plan"
        ),
        pytest.param(
            DRY_RUN.replace('"--dry-run"', '"--dry-run", "--engine", "openmpi", "--host-layout", "1x2"'), id="mpi"
        ),
    ],
)
def test_nothing_heavy_is_loaded(code: str, own_environment: Dict[str, str]) -> None:
    show = f"{code}\nimport sys\nprint('loaded:', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", show],
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
        check=True,
        env=own_environment,
    )
    loaded = done.stdout.rpartition("loaded:")[2].split()
    assert "ipulaunch.launcher.cli.main" in loaded
    assert [name for name in loaded if name.startswith(tuple(heavy + "." for heavy in HEAVY)) or name in HEAVY] == []


SHARED = ("workload", "optimization", "device", "sections")


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        pytest.param(["--help"], [], id="help"),
        pytest.param(["cosmoflow", "--pod", "16", "--dry-run"], ["cosmoflow", *SHARED], id="volumes"),
        pytest.param(["mnist", "--dry-run"], ["images", *SHARED], id="images"),
    ],
)
def test_settings_are_loaded_when_they_are_needed(
    words: List[str], loaded: List[str], own_environment: Dict[str, str]
) -> None:
    code = f"""
import sys
sys.argv = ["ipulaunch", *{words!r}]
from ipulaunch.launcher.cli.entry import main
try:
    main()
finally:
    print("loaded:", *sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
        check=True,
        env=own_environment,
    )
    modules = done.stdout.rpartition("loaded:")[2].split()
    assert sorted(
        name for name in ("cosmoflow", "images", *SHARED) if f"ipulaunch.configs.settings.{name}" in modules
    ) == sorted(loaded)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("poprun", "poprun '--host=h[0-1023]' --num-instances=8192 --num-replicas=65536 "),
        ("openmpi", " --host h1023:8 -x POPDIST_NUM_TOTAL_REPLICAS=65536 "),
    ],
    ids=["poprun", "openmpi"],
)
def test_the_work_for_65536_ipus_grows_no_faster_than_their_number(
    engine: str, said: str, ipulaunch: Callable[..., Any], fake_mpirun: Path
) -> None:
    """`benchmarks/startup.py` tells how long it takes."""

    def words(hosts: int) -> List[str]:
        sizes = ["--ipus", f"{64 * hosts}", "--hosts", f"h[0-{hosts - 1}]", "--host-layout", "8x16"]
        return ["run", *sizes, "--dry-run", "--engine", engine, "prog"]

    def calls(hosts: int) -> int:
        count = 0

        def seen(frame: object, event: str, _: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        gc.collect()
        gc.disable()  # what others have left is not the work of this one
        sys.setprofile(seen)
        try:
            assert ipulaunch(*words(hosts)).code == 0
        finally:
            sys.setprofile(None)
            gc.enable()
        return count

    code, out, _ = ipulaunch(*words(1024))  # which also loads what is loaded once
    assert (code, said in out) == (0, True)
    # Counting is slow, so fewer are counted. Some of the work is the same for all, so 8 times as many need less.
    assert calls(128) < 8 * calls(16)


def test_who_interrupts_the_loading_sees_no_traceback(own_environment: Dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    environ = {**own_environment, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "ipulaunch.launcher", "--help"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=1800, check=False, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
