"""A server in place of a real one: it speaks as vLLM, SGLang, llama.cpp, Ollama or a hosted API does, and can be wrong.

In a test ``with StubServer("vllm", faults=["shifted"]) as stub: stub.url``; as a process
``python -m tests.servers.stub --dialect vllm --fault shifted``, which prints its URL.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.servers.language_models import DemoModel, InstantModel, LanguageModel, Words
from tests.servers.numbers_of_stub import FAULTS, Numbers, parse_faults
from tests.servers.wire import Refused
from tests.servers.wires import WIRES

__all__ = ["Seen", "StubServer"]

_QUESTIONS = (
    "/completions",
    "/completion",
    "/generate",
    "/messages",
    "/embeddings",
    "/api/chat",
    "/api/generate",
    "/api/embed",
)


@functools.cache
def _words() -> Words:
    return Words()


@functools.cache
def _demo_model() -> DemoModel:
    return DemoModel()


@functools.cache
def _instant_model() -> InstantModel:
    return InstantModel(_words().num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request. ``status`` is what it was answered with; 0: the connection was cut."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """Status 0 closes the connection without a word; ``cut`` sends half of the body, and then does."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "application/json"
    cut: bool = False


@dataclass(slots=True)
class _Record:
    """What the server saw. ``keep`` False counts and keeps nothing else."""

    keep: bool
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[Seen] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    askings: Counter[bytes] = field(default_factory=Counter)
    num_questions: int = 0
    num_open: int = 0
    max_open: int = 0


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], stub: StubServer) -> None:
        self.stub = stub
        self.connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news; what else goes wrong is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _HTTPServer

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.stub._respond(self, headers, raw)

    def send(self, reply: _Reply) -> None:
        """Send a reply."""
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or reply.cut

    def version_string(self) -> str:
        return self.server.stub.wire.software

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


