"""Connections to one host, through aiohttp.

httpx2, which huggingface_hub brings, was tried first: of a server that answers twice it takes the second reply for the
answer to the next request, and a request costs several times as much processor time. aiohttp closes such a connection.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.text.redaction import one_line

if TYPE_CHECKING:
    import aiohttp

__all__ = ["BrokenConnection", "Connections", "HttpReply", "NoAnswer", "NoConnection", "Secret"]

CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 4.0
"""A connection that was idle for longer is not used again: many servers close theirs after 5 s."""
MAX_REPLY_BYTES = 1 << 27
MAX_REPLY_COMMAS = 10_000_000
"""A reply that is longer, or holds more values, is no answer: a server that never stops would fill the memory."""
_COMMON: Mapping[str, str] = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "user-agent": "pytest-llmeval-suites",
}


class NoConnection(Exception):
    """The host cannot be reached; the message says why."""


class BrokenConnection(Exception):
    """The connection ended before the reply did, or what came is no HTTP, or too long."""


class NoAnswer(Exception):
    """The whole reply did not come within the time."""


class Secret:
    """A text that nothing shows: not a traceback with the values of variables, either."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return "***"


class HttpReply(NamedTuple):
    """A reply; the headers' names are lower-case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connections:
    """Ways to one host: directly, or through the proxy that the environment names; never through one to this machine.

    ``headers``, a mapping, are sent with every request, and nowhere shown. For use on one event loop.
    """

    def __init__(self, endpoint: Endpoint, headers: Secret) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._proxy = _proxy_to(endpoint)
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, method: str, path: str, content: bytes | None, timeout_s: float) -> HttpReply:
        """Ask for ``path`` and wait for the whole reply.

        Raises ``NoConnection``, ``BrokenConnection`` and ``NoAnswer``.
        """
        import aiohttp

        if self._session is None:
            self._session = self._opened()
        kind = {} if content is None else {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.request(
                method,
                f"{self._endpoint.host}{path}",
                data=content,
                headers=kind,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy.reveal(),
            ) as reply:
                body = await _read(reply)
        except BrokenConnection:
            raise
        except aiohttp.ConnectionTimeoutError:
            raise NoConnection(f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from None
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL) as error:
            raise NoConnection(_reason(error)) from None
        except TimeoutError:
            raise NoAnswer(f"no reply within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenConnection(_reason(error)) from None
        except Exception as error:  # a traceback would show the headers in aiohttp's variables
            raise BrokenConnection(type(error).__name__) from None
        headers: dict[str, str] = {}
        for name, value in reply.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        return HttpReply(reply.status, headers, body)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        return aiohttp.ClientSession(
            headers={**_COMMON, **self._headers.reveal()},
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S, ssl=ssl.create_default_context()),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await asyncio.sleep(0)  # transports close in the loop's next round


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """Return the whole body. Raises ``BrokenConnection`` for one that is too long, or would be as a value."""
    body = bytearray()
    num_commas = 0
    async for part in reply.content.iter_any():
        body += part
        num_commas += part.count(b",")
        if len(body) > MAX_REPLY_BYTES or num_commas > MAX_REPLY_COMMAS:
            raise BrokenConnection(f"the reply is too long: more than {len(body) >> 20} MiB")
    return bytes(body)


def _proxy_to(endpoint: Endpoint) -> Secret:
    """Return the proxy's URL, which may hold a password, or None. Not aiohttp's ``trust_env``: that sends logins of
    netrc.
    """
    parts = urlsplit(endpoint.url)
    proxies = {} if endpoint.is_local else urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return Secret(None if proxy is None or urllib.request.proxy_bypass(parts.netloc) else proxy)


def _reason(error: BaseException) -> str:
    """Return why a connection failed, in words that do not repeat the address."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS is spoken there ({error.reason}); did you mean http://?"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed it"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the reply was cut"
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)
