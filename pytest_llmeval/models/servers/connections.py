"""Open connections to one host, each with one request at a time.

A request through httpx2 costs over 1 ms of processor time, more than many servers take to answer a short one, and its
connections take bytes that follow a reply for the beginning of the next. So requests go directly over sockets; httpx2
is asked where a proxy stands between, and which certificates are trusted.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.servers.http1 import BadReply, ReplyReader

__all__ = ["Answer", "BrokenConnection", "Connections", "NoAnswer", "NoConnection", "Secret", "connections_to"]

CONNECT_TIMEOUT_S = 5.0
_COMMON: Mapping[str, str] = {"accept": "application/json", "accept-encoding": "identity"}
_KEY_HEADERS = ("authorization", "x-api-key")
_IDLE_S = 4.0
"""A connection that was idle for longer is not used again: many servers close theirs after 5 s."""


class NoConnection(Exception):
    """The host cannot be reached; the message says why."""


class BrokenConnection(Exception):
    """The connection ended before the reply did, or what came is no HTTP."""


class NoAnswer(Exception):
    """No whole reply within the time."""


class Secret:
    """What nothing shows: not a traceback with the values of variables, either."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return "***"


class Answer(NamedTuple):
    """A reply; the headers' names are lower-case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connections(Protocol):
    """Ways to one host."""

    async def exchange(self, method: str, path: str, content: bytes | None, timeout_s: float) -> Answer:
        """Ask for ``path`` and wait for the whole reply.

        Raises ``NoConnection``, ``BrokenConnection`` and ``NoAnswer``.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def connections_to(endpoint: Endpoint, headers: Secret) -> Connections:
    """Directly, or through the proxy that the environment names; never through one to this machine itself.

    ``headers``, a mapping, are sent with every request, and nowhere shown. Raises ``NoConnection`` for a proxy that
    cannot be used.
    """
    parts = urlsplit(endpoint.url)
    proxies = {} if endpoint.is_local else urllib.request.getproxies()
    is_proxied = bool(proxies.get(parts.scheme) or proxies.get("all"))
    if is_proxied and not urllib.request.proxy_bypass(parts.netloc):
        try:
            return _ThroughProxy(endpoint.host, headers)
        except Exception as error:  # with the values of its variables, its traceback would show the headers
            problem = str(error)
        raise NoConnection(f"the proxy that the environment names cannot be used: {problem}")
    return _Direct(parts.scheme == "https", parts.hostname or "", parts.port, parts.netloc, headers)


