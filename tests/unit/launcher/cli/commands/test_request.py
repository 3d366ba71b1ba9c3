from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

import pytest

from ipulaunch.launcher.cli import measurement
from ipulaunch.launcher.serving.served import ExportFailed

Run = Callable[..., Any]


@pytest.mark.parametrize("server", ["localhost", ":8500", "localhost:", "localhost:grpc"])
def test_a_server_is_a_host_and_a_port(server: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("request", "mnist", "--server", server)
    assert (code, out) == (2, "")
    assert f"--server is {server}, expected HOST:PORT" in err


def test_the_weights_of_a_checkpoint_are_exported(
    tmp_path: Path, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement of a trained model exports what `ipulaunch export` exports with the same words."""
    words: List[str] = []

    def export(given: Sequence[str], name: Optional[str]) -> Any:
        words.extend(given)
        raise ExportFailed(5)

    monkeypatch.setattr(measurement, "exported", export)
    line = ("cifar10", "--config", "resnet8_test", "--checkpoint-input-dir", str(tmp_path))
    assert ipulaunch("request", *line, "--port", "0", "--rest-port", "0", "--own-server")[0] == 5
    code, out, _ = ipulaunch("export", *words, "--export-dir", str(tmp_path / "m"), "--dry-run")
    assert code == 0
    assert out == ipulaunch("export", *line, "--export-dir", str(tmp_path / "m"), "--dry-run").out
    assert f"--checkpoint-input-dir {tmp_path}" in out


def test_a_measurement_of_a_running_server_takes_no_options_of_an_export(tmp_path: Path, ipulaunch: Run) -> None:
    line = ("mnist", "--server", "localhost:1", "--checkpoint-input-dir", str(tmp_path), "--rest-port", "1")
    code, out, err = ipulaunch("request", *line)
    assert (code, out) == (2, "")
    assert "--server only sends, and --rest-port, --checkpoint-input-dir say what is exported and served" in err
