"""Ages and sizes as users write and read them."""

from __future__ import annotations

import pytest

from pytest_llmeval.text.wording import parse_age, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), (" 2w ", 1_209_600)]
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text).value == seconds
    assert str(parse_age(text)) == text.strip()


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 days", "0d", "1.5h", "7D", "9999999d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match="a unit of time, such as 12h or 7d"):
        parse_age(text)


def test_sizes() -> None:
    assert [parse_size(text).value for text in ("1KB", "500 mb", "2GB")] == [1000, 500_000_000, 2_000_000_000]
    for text in ("", "500", "MB", "-1MB", "1.5GB"):
        with pytest.raises(ValueError, match="such as 500MB"):
            parse_size(text)
    assert [size_text(size) for size in (12, 1000, 3_400_000, 2_000_000_000)] == ["12 B", "1.0 KB", "3.4 MB", "2.0 GB"]