class _Direct:
    """Connections of our own."""

    def __init__(self, uses_tls: bool, host: str, port: int | None, netloc: str, headers: Secret) -> None:
        self._uses_tls = uses_tls
        self._host = host
        self._port = port or (443 if uses_tls else 80)
        lines = [f"{name}: {value}\r\n" for name, value in {"host": netloc, **_COMMON, **headers.reveal()}.items()]
        self._lines = Secret("".join(lines).encode("ascii"))
        self._idle: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None

    async def exchange(self, method: str, path: str, content: bytes | None, timeout_s: float) -> Answer:
        """See ``Connections``."""
        connection = self._take_idle() or await self._connect()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await connection.exchange(self._request(method, path, content))
        except TimeoutError:
            raise NoAnswer(f"no reply within {timeout_s:g} s") from None
        finally:
            connection.release()
        if connection.is_usable:
            self._idle.append(connection)
        return answer

    async def close(self) -> None:
        """See ``Connections``."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # transports close in the loop's next round

    def _request(self, method: str, path: str, content: bytes | None) -> Secret:
        first = f"{method} {path} HTTP/1.1\r\n".encode("ascii")
        if content is None:
            return Secret(b"%s%s\r\n" % (first, self._lines.reveal()))
        kind = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)
        return Secret(b"".join((first, self._lines.reveal(), kind, content)))

    def _take_idle(self) -> _Connection | None:
        """The connection that was used last; where that has expired, so have all the others."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.idle_s() < _IDLE_S:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._uses_tls and self._tls is None:
            import httpx2

            self._tls = httpx2.create_ssl_context()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls, happy_eyeballs_delay=0.25
                )
        except TimeoutError:
            raise NoConnection(f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be a host's
            raise NoConnection(_reason(error)) from None
        return connection


class _Connection(asyncio.Protocol):
    """One connection; between ``exchange`` and ``release`` it is in use."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = ReplyReader()
        self._done: asyncio.Future[None] | None = None
        self._idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def idle_s(self) -> float:
        return self._loop.time() - self._idle_since

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, request: Secret) -> Answer:
        """Send one request and wait for its reply."""
        if self._transport is None or not self.is_usable:
            raise BrokenConnection("the server closed it")
        self._done, self._reader = self._loop.create_future(), ReplyReader()
        self._transport.write(request.reveal())
        await self._done
        if self._reader.has_more:
            raise BrokenConnection("more came than one reply")
        return Answer(self._reader.status, self._reader.headers, self._reader.body)

    def release(self) -> None:
        """Make it ready for the next request, or close it, where its reply has not ended or it is to be the last."""
        reader, self._done, self._reader = self._reader, None, ReplyReader()
        if reader.is_done and reader.keeps_open and not reader.has_more:
            self._idle_since = self._loop.time()
        else:
            self.close()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._done is None:  # nothing was asked: whatever this is, it must not pass for the next reply
            self.close()
            return
        try:
            self._reader.feed(data)
        except BadReply as error:
            self._fail(str(error))
            return
        self._notice()

    def eof_received(self) -> None:
        try:
            self._reader.feed_end()
        except BadReply as error:
            self._fail(str(error))
            return
        self._notice()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("the server closed it" if error is None else _reason(error))

    def _notice(self) -> None:
        if self._reader.is_done and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, problem: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(BrokenConnection(problem))


class _ThroughProxy:
    """httpx2, which knows proxies. A connection serves one request: see the head of this module."""

    def __init__(self, host: str, headers: Secret) -> None:
        import httpx2

        _mask_logs(headers)
        self._host = host
        self._http = httpx2.AsyncClient(
            headers={**_COMMON, "connection": "close", **headers.reveal()},
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def exchange(self, method: str, path: str, content: bytes | None, timeout_s: float) -> Answer:
        """See ``Connections``."""
        import httpx2

        kind = {} if content is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s + CONNECT_TIMEOUT_S):
                found = await self._http.request(
                    method, self._host + path, content=content, headers=kind, timeout=timeout
                )
        except httpx2.ConnectTimeout:
            raise NoConnection(f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from None
        except (httpx2.ConnectError, httpx2.ProxyError, httpx2.UnsupportedProtocol) as error:
            raise NoConnection(str(error)) from None
        except (httpx2.TimeoutException, TimeoutError):
            raise NoAnswer(f"no reply within {timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise BrokenConnection(str(error)) from None
        return Answer(found.status_code, dict(found.headers), found.content)

    async def close(self) -> None:
        """See ``Connections``."""
        await self._http.aclose()


class _Mask(logging.Filter):
    """Takes secrets out of messages."""

    def __init__(self, secrets: Secret) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        for secret in self._secrets.reveal():
            message = message.replace(secret, "***")
        record.msg, record.args = message, None
        return True


def _mask_logs(headers: Secret) -> None:
    """httpx2 and what it stands on log what a server says, which may be our key."""
    keys = [value.rpartition(" ")[2] for name, value in headers.reveal().items() if name in _KEY_HEADERS]
    for name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy", "httpcore2.socks"):
        if keys:
            logging.getLogger(name).addFilter(_Mask(Secret(keys)))


def _reason(error: Exception) -> str:
    """Why a connection failed, in words that do not repeat the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS is spoken there ({error.reason}); did you mean http://?"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    return getattr(error, "strerror", None) or str(error)
