"""No secret and no line break reaches a message."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.redaction import describe, is_secret_value, model_error, one_line, redact
from pytest_llmeval.text.wording import quoted

_ROOT = Path(__file__).parents[2]
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


_A, _D = "abcdefghij", "0123456789"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("key " + "AK" + "IA" + (_A + _D[:6]).upper(), "key ***"),
        ("?key=" + "AI" + "za" + _A * 3 + _D[:5] + " failed", "?key=*** failed"),
        ("ya" + "29." + _A + _D, "***"),
        ("github" + "_pat_" + _A * 4, "***"),
        ("(" + "xo" + "xb-" + _D + "-" + _A + ")", "(***)"),
        ("ey" + _A + ".ey" + _A + "." + _A, "***"),
        ("sk" + "-ant-api03-" + _A + _D + "-" + _A, "***"),
        ("{'x-api-key': 'abc', 'Authorization': 'Bearer abc.def'}", "{'x-api-key': '***', 'Authorization': '***'}"),
        ('{"api_key": "a\\"b", "password": "pw", "n": 1}', '{"api_key": "***", "password": "***", "n": 1}'),
        ("[(b'authorization', b'Bearer abc')]", "[(b'authorization', b'***')]"),
        ("Authorization: Basic abcdef==", "Authorization: Basic ***"),
        ("Authorization: Bearer abc failed", "Authorization: Bearer *** failed"),
        ("AccountKey=abc/def+1==;EndpointSuffix=core", "AccountKey=***;EndpointSuffix=core"),
        ("AWS_SECRET_ACCESS_KEY=abc/def", "AWS_SECRET_ACCESS_KEY=***"),
        ("password: hunter2!", "password: ***"),
        ("https://h/x?sig=a%2Fb&code=404&sp=r", "https://h/x?sig=***&code=404&sp=r"),
        ("postgres://me:pa/ss@host:5432/db", "postgres://host:5432/db"),
        ("Set-Cookie: session=abcdef; Path=/", "Set-Cookie: ***"),
        (
            "x\n-----BEGIN RSA PRIVATE" + " KEY-----\nab\ncd\n-----END RSA PRIVATE" + " KEY-----\ny",
            "x\n-----BEGIN RSA PRIVATE" + " KEY----- *** -----END RSA PRIVATE" + " KEY-----\ny",
        ),
    ],
)
def test_forms_of_keys(text: str, kept: str) -> None:
    assert redact(text, {}) == kept
    assert redact(kept, {}) == kept


@pytest.mark.parametrize(
    "text",
    [
        "expected name=value, several with '&' between them; keys are given by api_key_env=MY_API_KEY",
        "the variable MY_KEY, which holds the key for http://h/v1, is not set; set it",
        "max_tokens=16, stop_token='<eos>', token_id: 5, num_tokens=1234567, pad_token=None, token=5",
        '{"token": "Paris", "logprob": -1.25, "key": "title", "signature": "(prompt, stop)"}',
        "password: wrong; secret: none; credentials: missing; api_key=None; password=<unset>; token: the first",
        "def f(api_key=config.key, password=password): return Client(api_key=key, secret=$SECRET)",
        "basic mathematics, Basic arithmetic tests, the bearer certificates of level-10 questions",
        "replay:x.json?key=results.0.output and replay:y.json?key=records",
        "python:my_agents:crew?planning=true&k=3&mode=***",
        "--llm-model vllm:x?api_key=***: there is no argument 'api_key'",
        "cookie: a biscuit; eyewitness.account.of_things; sk_learn_model_selection; pk-aaaa",
        "gpt2, gpt-4o-mini-2024-07-18, Qwen2.5-Coder-32B-Instruct, 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "https://host:8080/v1/models and git@github.com:org/repo.git, a@b.example, /home/me/secrets/key.json",
        "accuracy 0.750 [0.409, 0.929], n 8, p = 0.0002; sums.yaml:3: found 5 (a whole number), expected text",
        "the tokenizer's key/value cache; a secretary; passwords of 8 characters; authored by: somebody",
        "-----BEGIN CERTIFICATE-----",
        "hf_raise_for_status(response), hf-upload-committer, npm_config_registry_url",
        "sorted(results, key=_is_about_a_number), max(times, key=times.__getitem__), _KEY: _CookieKey",
        "http://h:1/v1?api_key_env=MY_KEY&timeout=5, `permissions: id-token: write`, `add_to_git_credential=True`.",
        '("OPENAI_API_KEY", "PASSWORD", "token"), concat(secret, ":", data), --token $HF_TOKEN, "Bearer {token}"',
        "the secret: ``the_word``, a password: wrong., CACHE_KEY=linux-py3",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text, {}) == text
    quoted = repr(text)
    assert redact(quoted, {}) == quoted


@pytest.mark.parametrize(
    "path", [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_our_pages_stay(path: Path) -> None:
    """They hold commands, options, code and output such as messages quote, and no secret."""
    text = path.read_text(encoding="utf-8")
    assert redact(text, {}).splitlines() == text.splitlines()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("{&quot;api_key&quot;: &quot;ab1&quot;}", "{&quot;api_key&quot;: &quot;***&quot;}"),
        (json.dumps(json.dumps({"api_key": "ab1"})), json.dumps(json.dumps({"api_key": "***"}))),
        ("?next=https%3A%2F%2Fh%2Fx%3Fapi_key%3Dab1", "?next=https%3A%2F%2Fh%2Fx%3Fapi_key%3D***"),
        ("<apiKey>ab1</apiKey><n>2</n>", "<apiKey>***</apiKey><n>2</n>"),
        ("tool --hf-token abcdef1 --n 5, curl -u me:ab1 URL", "tool --hf-token *** --n 5, curl -u me:*** URL"),
        ("Settings(api_key='ab1', k=3)", "Settings(api_key='***', k=3)"),
        ('found \'{"password": "Fq8Fq…\' (text), expected', 'found \'{"password": "***\' (text), expected'),
        ('{"password": "Fq8 Fq8zz', '{"password": "***'),
        ("postgres%3A%2F%2Fbob%3As3cr3tPw9x%40h%2Fdb", "postgres%3A%2F%2Fh%2Fdb"),
        ("u=mysql%253A%252F%252Fbob%253Ap%252540s%25252Fw%2540h%252Fdb&n=2", "u=mysql%253A%252F%252Fh%252Fdb&n=2"),
        ("http%3A%2F%2Fh%3A8080%2Fx%3Fto%3Da%40b", "http%3A%2F%2Fh%3A8080%2Fx%3Fto%3Da%40b"),
        (r'{"u": "https:\/\/me:pa55word@h\/x"}', r'{"u": "https:\/\/h\/x"}'),
    ],
)
def test_what_is_assigned_to_a_name_however_it_is_written(text: str, kept: str) -> None:
    assert redact(text, {}) == kept
    assert redact(kept, {}) == kept


@pytest.mark.parametrize("around", ["", "a", "ab", "abc"])
def test_a_long_value_in_base64(around: str) -> None:
    value = "Qx7/mKp2+LwZr9TyUiO0a=="
    for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes):
        encoded = encode(f"{around}{value}{around}".encode()).decode()
        left = redact(encoded, {"MY_SECRET": value})
        assert len(left.replace("***", "").replace(encoded[-8:], "")) <= len(around) * 3 + 8, left


@given(st.text(max_size=300))
def test_any_text_is_redacted_once(text: str) -> None:
    assert redact(redact(text, {}), {}) == redact(text, {})


@given(
    st.lists(
        st.from_regex(
            r"[a-z]{1,12}|[0-9]{1,9}|[0-9]{1,6}\.[0-9]{1,6}|(/[a-z]{1,8}){1,4}|[A-Z][a-z]{1,8}\.", fullmatch=True
        ),
        max_size=30,
    )
)
def test_words_numbers_and_paths_stay(words: list[str]) -> None:
    text = " ".join(words)
    environ = {
        "MY_TOKEN": "test",
        "A_KEY": "gpt2",
        "PIN_TOKEN": "1234567",
        "B_PASSWORD": "true",
        "C_SECRET": "/home/me",
    }
    assert redact(text, environ) == text


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=20, max_size=60), st.text(max_size=40))
def test_a_value_of_the_environment_is_found_however_it_is_written(value: str, around: str) -> None:
    value = f"Q7{value.strip()}x9"
    for spelled in (value, json.dumps(value), repr(value), html.escape(value), quote(value), quote(value, safe="")):
        assert value not in redact(f"{around} {spelled} {around}", {"MY_SECRET": value}).replace(around, "")


def test_values_that_are_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    for value in (
        *("true", "1", "test", "gpt2", "1234567", "not-needed", "lm-studio", "ollama", "/home/me/key", "~/x/y.json"),
        *("there", str(tmp_path / "key"), "C:\\keys\\one", "https://auth.example/token", "disabled", "12:30:15"),
    ):
        assert not is_secret_value(value, "MY_TOKEN"), value
        assert redact(f"a {value} b", {"MY_TOKEN": value}) == f"a {value} b"
    for value in (
        "Qx7/mKp2LwZr9TyUiO0a",
        "/Qx7/mKp2LwZr9TyUiO0a",
        "//Qx7mKp2LwZr9TyUiO0a",
        "x:9dkfjW2lqq",
        "pa/ss/word-long-1",
        "k3y-9x",
        "correcthorse",
        "p w d 1",
    ):
        assert redact(f"a {value} b", {"MY_PASSWORD": value}) == "a *** b"
    assert redact("shortpw", {"MY_PASSWORD": "shortpw"}) == "***"
    assert redact("k3y-9xyz k3y-9x", {"MY_PASSWORD": "k3y-9x"}) == "k3y-9xyz ***", "no part of a word"
    urls = {"DATABASE_URLS": "postgres://me:h7unter@host/db,postgres://me:k%40x7-9qw@other/db"}
    assert redact("pw of db: h7unter, of the other: k@x7-9qw", urls) == "pw of db: ***, of the other: ***"


def test_arguments_of_ordinary_names_hide_what_looks_like_a_key() -> None:
    """Names of models, words and sentences stay in messages."""
    for value in (
        *(
            "gpt-4o-mini",
            "Qwen2.5-Coder-32B-Instruct",
            "mistralai/Mixtral-8x7B-Instruct-v0.1",
            "claude-sonnet-4-20250514",
        ),
        *("planning", "multi_agent_mode", "data/test.jsonl", "You are a helpful assistant!", "e5-mistral-7b-instruct"),
    ):
        assert not is_secret_value(value, "mode"), value
    for value in (
        "k3y-9xQ",
        "9f86d081884c7d659a2feaa0c55ad015",
        "Qx7/mKp2LwZr9TyUiO0a/SdFgHjKlZxCvBnM1234",
        "p%4+0w&d<9>;x",
    ):
        assert is_secret_value(value, "mode"), value


@pytest.mark.parametrize("before", ["%3A", "%253a", r"\n", r"\\t", "%2F"])
def test_an_escape_is_no_part_of_the_word_behind_it(before: str) -> None:
    environ = {"DB_URL": "mysql://root:p%40ss%2Fw0rdZ@db/x", "MY_PASSWORD": "k3y-9x"}
    for value in ("k3y-9x", "p@ss/w0rdZ", "p%40ss%2Fw0rdZ", "p%2540ss%252Fw0rdZ"):
        assert redact(f"bob{before}{value}%40h", environ) == f"bob{before}***%40h", value


def test_a_text_that_a_message_cuts_has_no_half_of_a_secret() -> None:
    for secret in ('"password": "Fq8Fq8zzX', _TOKEN):
        for length in range(90):
            shown = quoted("x" * length + " " + secret + '"' + "y" * 100)
            assert secret[-8:-5] not in shown, shown


def test_several_keys_in_one_variable() -> None:
    one, two = "Qx7mKp2LwZr9TyUiO0a", "SdFgHjKlZxCvBnM1234"
    for name in ("MY_API_KEYS", "SECRETKEYS", "PASSWORDS", "accessKeys"):
        assert redact(f"401 for {two}", {name: f"{one}, {two}"}) == "401 for ***", name
    assert redact(f"401 for {two}", {"SORT_KEYS": f"{one},{two}"}) == f"401 for {two}"
    assert redact("project my-project-name-1", {"MY_API_KEYS": '{"project": "my-project-name-1", "k": "a"}'})[-1] == "1"


def test_words_are_secrets_where_the_name_says_so() -> None:
    for name, is_one in {"SORT_KEY": False, "MY_API_KEY": True, "HF_TOKEN": True, "MY_PASSWORD": True}.items():
        assert is_secret_value("accuracy", name) is is_one, name


@pytest.mark.parametrize("name", ["AUTH", "MY_AUTH", "my-auth", "basicAuth", "AUTHORIZATION"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("basic", None),
        ("Negotiate", None),
        ("kerberos", None),
        ("oauth2-client-credentials", None),
        ("scram-sha-256", None),
        ("managed_identity", None),
        ("service-account", None),
        ("basic,digest", None),
        ("login.example.com", None),
        ("localhost:8080", None),
        ("auth-users.json", None),
        ("conf/users.htpasswd", None),
        ("true", None),
        ("disabled", None),
        ("correcthorse", "correcthorse"),
        ("correct-horse-battery", "correct-horse-battery"),
        ("admin:swordfish", "swordfish"),
        ("me:hunter2", "hunter2"),
        ("Basic bWU6c3dvcmQ", "bWU6c3dvcmQ"),
        ("bearer swordfish", "swordfish"),
    ],
)
def test_a_login_is_a_secret_and_a_way_to_log_in_is_none(name: str, value: str, shown: str | None) -> None:
    environ = {name: value}
    if shown is None:
        assert redact(f"a '{value}' b", environ) == f"a '{value}' b"
    else:
        assert redact(f"a '{value}' b, or '{shown}'", environ) == "a '***' b, or '***'"


@pytest.mark.parametrize("name", ["AUTH_METHOD", "AUTHOR", "MY_AUTH_KIND", "OAUTHBRIDGE"])
def test_what_is_only_about_logins_is_shown(name: str) -> None:
    assert redact("by correcthorse", {name: "correcthorse"}) == "by correcthorse"


def test_long_texts_take_no_time() -> None:
    """Texts that would be looked at again and again by expressions without bounds."""
    for part in (
        "a",
        "a.",
        "A-",
        "://",
        "x=",
        "password",
        '"api_key":',
        "-----BEGIN PRIVATE KEY-----",
        "Bearer ",
        "...",
        'key="',
        "token=",
        " --key ",
    ):
        redact(part * 20_000, {"MY_SECRET": "9f86d081884c7d659a2feaa0c55ad015"})


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
