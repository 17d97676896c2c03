"""How models behind servers are named, what may be said of them, and what a slip is answered with."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.models.endpoints import DIALECTS, SERVER_ARGS, Endpoint, ServerArguments
from pytest_llmeval.models.registry import check_model, check_model_args, parse_model_spec
from pytest_llmeval.models.servers.kind import Remote
from pytest_llmeval.models.settings import ModelSettings, merge_model_args, parse_model_arg
from pytest_llmeval.models.specs import ModelSpec
from tests.models.support import one_line_of
from tests.support import REPOSITORY

KEY = "planted-4f7d2a91c0"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


def arguments_of(text: str, *model_args: str) -> ServerArguments:
    spec = parse_model_spec(text)
    assert isinstance(spec.kind, Remote)
    return spec.kind.server_arguments(spec, merge_model_args(map(parse_model_arg, model_args)))


def urls(arguments: ServerArguments) -> list[str]:
    return [endpoint.url for endpoint in arguments.endpoints]


@pytest.mark.parametrize(
    ("text", "url", "model"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1", None),
        ("http://localhost:8000", "http://localhost:8000/v1", None),
        ("HTTP://LocalHost:8000/", "http://localhost:8000/v1", None),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1", None),
        ("https://host:443/v1", "https://host/v1", None),
        ("http://[::1]:8000", "http://[::1]:8000/v1", None),
        ("http://bücher.example:1/v1", "http://xn--bcher-kva.example:1/v1", None),
        ("https://host/openai/v4", "https://host/openai/v4", None),
        ("http://h:1/v1#org/name", "http://h:1/v1", "org/name"),
        ("http://h:1/v1?model=org/name:8b", "http://h:1/v1", "org/name:8b"),
        ("http://h:1/v1#a%20b?timeout=5", "http://h:1/v1", "a b"),
        ("http://h:1/v1?timeout=5#name", "http://h:1/v1", "name"),
        ("http://h:1#name", "http://h:1/v1", "name"),
    ],
)
def test_urls(text: str, url: str, model: str | None) -> None:
    spec, found = parse_model_spec(text), arguments_of(text)
    assert spec.name == text.replace("?timeout=5", "")
    assert (urls(found), found.model, found.dialect) == ([url], model, None)


@pytest.mark.parametrize(
    ("text", "url", "model", "dialect", "variable", "protocol"),
    [
        ("openai:gpt-5", "https://api.openai.com/v1", "gpt-5", "openai", "OPENAI_API_KEY", "openai"),
        ("openai:ft:gpt:o::1", "https://api.openai.com/v1", "ft:gpt:o::1", "openai", "OPENAI_API_KEY", "openai"),
        ("anthropic:c", "https://api.anthropic.com/v1", "c", "anthropic", "ANTHROPIC_API_KEY", "anthropic"),
        ("ollama:llama3.2:1b", "http://127.0.0.1:11434/v1", "llama3.2:1b", "ollama", None, "openai"),
        ("https://api.openai.com/v1#x", "https://api.openai.com/v1", "x", None, "OPENAI_API_KEY", "openai"),
        ("http://api.openai.com/v1#x", "http://api.openai.com/v1", "x", None, None, "openai"),
        ("openai:x?base_url=http://h:1", "http://h:1/v1", "x", None, None, "openai"),
        ("openai:x?base_url=https://api.openai.com.evil.example", None, "x", None, None, "openai"),
        ("openai:x?base_url=https://h&api_key_env=MY_KEY", "https://h/v1", "x", None, "MY_KEY", "openai"),
        ("openai:x?api_key_env=MY_KEY", "https://api.openai.com/v1", "x", "openai", "MY_KEY", "openai"),
        ("anthropic:x?base_url=http://h", "http://h/v1", "x", "anthropic", None, "anthropic"),
        ("ollama:x?base_url=http://gpu:11434", "http://gpu:11434/v1", "x", "ollama", None, "openai"),
    ],
)
def test_a_key_goes_to_its_own_host_only(
    text: str, url: str | None, model: str, dialect: str | None, variable: str | None, protocol: str
) -> None:
    found = arguments_of(text)
    (endpoint,) = found.endpoints
    assert endpoint.url == url or url is None
    assert (found.model, found.dialect, endpoint.api_key_env) == (model, dialect, variable)
    assert endpoint.protocol == protocol


def test_replicas() -> None:
    text = (
        "http://a:1?base_url=http://b:2,api_key_env=B_KEY&base_url=http://c:3,max_connections=3,requests_per_minute=9"
        "&api_key_env=COMMON_ENV&requests_per_minute=50"
    )
    assert arguments_of(text).endpoints == (
        Endpoint(url="http://a:1/v1", api_key_env="COMMON_ENV", requests_per_minute=50),
        Endpoint(url="http://b:2/v1", api_key_env="B_KEY", requests_per_minute=50),
        Endpoint(url="http://c:3/v1", api_key_env="COMMON_ENV", max_connections=3, requests_per_minute=9),
    )
    assert urls(arguments_of("openai:x", "base_url=http://a", "base_url=http://b")) == ["http://a/v1", "http://b/v1"]
    with pytest.raises(OptionError, match=r"the server http://a/v1 is given twice, .* or with another api_key_env"):
        arguments_of("http://a?base_url=http://A/v1/")


def test_two_keys_of_one_address_are_two_endpoints() -> None:
    found = arguments_of("http://a?api_key_env=ONE_ENV&base_url=http://a,api_key_env=OTHER_ENV")
    assert [(one.url, one.api_key_env) for one in found.endpoints] == [
        ("http://a/v1", "ONE_ENV"),
        ("http://a/v1", "OTHER_ENV"),
    ]
    with pytest.raises(OptionError, match=r"the server http://a/v1 is given twice"):
        arguments_of("http://a?api_key_env=ONE_ENV&base_url=http://a,api_key_env=ONE_ENV")


def test_all_arguments() -> None:
    body = '{"top_k": 1, "stop_token_ids": [2], "deep": {"max_tokens_of_key": 3}}'
    text = f"http://h?tokenizer=org/t&dialect=vLLM&max_connections=7&max_length=64&timeout=1.5&extra_body={body}&price_in=0&price_out=2e1"
    found = arguments_of(text, "max_tokens_field=max_completion_tokens", "timeout=9", "dialect=llama_cpp_python")
    assert found == ServerArguments(
        endpoints=(Endpoint(url="http://h/v1", max_connections=7),),
        dialect="vllm",  # what stands behind the model counts more than --llm-model-arg
        tokenizer="org/t",
        timeout_s=1.5,
        extra_body={"top_k": 1, "stop_token_ids": [2], "deep": {"max_tokens_of_key": 3}},
        max_length=64,
        max_tokens_field="max_completion_tokens",
        price_in=0.0,
        price_out=20.0,
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("gpu", "http://gpu:11434/v1"),
        ("gpu:80", "http://gpu/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:99", "http://127.0.0.1:99/v1"),
        ("[::]:99", "http://127.0.0.1:99/v1"),
        ("http://gpu", "http://gpu/v1"),
        ("https://gpu.example", "https://gpu.example/v1"),
        ("http://gpu:7/", "http://gpu:7/v1"),
    ],
)
def test_ollama_host(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert urls(arguments_of("ollama:x")) == [url]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("localhost:8000/v1", "a URL without a scheme: did you mean http://localhost:8000/v1?"),
        ("localhost:8000", "did you mean http://localhost:8000?"),
        ("127.0.0.1:8000/v1/", "did you mean http://127.0.0.1:8000/v1/?"),
        ("gpu.example.org:80/v1#x", "did you mean http://gpu.example.org:80/v1#x?"),
        ("ftp://host/v1", "found a URL that begins with 'ftp'://, expected http:// or https://"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://h:99999/v1", "cannot be read"),
        ("http://[::1/v1", "cannot be read"),
        ("http://h/v1#", "expected a name that the server knows"),
        ("http://h/v1#a?model=b", "found 'model' twice"),
        ("http://h?timeout=5&timeout=6", "found 'timeout' twice"),
        ("http://h?timeout", "expected name=value after '?'"),
        ("http://h?modle=x", "there is no argument 'modle'; did you mean 'model'?"),
        ("openai:x?model=y", "there is no argument 'model'"),
        ("anthropic:", "expected anthropic:NAME, such as anthropic:"),
        ("ollama: ", "expected ollama:NAME"),
        ("u:planted@localhost:8000/v1", "a user name or a password"),
        ("http://h?base_url=u:planted@h2/v1", "base_url: the URL holds a user name or a password"),
        ("http://h?base_url=http://h2/v1?key=planted", "a URL with a query"),
        ("http://h?api_key_env=sk_planted_abc", "expected the name of an environment variable"),
        ("http://h/v1/chat/completions", "the URL is that of /chat/completions, expected the API's root: http://h/v1"),
        ("http://h?base_url=h2:1", "base_url: found 'h2:1', a URL without a scheme: did you mean http://h2:1?"),
        ("http://h?base_url=http://g?x=1", "a query or a fragment"),
        ("http://h?base_url=http://g,api_key=X", "expected URL,api_key_env=NAME,max_connections=N"),
        ("http://h?base_url=http://g,max_connections=0", "max_connections: found '0', expected a whole number"),
        ("http://h?max_connections=2.5", "found '2.5', expected a whole number, 1 or more"),
        (
            "http://h?requests_per_minute=0",
            "requests_per_minute: found '0', expected a whole number, 1 or more",
        ),
        ("http://h?requests_per_minute=0.5", "requests_per_minute: found '0.5', expected a whole number"),
        ("http://h?request_per_minute=5", "no argument 'request_per_minute'; did you mean 'requests_per_minute'?"),
        ("http://h?base_url=http://g,requests_per_minute=x", "requests_per_minute: found 'x', expected a whole number"),
        ("http://h?timeout=0", "found '0', expected a number of seconds above 0"),
        ("http://h?timeout=inf", "found 'inf', expected a number of seconds"),
        ("http://h?timeout=-1", "expected a number of seconds above 0"),
        ("http://h?price_in=-1", "expected a number, 0 or more"),
        ("http://h?price_out=nan", "expected a number, 0 or more"),
        ("http://h?dialect=vlm", "dialect: found 'vlm'; did you mean 'vllm'?"),
        ("http://h?dialect=tgi", "expected one of vllm, sglang"),
        ("http://h?extra_body=[1]", "extra_body: expected a JSON mapping"),
        ("http://h?extra_body={", "extra_body: expected a JSON mapping"),
        ('http://h?extra_body={"stream": true}', "extra_body: found 'stream', which each request sets itself"),
        ("http://h?max_tokens_field=a b", "max_tokens_field: found 'a b'"),
        ("http://h?tokenizer=", "tokenizer: found nothing, expected hub id or folder"),
    ],
)
def test_slips(text: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_model_spec(text)
    assert words in one_line_of(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{KEY}@host/v1",
        f"http://{KEY}@host/v1",
        f"http://h?base_url=http://me:{KEY}@host/v1",
        f"http://h?api_key={KEY}",
        f"http://h?api_key_env={KEY}",
        "http://h?api_key_env=sk-proj-1234",
        "http://h?api_key_env=sk1234abcd",
        f"http://h?base_url=http://g,api_key_env={KEY}",
        f"http://h?base_url=http://g,api_key={KEY}",
        f'http://h?extra_body={{"api_key": "{KEY}"}}',
        f'http://h?extra_body={{"a": [{{"Authorization": "Bearer {KEY}"}}]}}',
        f"openai:x?token={KEY}",
        f"ftp://me:{KEY}@host/v1",
        f"http://me:{KEY}/x@host/v1",
    ],
)
@pytest.mark.parametrize("way", ["model", "model-arg"])
def test_a_key_in_the_wrong_place_is_refused_and_not_shown(text: str, way: str) -> None:
    secret = KEY if KEY in text else text.rpartition("=")[2]
    _, mark, arguments = text.partition("?")
    if way == "model-arg" and not mark:
        pytest.skip("no argument")
    with pytest.raises(OptionError) as caught:
        parse_model_spec(text) if way == "model" else parse_model_arg(arguments)
    assert secret not in str(caught.value)
    one_line_of(caught.value)


def refusal(spec: ModelSpec, **settings: Any) -> str:
    with pytest.raises(LLMEvalError) as caught:
        check_model(spec, ModelSettings(**settings))
    return one_line_of(caught.value)


def test_a_missing_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_model_spec("openai:gpt-5")
    assert "the variable OPENAI_API_KEY" in refusal(spec)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    check_model(spec, ModelSettings())
    assert "the variable OTHER" in refusal(spec, model_args={"api_key_env": "OTHER"})
    check_model(parse_model_spec("http://h/v1"), ModelSettings())


@pytest.mark.parametrize(
    ("models", "argument", "words"),
    [
        (["demo"], "base_url=http://h", "base_url: means nothing for demo"),
        (["demo"], "price_in=1", "price_in: means nothing for demo"),
        (["openai:x"], "peft=./a", "peft: means nothing for openai:x"),
        (["http://a", "openai:x"], "add_bos=true", "add_bos: means nothing for http://a, openai:x"),
        (["http://a", "demo"], "max_length=3", None),
        (["openai:x"], "tokenizer=gpt2", None),
        (["demo"], "tokenizer=gpt2", None),
        (["demo", "openai:x"], "timeout=3", None),
        (["demo", "openai:x"], "peft=./a", None),
        (["python:a:f"], "timeout=3", None),
        ([], "timeout=3", None),
    ],
)
def test_arguments_that_mean_nothing(models: list[str], argument: str, words: str | None) -> None:
    settings = ModelSettings(model_args=merge_model_args([parse_model_arg(argument)]))
    specs = [parse_model_spec(model) for model in models]
    if words is None:
        check_model_args(specs, settings)
        return
    with pytest.raises(OptionError) as caught:
        check_model_args(specs, settings)
    assert one_line_of(caught.value).startswith(f"--llm-model-arg {words} (")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://h/v1", "http://H:80", True),
        ("http://h#a", "http://h?model=a", True),
        ("http://h#a", "http://h#b", False),
        ("http://h", 'http://h?extra_body={"a":1}', False),
        ("openai:a", "openai:a?base_url=https://api.openai.com/v1&dialect=openai", True),
    ],
)
def test_two_names_of_one_model(one: str, other: str, same: bool) -> None:
    specs = [parse_model_spec(text) for text in (one, other)]
    keys = [spec.kind.key(spec) for spec in specs]
    assert (keys[0] == keys[1]) is same


def test_every_argument_is_explained() -> None:
    assert all(SERVER_ARGS.values())
    for name in DIALECTS:
        assert arguments_of(f"http://h?dialect={name}").dialect == name


def test_naming_a_server_imports_no_library_of_the_network() -> None:
    code = (
        "import sys; from pytest_llmeval.models.registry import check_model, parse_model_spec\n"
        "from pytest_llmeval.models.specs import ModelSettings\n"
        "check_model(parse_model_spec('http://h/v1?timeout=3'), ModelSettings())\n"
        "print(sorted({'aiohttp', 'asyncio', 'ssl', 'filelock', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert found.stdout == "[]\n"


def test_a_hosted_address_is_given_its_key_in_its_own_way() -> None:
    spec = parse_model_spec("https://api.anthropic.com/v1#claude")
    (endpoint,) = spec.kind.server_arguments(spec, {}).endpoints  # type: ignore[attr-defined]
    assert (endpoint.protocol, endpoint.api_key_env) == ("anthropic", "ANTHROPIC_API_KEY")
