"""What is said of an address without a Ray cluster, within moments."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.ray import cluster as address_module
from pytest_llmeval.models.ray.cluster import check_reachable


@contextmanager
def listening(reply: bytes | None) -> Iterator[str]:
    """The address of what replies so to a first message and hangs up; with None it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                if reply is None:
                    connection.recv(1000)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("settings", [b"", b"\0\3\0\0\0\x64"])
def test_a_server_of_grpc_may_be_a_cluster(settings: bytes) -> None:
    with listening(len(settings).to_bytes(3, "big") + b"\4\0\0\0\0\0" + settings) as address:
        check_reachable(address, {})


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"", None])
def test_a_server_of_something_else_is_refused(reply: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if reply is None:
        monkeypatch.setattr(address_module, "_TIMEOUT_S", 0.2)
    with listening(reply) as address, pytest.raises(ModelError) as caught:
        check_reachable(address, {})
    assert str(caught.value) == (
        f"--llm-ray {address}: what listens there is not the head of a Ray cluster; `ray start --head` prints the "
        "address"
    )


def test_with_tls_it_is_enough_that_something_listens() -> None:
    with listening(b"") as address:
        check_reachable(address, {"RAY_USE_TLS": "1"})


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.0.0.1:99999", "no..host:6379", "[::1]:9"])
def test_where_nothing_can_listen_one_line_says_so(address: str) -> None:
    with pytest.raises(ModelError, match="nothing listens there") as caught:
        check_reachable(address, {})
    assert "\n" not in str(caught.value)
