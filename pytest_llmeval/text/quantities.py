"""Ages and sizes as a user writes and reads them: ``7d``, ``500MB``, ``2 h 05 min``."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Amount", "parse_age", "parse_size", "size_text", "time_text"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class Amount:
    """``value`` in seconds or bytes, and the ``text`` that the user wrote."""

    value: int
    text: str

    def __str__(self) -> str:
        return self.text


def parse_age(text: str) -> Amount:
    """``90s``, ``30m``, ``12h``, ``7d``, ``2w`` in seconds. Raises ``ValueError`` saying what is expected."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None or not int(found[1]):
        raise ValueError("expected a number with a unit of time, such as 12h or 7d (s, m, h, d, w)")
    return Amount(int(found[1]) * _SECONDS[found[2]], text.strip())


def parse_size(text: str) -> Amount:
    """``500MB`` or ``2GB`` in bytes. Raises ``ValueError`` saying what is expected."""
    found = re.fullmatch(r"([0-9]{1,6}) ?([KMGT]B)", text.strip().upper())
    if found is None:
        raise ValueError("expected a number with a unit, such as 500MB (KB, MB, GB, TB)")
    return Amount(int(found[1]) * _BYTES[found[2]], text.strip())


def size_text(num_bytes: int) -> str:
    """``12 B``, ``3.4 MB``."""
    for unit, size in reversed(_BYTES.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"


def time_text(seconds: float) -> str:
    """Two units at most: ``12 s``, ``3 min 20 s``, ``2 h 05 min``, ``4 d 02 h``."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest:02} s"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02} h" if days else f"{hours} h {minutes:02} min"
