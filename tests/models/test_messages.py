"""No secret and no line break reaches a message."""

from __future__ import annotations

import pytest

from pytest_llmeval.text.redaction import describe, model_error, one_line, redact

_TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"401 for token {_TOKEN}.", "401 for token ***."),
        ("GET https://user:pa55word@host/x failed", "GET https://host/x failed"),
        ("https://host/x?token=abcdef&y=1", "https://host/x?token=***&y=1"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer ***"),
        ("max_tokens=5 and token embeddings", "max_tokens=5 and token embeddings"),
        ("sk-" + "a" * 20, "***"),
    ],
)
def test_redact(text: str, expected: str) -> None:
    assert redact(text, {}) == expected


def test_values_of_the_environment() -> None:
    environ = {"HF_TOKEN": "plain-and-secret", "MY_API_KEY": "k" * 12, "HOME": "somewhere", "TOKEN_X": "true"}
    assert redact("plain-and-secret, kkkkkkkkkkkk, somewhere, true", environ) == "***, ***, somewhere, true"


def test_one_line() -> None:
    assert one_line("a\n  b\t\x1b[31mc\u2028d\r\n") == r"a b \x1b[31mc d"
    assert one_line("\0a\u202eb\x9b\ud800") == r"\x00a\u202eb\x9b\ud800"
    assert one_line("a\ufeff \u200b b\xa0c") == "a b c"
    assert one_line("\x1b" * 100, limit=9) == r"\x1b\x1b…"
    assert one_line("a\x0bb\x0c\x1c \x1f\x85c\n") == r"a\x0bb\x0c\x1c \x1f\x85c"
    assert one_line("x" * 50, limit=10) == "x" * 9 + "…"


def test_describe() -> None:
    assert describe(ValueError("a\nb")) == "ValueError: a b"
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "very-secret-value")
    assert str(model_error("a\nb", "very-secret-value\nfails")) == "model a b: *** fails"
