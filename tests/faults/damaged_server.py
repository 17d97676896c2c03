"""A stub server of which one reply is damaged on the wire: status line, headers or body."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

from tests.faults.mutations import Payloads, damaged_bytes, damaged_json
from tests.servers.stub import StubServer, _Handler, _Reply

__all__ = ["DIALECTS", "DamagedServer"]

DIALECTS = ("vllm", "sglang", "llama-cpp-python", "llama-server", "ollama", "openai", "anthropic", "generic")

_STATUSES = (
    *(b"HTTP/1.1 200", b"HTTP/1.1 -1 x", b"HTTP/1.1 99 x", b"HTTP/1.1 1000 x", b"HTTP/9.9 200 OK", b"200 OK", b""),
    *(b"HTTP/1.1 204 No Content", b"HTTP/1.1 206 Partial", b"HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd"),
    *(b"HTTP/1.1 400 Bad", b"HTTP/1.1 401 No", b"HTTP/1.1 404 None", b"HTTP/1.1 429 Many\r\nRetry-After: 1e400"),
    *(b"HTTP/1.1 429 Many\r\nRetry-After: Thu, 99 Foo", b"HTTP/1.1 500 \xff", b"HTTP/1.1 503 x\r\nRetry-After: -5"),
    *(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 101 Switching", b"HTTP/1.1 " + b"2" * 5000),
    b"HTTP/1.1 302 Found\r\nLocation: http://203.0.113.1/",
)
_HEADERS = (
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Length: -1", b"Content-Length: 99999999999"),
    *(b"Content-Length: x", b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Type: text/html; charset=x"),
    *(b"X: " + b"a" * 100_000, b"Set-Cookie: a=b", b": empty", b"no colon", b"X: \x1b[31m", b"X: \xff\xfe\0", b"\0: x"),
    *(b"Connection: upgrade", b"Content-Type: \xff", b"Server: vllm\x1b[2J", b"\r\n" * 3),
)
_ENDLESS = ("spaces", "text", "brackets", "header", "objects")


class _DamagedHandler(_Handler):
    def send(self, reply: _Reply) -> None:
        stub = self.server.stub
        assert isinstance(stub, DamagedServer)
        head = [b"HTTP/1.1 %d Stub" % reply.status, b"Content-Type: " + reply.kind.encode()]
        head += [f"{name}: {value}".encode("latin-1") for name, value in reply.headers.items()]
        done = stub.damage(head, reply.body, self)
        if done is None:
            super().send(reply)
        else:
            self.close_connection = True


class DamagedServer(StubServer):
    """The ``place``-th reply (from 0) of it is damaged, and those after it with a chance of one in three.

    ``what`` says how. ``is_readable`` is whether a damaged body was a JSON object, which can say something else than
    the server meant.
    """

    def __init__(self, dialect: str, draw: random.Random, payloads: Payloads, place: int) -> None:
        super().__init__(dialect, instant=True, keep=False)
        self._server.RequestHandlerClass = _DamagedHandler
        self._draw, self._payloads, self._place = draw, payloads, place
        self._number = 0
        self._damage_lock = threading.Lock()
        self.what: list[str] = []
        self.is_readable = False

    def damage(self, head: list[bytes], body: bytes, handler: _Handler) -> str | None:
        """Send the reply damaged, and say how; None leaves it to be sent as it is."""
        with self._damage_lock:
            number, self._number = self._number, self._number + 1
            again = self._draw.random() < 0.3
            if number < self._place or (number > self._place and not again) or len(self.what) >= 5:
                return None
            how = self._draw.choice(("bytes", "value", "value", "value", "value", "status", "header", "cut", "endless"))
            if how == "endless" and (self.what or self._draw.random() < 0.7):
                how = "value"
            done = how
            if how == "bytes":
                body, done = damaged_bytes(body, self._draw)
            elif how == "value" and body[:1] in (b"{", b"["):
                body, done = damaged_json(body, self._draw, lambda _: self._draw.choice(self._payloads.scalars))
            elif how == "cut":
                body = body[: self._draw.randrange(len(body) + 1)]
            elif how == "status":
                head[0] = self._draw.choice(_STATUSES)
                done = f"status {head[0][:40]!r}"
            elif how == "header":
                head.insert(1, self._draw.choice(_HEADERS))
                done = f"header {head[1][:40]!r}"
            self.what.append(f"reply {number} ({handler.command} {handler.path[:40]}): {done}")
            self.is_readable |= how in ("bytes", "value", "status") and _is_object(body)
            kind = self._draw.choice(_ENDLESS)
        if how == "endless":
            self._flood(head, kind, handler)
        else:
            if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in head):
                head.append(b"Content-Length: %d" % len(body))
            head.append(b"Connection: close")
            handler.wfile.write(b"\r\n".join([*head, b"", b""]) + body)
            handler.wfile.flush()
        return done

    @staticmethod
    def _flood(head: list[bytes], kind: str, handler: _Handler) -> None:
        """4 GB, or as much as is taken."""
        block = {"spaces": b" ", "text": b"a", "brackets": b"[", "header": b"X: a\r\n", "objects": b"[],"}[kind]
        handler.wfile.write(b"\r\n".join(head) + b"\r\n" + (b"" if kind == "header" else b"\r\n"))
        handler.wfile.write({"text": b'{"a": "', "objects": b'{"a": ['}.get(kind, b""))
        block *= (1 << 20) // len(block)
        for _ in range(4096):
            handler.wfile.write(block)


def _is_object(body: bytes) -> bool:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)
