"""A server that answers from a script, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

__all__ = ["CLOSE", "HANG", "Call", "ScriptedServer", "reply", "sent"]

CLOSE = b""
"""In a script: close the connection without a word."""
HANG = None
"""In a script: never answer."""


def sent(status: int, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """The bytes of a reply; ``length`` is what it says of its length."""
    lines = [f"HTTP/1.1 {status} Something", *headers, f"content-length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reply(body: object, status: int = 200, *headers: str) -> bytes:
    """The bytes of a JSON reply."""
    return sent(status, json.dumps(body).encode(), "content-type: application/json", *headers)


Step: TypeAlias = "bytes | Callable[[Call], bytes] | None"


@dataclass(frozen=True, slots=True)
class Call:
    """A request that came in, and the number of its connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int


@dataclass
class ScriptedServer:
    """``async with ScriptedServer([...]) as server: server.url``; the last step of the script is repeated."""

    steps: Sequence[Step]
    calls: list[Call] = field(default_factory=list)
    num_connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        number = self.num_connections
        try:
            while True:
                call = await _read(reader, number)
                if call is None:
                    return
                step = self.steps[min(len(self.calls), len(self.steps) - 1)]
                self.calls.append(call)
                if step is None:
                    await asyncio.Event().wait()
                answer = step(call) if callable(step) else step
                assert answer is not None
                writer.write(answer)
                await writer.drain()
                if not answer or (b"content-length" in answer and _is_short(answer)):
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)


def _is_short(answer: bytes) -> bool:
    """Whether fewer bytes follow than it says."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return len(body) < int(head.rpartition(b"content-length: ")[2].split(b"\r\n")[0])


async def _read(reader: asyncio.StreamReader, connection: int) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ")
    pairs = [line.split(": ", 1) for line in head[1:] if line]
    headers = {name.lower(): value for name, value in pairs}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(method, path, headers, json.loads(content) if content else None, connection)
