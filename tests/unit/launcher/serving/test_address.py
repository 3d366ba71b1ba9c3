from __future__ import annotations

import socket

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.serving.address import Address, require_free, takes_connections


def test_free_ports_and_any_ports_are_fine() -> None:
    require_free(Address("127.0.0.1", 0, 0))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    require_free(Address("127.0.0.1", port, 0))


def test_a_port_that_is_taken_is_named_with_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NotReadyError, match=f"port {port} of 127.0.0.1 cannot be used") as found:
            require_free(Address("127.0.0.1", 0, port))
        assert "--rest-port" in str(found.value.hint)
        with pytest.raises(NotReadyError, match=r"of 0\.0\.0\.0 cannot be used"):
            require_free(Address("0.0.0.0", port, 0))


def test_a_host_that_is_not_here_is_named_as_such() -> None:
    with pytest.raises(NotReadyError, match=r"this machine has no address 192\.0\.2\.1") as found:
        require_free(Address("192.0.2.1", 0, 0))  # an address for documents
    assert "--host" in str(found.value.hint)


def test_connections_are_refused_once_a_server_is_gone() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert takes_connections("127.0.0.1", port)
    assert not takes_connections("127.0.0.1", port)


def test_one_port_cannot_have_both_protocols() -> None:
    with pytest.raises(NotReadyError, match="cannot share port 8500"):
        require_free(Address("127.0.0.1", 8500, 8500))
