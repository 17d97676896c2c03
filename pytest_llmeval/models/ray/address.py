"""Whether there can be a Ray cluster at an address, found out without Ray.

Ray itself waits for minutes where something else listens, such as its own dashboard, and then ends the whole process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from pytest_llmeval.errors import ModelError
from pytest_llmeval.text.redaction import describe

__all__ = ["check_reachable"]

_TIMEOUT_S = 10.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a client of HTTP/2 begins, with empty settings; Ray's head speaks gRPC, which is HTTP/2."""
_SETTINGS = 4
"""The kind of the frame with which a server of HTTP/2 begins; it is the fourth byte."""
_FRAME_BYTES = 9
_ADVICE = "`ray start --head` prints the address"


def check_reachable(address: str, environ: Mapping[str, str] | None = None) -> None:
    """Raise ``ModelError`` where nothing listens at ``HOST:PORT``, or what does is no Ray."""
    environ = os.environ if environ is None else environ
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ModelError(f"--llm-ray {address}: nothing listens there ({describe(error)}); {_ADVICE}") from None
    with connection:
        if environ.get("RAY_USE_TLS", "0") not in ("0", ""):
            return  # it answers nothing that is not encrypted
        if not _speaks_http2(connection):
            raise ModelError(f"--llm-ray {address}: what listens there is not the head of a Ray cluster; {_ADVICE}")


def _speaks_http2(connection: socket.socket) -> bool:
    found = b""
    try:
        connection.sendall(_GREETING)
        while len(found) < _FRAME_BYTES and (more := connection.recv(_FRAME_BYTES - len(found))):
            found += more
    except OSError:
        return False
    return len(found) == _FRAME_BYTES and found[3] == _SETTINGS
