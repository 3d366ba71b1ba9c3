"""Where a server answers."""

from __future__ import annotations

import socket
from errno import EADDRNOTAVAIL
from typing import NamedTuple

from ipulaunch.configs.errors import NotReadyError

_CONNECT_S = 1.0  # for a connection on this machine


class Address(NamedTuple):
    """A host, and a port for each protocol; 0 stands for any that is free."""

    host: str
    port: int
    rest_port: int


def require_free(address: Address) -> None:
    """Refuse a port that is taken, before a model is exported or loaded for it."""
    if address.port and address.port == address.rest_port:
        raise NotReadyError(
            f"gRPC and REST cannot share port {address.port}", hint="choose another with --port or --rest-port"
        )
    for port, option in ((address.port, "--port"), (address.rest_port, "--rest-port")):
        try:
            _bind(address.host, port)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            if not isinstance(error, OSError) or isinstance(error, socket.gaierror) or error.errno == EADDRNOTAVAIL:
                text, hint = f"this machine has no address {address.host}", "give --host one of its addresses"
            else:
                text = f"port {port} of {address.host} cannot be used"
                hint = f"another server may use it; choose another with {option}"
            raise NotReadyError(f"{text}: {reason}", hint=hint) from error


def takes_connections(host: str, port: int) -> bool:
    """Whether a server is there; one that ends refuses them before its process is gone."""
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError:
        return False
    return True


def _bind(host: str, port: int) -> None:
    """Take a port for a moment, as a server does."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        found.bind(where)
