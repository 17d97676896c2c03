"""Connections to one host, through aiohttp, and what the replies over them mean.

httpx2, which huggingface_hub brings, was tried first: of a server that answers twice it takes the second reply for the
answer to the next request, and a request costs several times as much processor time. aiohttp closes such a connection.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import re
import ssl
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.text.redaction import hide_values, one_line

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "LONGEST_MESSAGE",
    "BrokenConnection",
    "Connections",
    "HttpReply",
    "NoAnswer",
    "NoConnection",
    "Reply",
    "Secret",
    "ServedBy",
    "TimedReply",
    "is_quota",
    "is_temporary",
    "is_unknown_model",
    "message_of",
    "retry_after_s",
    "served_by",
    "served_together",
    "status_within",
]


CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 4.0
"""Seconds after which an idle connection is not used again: many servers close theirs after 5 s."""
MAX_REPLY_BYTES = 1 << 27
MAX_REPLY_COMMAS = 10_000_000
"""Bounds on a reply. A longer one, or one of more values, is refused: a server that never stops would fill the memory.
"""
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


LONGEST_MESSAGE = 300
"""The most characters that are shown of a server's own message."""
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|unknown model|no such model|\bmodel:|\bmodels?\b.*\b(not exist|not found|unknown|access)", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's reply to one ``get``.

    ``headers`` have lower-case names; ``body`` is its JSON, None if it is none; ``text`` begins what was said,
    2,000 characters at most.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str

    def without(self, key: str) -> Reply:
        """Return the same with ``***`` in the place of a key, however JSON has escaped it."""
        headers = {name: hide_values(value, [key]) for name, value in self.headers.items()}
        return replace(self, headers=headers, body=_without(self.body, key), text=hide_values(self.text, [key]))

    @property
    def is_success(self) -> bool:
        """Return whether the status says that it was answered."""
        return 200 <= self.status < 300

    @property
    def is_html(self) -> bool:
        """Return whether it is a page for people."""
        return "html" in self.headers.get("content-type", "") or self.text.lstrip()[:1] == "<"


def _without(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return hide_values(value, [key])
    if isinstance(value, dict):
        return {_without(name, key): _without(inner, key) for name, inner in value.items()}
    return [_without(inner, key) for inner in value] if isinstance(value, list) else value


class TimedReply(dict[str, Any]):
    """A JSON object, and the seconds from its request, which had waited for its turn, to its end."""

    def __init__(self, body: Mapping[str, Any], *, seconds: float) -> None:
        super().__init__(body)
        self.seconds = seconds


class ServedBy(TypedDict):
    """The model and the system that gave a reply, as the server names them; None if it does not."""

    served_model: str | None
    system_fingerprint: str | None


_LONGEST_NAME = 200


def served_by(reply: Mapping[str, Any]) -> ServedBy:
    """Return the model that gave a reply, and the system that it ran on, as the reply names them."""
    return ServedBy(served_model=_name(reply, "model"), system_fingerprint=_name(reply, "system_fingerprint"))


def _name(reply: Mapping[str, Any], key: str) -> str | None:
    found = reply.get(key)
    return _shown_name(found) or None if isinstance(found, str) else None


@lru_cache(maxsize=256)
def _shown_name(found: str) -> str:
    """Return a name on one line; looking for secrets takes longer than all else of a reply, and names are few."""
    return one_line(found, _LONGEST_NAME)


def served_together(parts: Iterable[Any]) -> ServedBy:
    """Return the names behind several responses that count as one, each name once."""
    found = list(parts)

    def names(key: str) -> str | None:
        return ", ".join(dict.fromkeys(name for one in found if (name := getattr(one, key)) is not None)) or None

    return ServedBy(served_model=names("served_model"), system_fingerprint=names("system_fingerprint"))


def is_temporary(status: int) -> bool:
    """Return whether a later try may be answered."""
    return status in (408, 409, 429) or (status >= 500 and status != 501)


def message_of(reply: Reply) -> str:
    """Return what the server says of an error, on one line."""
    body = reply.body
    found: object = reply.text if body is None else ""
    if body is None and reply.is_html:
        found = "an HTML page"
    if isinstance(body, dict):
        error = body.get("error")
        found = error.get("message") if isinstance(error, dict) else error
        found = found or body.get("message") or body.get("detail") or ""
    if not isinstance(found, str):
        found = json.dumps(found)
    return one_line(found.strip().partition("\n")[0], LONGEST_MESSAGE)


def _error_in(reply: Reply) -> Mapping[str, Any]:
    error = reply.body.get("error") if isinstance(reply.body, dict) else None
    return error if isinstance(error, dict) else {}


def status_within(reply: Reply) -> int | None:
    """Return the status of an error that a gateway has wrapped into a 200."""
    code = _error_in(reply).get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else None


def is_quota(reply: Reply, status: int) -> bool:
    """Return whether nothing is left to pay requests with. The words "your quota" alone also mean that of a minute."""
    error = _error_in(reply)
    if status not in (400, 403, 429):
        return False
    words = f"{error.get('code')} {error.get('type')}"
    return bool(re.search(r"insufficient_quota|billing", words)) or "credit balance" in str(error.get("message"))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait that the header asks for: seconds, or a date."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def is_unknown_model(reply: Reply) -> bool:
    """Return whether a 404 means the model and not the path."""
    return _UNKNOWN_MODEL.search(f"{_error_in(reply).get('code')} {message_of(reply)}") is not None
