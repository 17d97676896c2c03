"""Replies of HTTP/1.1, read from bytes as they come (RFC 9112). Strict: what could be read in two ways is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["BadReply", "ReplyReader"]

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\0]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n\0]*)?")
_LONGEST_HEAD = 1 << 17


class BadReply(Exception):
    """What came is no HTTP, or no whole reply."""


class ReplyReader:
    """Reads one reply. ``is_done`` tells when it is whole; then ``status``, ``headers`` and ``body`` are its parts.

    Names of headers are lower-case; the values of one that comes several times are joined by commas.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body = b""
        self.is_done = False
        self.keeps_open = False
        """Whether the server keeps the connection open for another request."""
        self._buffer = bytearray()
        self._length: int | None = None
        self._is_chunked = False
        self._position = 0
        self._chunks: list[bytes] = []

    @property
    def has_more(self) -> bool:
        """Whether bytes follow the whole reply, which belong to none."""
        return self.is_done and len(self._buffer) > self._position

    def feed(self, data: bytes) -> None:
        """Take in what came. Raises ``BadReply``."""
        self._buffer += data
        while not self.status:
            if not self._read_head():
                return
        if self.is_done:
            return
        if self._is_chunked:
            self._read_chunks()
        elif self._length is not None and len(self._buffer) - self._position >= self._length:
            self._end(self._position + self._length)

    def feed_end(self) -> None:
        """Learn that the connection has ended. Raises ``BadReply`` where the reply has not."""
        if self.is_done:
            return
        if not self.status or self._is_chunked or self._length is not None:
            raise BadReply("it ended before the reply did")
        self._end(len(self._buffer))

    def _end(self, end: int) -> None:
        self.body = b"".join(self._chunks) if self._is_chunked else bytes(self._buffer[self._position : end])
        self._position = end
        self.is_done = True

    def _read_head(self) -> bool:
        """Whether a head was there; an informational one (1xx) is passed over."""
        end = self._buffer.find(b"\r\n\r\n", self._position)
        if end < 0:
            if len(self._buffer) - self._position > _LONGEST_HEAD:
                raise BadReply("its head does not end")
            if not b"HTTP/1.".startswith(self._buffer[self._position : self._position + 7]):
                raise BadReply("what came is no HTTP/1.1")
            return False
        first, *lines = bytes(self._buffer[self._position : end]).split(b"\r\n")
        matched = _STATUS_LINE.fullmatch(first)
        if matched is None:
            raise BadReply("what came is no HTTP/1.1")
        self._position = end + 4
        status = int(matched[2])
        if 100 <= status < 200:
            if status == 101:
                raise BadReply("it changed the protocol")
            return True
        self.status, self.headers = status, _headers(lines)
        self._find_length()
        tokens = {token.strip() for token in self.headers.get("connection", "").lower().split(",")}
        has_length = self._length is not None or self._is_chunked
        self.keeps_open = has_length and matched[1] == b"1" and "close" not in tokens
        return True

    def _find_length(self) -> None:
        encoding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        if self.status in (204, 304):
            self._length = 0
        elif encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise BadReply("its length is told in a way that is not known")
            self._is_chunked = True
        elif length is not None:
            told = {part.strip() for part in length.split(",")}
            if len(told) != 1 or not _LENGTH.fullmatch(text := told.pop()):
                raise BadReply("its length is no number")
            self._length = int(text)

    def _read_chunks(self) -> None:
        """Chunks as far as they are whole; behind the last, lines that nobody needs."""
        while (end := self._buffer.find(b"\r\n", self._position)) >= 0:
            matched = _CHUNK_SIZE.fullmatch(self._buffer, self._position, end)
            if matched is None:
                raise BadReply("a chunk's size is no number")
            size = int(matched[1], 16)
            first, last = end + 2, end + 2 + size
            if size == 0:
                self._read_trailers(end)
                return
            if len(self._buffer) < last + 2:
                return
            if self._buffer[last : last + 2] != b"\r\n":
                raise BadReply("a chunk is longer than its size")
            self._chunks.append(bytes(self._buffer[first:last]))
            self._position = last + 2

    def _read_trailers(self, end: int) -> None:
        close = self._buffer.find(b"\r\n\r\n", end)
        if close >= 0:
            self._end(close + 4)


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        matched = _HEADER.fullmatch(line)
        if matched is None:
            raise BadReply("a line of its head is no header")
        name, value = matched[1].decode("ascii").lower(), matched[2].decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
