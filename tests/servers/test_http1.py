"""Replies read from bytes, against h11."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_llmeval.models.servers.http1 import BadReply, ReplyReader


def read(pieces: Sequence[bytes], ends: bool) -> tuple[int, bytes] | str:
    """Status and body; ``unfinished``; ``bad``."""
    reader = ReplyReader()
    try:
        for piece in pieces:
            reader.feed(piece)
        if ends:
            reader.feed_end()
    except BadReply:
        return "bad"
    return (reader.status, reader.body) if reader.is_done else "unfinished"


def read_by_h11(pieces: Sequence[bytes], ends: bool) -> tuple[int, bytes] | str:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        for piece in [*pieces, *([b""] if ends else [])]:
            connection.receive_data(piece)
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return status, body
                elif isinstance(event, h11.ConnectionClosed):
                    return "bad"
    except h11.RemoteProtocolError:
        return "bad"
    return "unfinished"


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[first:last] for first, last in itertools.pairwise(bounds) if last > first]


def chunked(parts: Sequence[bytes], trailers: bytes) -> bytes:
    return b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n" + trailers + b"\r\n"


HEADS = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n"])
STATUSES = st.sampled_from([b"200 OK", b"200", b"204 No", b"304 Not", b"404 Not Found", b"500 \xe9", b"429 a b"])
HEADERS = st.lists(
    st.sampled_from([b"X-A: b", b"x-a:", b"Connection: close", b"connection: keep-alive", b"Content-Type:\t a  "]),
    max_size=3,
)
CUTS = st.lists(st.integers(0, 10_000), max_size=6)
PARTS = st.lists(st.binary(max_size=40), max_size=4)


@given(HEADS, STATUSES, HEADERS, PARTS, st.sampled_from(["length", "chunked", "close"]), CUTS, st.booleans())
def test_sound_replies(
    before: bytes, status: bytes, headers: list[bytes], parts: list[bytes], way: str, cuts: list[int], ends: bool
) -> None:
    body = b"".join(parts)
    if way == "length":
        headers, data = [*headers, b"Content-Length: %d" % len(body)], body
    elif way == "chunked":
        headers, data = [*headers, b"Transfer-Encoding: Chunked"], chunked(parts, b"t: 1\r\n")
    else:
        data = body
    whole = before + b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"", b""]) + data
    if status[:3] in (b"204", b"304"):
        data, whole = b"", whole[: len(whole) - len(data)]
    found = read(cut(whole, cuts), ends)
    assert found == read_by_h11(cut(whole, cuts), ends)
    if way != "close" or ends:
        assert found == (int(status[:3]), b"" if status[:3] in (b"204", b"304") else body)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3), st.sampled_from(["length", "chunked"]), CUTS)
@example(0, b"H", "length", [])
def test_spoilt_replies(place: int, spoilt: bytes, way: str, cuts: list[int]) -> None:
    """We may be stricter than h11, and take nothing that it does not; what both take, they read alike."""
    if way == "length":
        whole = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 12\r\n\r\n" + b"0123456789ab"
    else:
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked([b"0123", b"45"], b"")
    place %= len(whole)
    whole = whole[:place] + spoilt + whole[place + len(spoilt) :]
    ours, theirs = read(cut(whole, cuts), True), read_by_h11(cut(whole, cuts), True)
    assert ours in (theirs, "bad")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * (1 << 18),
    ],
)
def test_what_is_no_reply(data: bytes) -> None:
    assert read([data], ends=False) == "bad"


def test_what_follows_is_noticed() -> None:
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
    reader = ReplyReader()
    reader.feed(one + one)
    assert (reader.body, reader.is_done, reader.has_more) == (b"ab", True, True)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close", False),
        (b"HTTP/1.1 200 OK", False),
    ],
)
def test_whether_another_request_may_follow(head: bytes, expected: bool) -> None:
    reader = ReplyReader()
    reader.feed(head + b"\r\n\r\n")
    reader.feed_end()
    assert reader.is_done
    assert reader.keeps_open is expected