class StubServer:
    """One server on 127.0.0.1. ``url`` is its API root, which ends in ``/v1``; ``host`` is without that.

    ``dialect`` is a name of ``wires.WIRES``, ``faults`` are names of ``FAULTS``, with a number where they take one
    (``errors-30:0.5``). ``instant`` answers from a table and not with the demo model. ``delay_s`` is slept before each
    answer to a question. ``key`` is the key that is asked for (None: any, or none). ``max_length`` is the context in
    tokens (Ollama's ``num_ctx``). ``elsewhere`` is where ``redirect`` sends to. ``keep`` False keeps no requests.
    ``says`` makes the text of a chat's reply from its request's body, where that begins with a system message;
    ``embeds`` the reply to a request for embeddings from its texts and the right reply. ``serves`` makes fields of a
    reply to a question (``model``, ``system_fingerprint``) from its request's body. ``says_left`` are headers of each
    reply to a question.
    """

    def __init__(
        self,
        dialect: str,
        *,
        faults: Sequence[str] = (),
        instant: bool = False,
        delay_s: float = 0.0,
        key: str | None = None,
        name: str = "demo",
        max_length: int = 4096,
        num_slots: int = 4,
        retry_after: str = "1",
        elsewhere: str = "http://127.0.0.1:9/v1",
        port: int = 0,
        keep: bool = True,
        on_death: Callable[[], None] | None = None,
        says: Callable[[dict[str, Any]], str] | None = None,
        embeds: Callable[[list[str], dict[str, Any]], Any] | None = None,
        serves: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        says_left: Mapping[str, str] | None = None,
    ) -> None:
        self.faults = parse_faults(faults)
        self.delay_s = delay_s
        self.retry_after = retry_after
        self.elsewhere = elsewhere
        model: LanguageModel = _instant_model() if instant else _demo_model()
        numbers = Numbers(model, _words(), self.faults)
        settings: dict[str, Any] = {"num_slots": num_slots} if dialect == "llama-server" else {}
        if instant:
            settings["root"] = "/no/such/folder"  # so that no tokenizer is loaded from it
        self._says = says
        self._embeds = embeds
        self._serves = serves
        self._says_left = says_left or {}
        self.wire = WIRES[dialect](numbers, name=name, max_length=max_length, key=key, **settings)
        self._record = _Record(keep)
        self._on_death = on_death
        self._server = _HTTPServer(("127.0.0.1", port), _Handler, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.host}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.die()
        self._thread.join()

    def die(self) -> None:
        """Stop listening, and cut every connection."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def seen(self) -> list[Seen]:
        """The requests, in the order in which they were answered."""
        with self._record.lock:
            return list(self._record.seen)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests to ``path``."""
        return [seen.body for seen in self.seen if seen.path == path]

    @property
    def counts(self) -> Counter[str]:
        """How many requests each path had."""
        with self._record.lock:
            return self._record.counts.copy()

    @property
    def statuses(self) -> Counter[int]:
        """How many requests were answered with each status."""
        with self._record.lock:
            return self._record.statuses.copy()

    @property
    def num_questions(self) -> int:
        """How many requests asked the model something."""
        return self._record.num_questions

    @property
    def max_open(self) -> int:
        """How many questions were open at once, at most."""
        return self._record.max_open

    def _respond(self, handler: _Handler, headers: dict[str, str], raw: bytes) -> None:
        """Answer one request. It is on record before the client has the reply."""
        path = handler.path.partition("?")[0]
        record = self._record
        is_question = handler.command == "POST" and path.endswith(_QUESTIONS)
        with record.lock:
            record.counts[path] += 1
            record.num_questions += is_question
            number = record.num_questions
            if is_question:
                record.num_open += 1
                record.max_open = max(record.max_open, record.num_open)
        reply = _Reply(status=0)
        try:
            if is_question and number > self.faults.get("dies-after", number):
                handler.close_connection = True
                threading.Thread(target=self._on_death or self.die, daemon=True).start()
            else:
                reply = self._answer(handler.command, path, headers, raw, is_question)
        finally:
            with record.lock:
                record.num_open -= is_question
                record.statuses[reply.status] += 1
                if record.keep:
                    body = _parsed(raw)
                    seen = Seen(method=handler.command, path=path, headers=headers, body=body, status=reply.status)
                    record.seen.append(seen)
        if reply.status:
            handler.send(reply)

    def _hits(self, name: str, raw: bytes, attempt: int) -> bool:
        """Whether a fault with a share hits this request; the same request asked again is another draw."""
        share = self.faults.get(name, 0.0)
        if share < 1 and attempt % 2:
            return False  # six failures, which end a sample, and of which its readiness takes some, are no luck then
        draw = hashlib.sha256(b"%s %d %s" % (name.encode(), attempt, raw)).digest()
        return share > int.from_bytes(draw[:4], "big") / 2**32

    def _answer(self, method: str, path: str, headers: dict[str, str], raw: bytes, is_question: bool) -> _Reply:
        if path.startswith("/stub"):
            if fault := path.removeprefix("/stub").strip("/"):
                self.faults[fault] = 1.0
            return _Reply(body=json.dumps(self.summary()).encode())
        if "html" in self.faults:
            return _Reply(body=b"<!DOCTYPE html><html><body>It works!</body></html>", kind="text/html")
        if "redirect" in self.faults:
            return _Reply(status=302, headers={"Location": self.elsewhere + path.removeprefix("/v1")})
        hit = set[str]()
        if is_question:
            with self._record.lock:
                attempt = self._record.askings[hashlib.sha256(raw).digest()]
                self._record.askings[hashlib.sha256(raw).digest()] += 1
            hit = {name for name in self.faults if self._hits(name, raw, attempt)}
            time.sleep(self.delay_s + self.faults.get("slow", 0.0))
        status, payload = 200, None
        more = {**self._says_left} if is_question else {}
        try:
            self._refuse(hit, headers)
            payload = self._payload(method, path, headers, _parsed(raw))
            if is_question and self._serves is not None:
                payload |= self._serves(_parsed(raw))
        except Refused as refused:
            status, payload = refused.status, refused.payload
            more |= refused.headers
        except (KeyError, TypeError, ValueError, IndexError) as error:
            status, payload = 400, self.wire.error(400, f"{type(error).__name__}: {error}").payload
        is_text = isinstance(payload, str)
        body = payload.encode() if is_text else json.dumps(payload).encode()
        if status == 200 and "not-json" in hit:
            body = b"upstream connect error or disconnect/reset before headers"
        if status == 200 and "twice" in hit:
            body += body
        kind = "text/plain" if is_text else "application/json"
        return _Reply(status=status, body=body, headers=more, kind=kind, cut="cut-body" in hit)

    def _payload(self, method: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> Any:
        """What the server answers; in words of ``says``, but for where nobody instructs it: a client's self-test."""
        if self._embeds is not None and path.endswith("/embeddings"):
            return self._embeds(body["input"], self.wire.answer(method, path, headers, body))
        messages = body.get("messages")
        if self._says is None or not messages or messages[0]["role"] != "system":
            return self.wire.answer(method, path, headers, body)
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        payload = self.wire.answer(method, path, headers, {**body, limit: 1})
        choice = payload["choices"][0]
        choice["message"]["content"], choice["finish_reason"] = self._says(body), "stop"
        return payload

    def _refuse(self, hit: set[str], headers: dict[str, str]) -> None:
        """Raise ``Refused`` for the faults that are errors."""
        wire = self.wire
        if "unauthorized" in self.faults:
            given = headers.get("authorization", headers.get("x-api-key", ""))
            raise wire.error(401, f"Incorrect API key provided: {given}", "invalid_request_error")
        if "quota" in hit:
            message = "You exceeded your current quota, please check your plan and billing details."
            error = {"message": message, "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
            raise Refused(429, {"error": error})
        if hit & {"429", "429-no-retry-after"}:
            refused = wire.error(429, "Rate limit reached for requests", "rate_limit_error", code="rate_limit_exceeded")
            raise Refused(429, refused.payload, {"Retry-After": self.retry_after} if "429" in hit else {})
        if "errors-30" in hit:
            raise wire.error(500, "The server had an error while processing your request.", "server_error")

    def summary(self) -> dict[str, Any]:
        """What ``GET /stub`` shows of a server that runs as a process."""
        record = self._record
        with record.lock:
            return {
                "counts": record.counts,
                "statuses": record.statuses,
                "num_questions": record.num_questions,
                "max_open": record.max_open,
                "num_distinct": len(record.askings),
                "most_askings": max(record.askings.values(), default=0),
            }


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", choices=WIRES, default="vllm")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[:NUMBER]", help=", ".join(FAULTS))
    parser.add_argument("--instant", action="store_true", help="a table of numbers in place of the demo model")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="before each answer")
    parser.add_argument("--key", help="the key that is asked for")
    parser.add_argument("--name", default="demo", help="of the model")
    parser.add_argument("--max-length", type=int, default=4096, metavar="TOKENS")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    stub = StubServer(
        options.dialect,
        faults=options.fault,
        instant=options.instant,
        delay_s=options.delay,
        key=options.key,
        name=options.name,
        max_length=options.max_length,
        port=options.port,
        keep=False,
        on_death=lambda: os._exit(1),
    )
    with stub, contextlib.suppress(KeyboardInterrupt):
        print(stub.url, flush=True)  # noqa: T201
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
