from __future__ import annotations

from typing import Any, Callable

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize("server", ["localhost", ":8500", "localhost:", "localhost:grpc"])
def test_a_server_is_a_host_and_a_port(server: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("request", "mnist", "--server", server)
    assert (code, out) == (2, "")
    assert f"--server is {server}, expected HOST:PORT" in err
