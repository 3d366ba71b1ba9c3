from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.serving.model_server import batching_parameters, find_model_server, model_server_argv


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_option_wins_over_the_variable_and_that_over_the_sdk_and_the_path(tmp_path: Path) -> None:
    given, named = program(tmp_path / "given"), program(tmp_path / "named")
    of_sdk = program(tmp_path / "sdk" / "tensorflow_model_server-r2.6-x")
    program(tmp_path / "sdk" / "tensorflow_model_server-r2.4-x")
    on_path = program(tmp_path / "bin" / "tensorflow_model_server")
    environ = {
        "TF_SERVING_PATH": str(named),
        "POPLAR_SDK_ENABLED": str(tmp_path / "sdk" / "poplar"),
        "PATH": str(tmp_path / "bin"),
    }
    assert find_model_server(given, environ) == given
    assert find_model_server(None, environ) == named
    del environ["TF_SERVING_PATH"]
    assert find_model_server(None, environ) == of_sdk
    del environ["POPLAR_SDK_ENABLED"]
    assert find_model_server(None, environ) == on_path
    assert find_model_server(None, {"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize("variable", ["POPLAR_SDK_PATH", "TF_POPLAR_BASE", "POPLAR_SDK_ENABLED"])
def test_each_variable_of_the_sdk_leads_to_the_server_beside_it(variable: str, tmp_path: Path) -> None:
    server = program(tmp_path / "tensorflow_model_server-r2.6")
    assert find_model_server(None, {variable: str(tmp_path / "poplar-3.4"), "PATH": ""}) == server


def test_a_server_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(NotReadyError, match=r"--serving-bin-path: .*/none does not exist"):
        find_model_server(tmp_path / "none", {})
    with pytest.raises(NotReadyError, match=r"TF_SERVING_PATH: .*/text is not a program"):
        find_model_server(None, {"TF_SERVING_PATH": str(tmp_path / "text")})


def test_the_command_and_the_published_parameters() -> None:
    argv = model_server_argv(Path("/s/tms"), Path("/m"), "resnet50", 8500, 8501, Path("/tmp/b"))
    assert argv == [
        "/s/tms",
        "--model_base_path=/m",
        "--model_name=resnet50",
        "--port=8500",
        "--rest_api_port=8501",
        "--enable_batching=true",
        "--batching_parameters_file=/tmp/b",
    ]
    assert model_server_argv(Path("/s/tms"), Path("/m"), "r", 1, 2, None)[-1] == "--rest_api_port=2"
    assert batching_parameters(16).splitlines() == [
        "max_batch_size { value: 16 }",
        "batch_timeout_micros { value: 500 }",
        "max_enqueued_batches { value: 1000 }",
        "num_batch_threads { value: 4 }",
        "allowed_batch_sizes : 16",
    ]
