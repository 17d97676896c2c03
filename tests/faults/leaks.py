"""Secrets of many forms, put where sessions meet them, and the search for them in all that a session writes.

All keys are made up, and put together here so that no scanner of sources takes them for real ones.
"""

from __future__ import annotations

import base64
import html
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

__all__ = ["BY_CONTEXT", "BY_FORM", "FORMS", "PLACES", "Place", "echoing_server", "leaks_in"]

_A, _D = "abcdefghij", "0123456789"
_M = "Qx7mKp2LwZr9TyUi"

BY_FORM: Mapping[str, str] = MappingProxyType(
    {
        "aws id": "AK" + "IA" + (_A + _D[:6]).upper(),
        "google": "AI" + "za" + _A * 3 + _D[:5],
        "google oauth": "ya" + "29." + _A + _D + _A,
        "github": "gh" + "p_" + _M + _A + _D,
        "github fine": "github" + "_pat_" + _D + _A * 4,
        "gitlab": "gl" + "pat-" + _M + _D[:4],
        "slack": "xo" + "xb-" + _D + "-" + _A + _D,
        "openai": "sk" + "-proj-" + _M + _M + "_" + _A,
        "anthropic": "sk" + "-ant-api03-" + _M + "-" + _M,
        "hugging face": "hf" + "_" + _M + _A,
        "stripe": "sk" + "_live_" + _M + _D,
        "npm": "npm" + "_" + _M + _M + _D[:4],
        "jwt": "ey" + "J" + _A + _D + ".ey" + "J" + _A + _M + "." + _M,
        "private key": "-----BEGIN PRIVATE"
        + " KEY-----\nMIIE"
        + _M * 3
        + "\n"
        + _M * 2
        + "\n-----END PRIVATE"
        + " KEY-----",
        "webhook": "https://hooks.slack" + ".com/services/T" + _D[:8] + "/B" + _D[:8] + "/" + _M,
    }
)
"""Forms that are known for a key wherever they stand."""

BY_CONTEXT: Mapping[str, str] = MappingProxyType(
    {
        "aws": "Qx7/mKp2LwZr9TyUiO0a/SdFgHjKlZxCvBnM1234",
        "begins with a slash": "/x7QmKp2LwZr9TyUiO0a/SdFgHjKlZxCvBnM123",
        "hex": "9f86d081884c7d659a2feaa0c55ad015",
        "short": "k3y-9xQ",
        "password": "pa/ss/word-long-1",
        "basic": base64.b64encode(b"me:" + _M.encode()).decode(),
        "azure": (_M + "/" + _D) * 3 + "==",
        "special": "p%4+0w&d<9>;x",
    }
)
"""Secrets only by where they stand, or because a variable or an argument has them."""

FORMS: Mapping[str, str] = MappingProxyType({**BY_FORM, **BY_CONTEXT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place where secrets stand: ``files`` of a project, its environment, and the options of its session.

    ``forms`` are those that nothing may show. ``ends`` says how the session may end.
    """

    name: str
    options: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=lambda: FORMS)
    ends: Sequence[int] = (1,)


def _suite(name: str, ids: Sequence[str], score: str = "exact", **columns: str) -> str:
    rows = [{"id": one, "question": one, "target": "yes", **columns} for one in ids]
    return f"suite: {name}\nsamples: {json.dumps(rows)}\nscore: {score}\n"


_IDS = {name: f"s{number}" for number, name in enumerate(FORMS)}
_ALL = _suite("all", [*_IDS.values()])

# The texts lie in a file that is no output: so none stands in a source line of a traceback by itself.
_TEXTS = "import json, pathlib\nTEXTS = json.loads(pathlib.Path(__file__).with_name('texts.json').read_text())\n"


def _raising(name: str, texts: Mapping[str, str], body: str, **more: Any) -> Place:
    """Return the place of a model that for each sample does what ``body`` says with its text."""
    files = {
        "all.yaml": _suite("all", [*texts]),
        "texts.json": json.dumps(texts),
        "raising.py": f"{_TEXTS}\n{body}",
        **more.pop("files", {}),
    }
    return Place(name=name, options=("--llm-model=python:raising:model", "all.yaml"), files=files, **more)


_RAISE = "def model(prompt):\n    raise RuntimeError('denied: ' + TEXTS[prompt.strip()])\n"

_CHAINED = """
class Denied(Exception):
    pass

def inner(text):
    error = ValueError("inner " + text)
    error.add_note("note " + text)
    raise error

def model(prompt):
    text = TEXTS[prompt.strip()]
    try:
        try:
            inner(text)
        except ValueError as error:
            raise Denied("cause " + text) from error
    except Denied:
        raise ExceptionGroup("context " + text, [KeyError(text), ExceptionGroup("deep", [OSError(5, text, text)])])
"""

_OBJECT = """
class Whole:
    def __init__(self):
        self.texts = dict(TEXTS)

    def generate(self, requests):
        for request in requests:
            text = TEXTS[request.prompt.strip()]
            try:
                raise ConnectionError("inner " + text)
            except ConnectionError as error:
                raise RuntimeError(f"denied {text!r}") from error

model = Whole()
"""


def _environment() -> Place:
    names = {name: f"SERVICE_{number}_SECRET" for number, name in enumerate(FORMS)}
    environment = {names[name]: value for name, value in FORMS.items()}
    body = "import os\n\ndef model(prompt):\n    raise RuntimeError('denied: ' + os.environ[TEXTS[prompt.strip()]])\n"
    return _raising("environment", {_IDS[name]: names[name] for name in FORMS}, body, environment=environment)


def _spelled_in_other_ways() -> Iterator[Place]:
    """Yield places where long values of the environment are written in other ways than they have there."""
    values = {form: value for form, value in FORMS.items() if len(value) >= 16 and "\n" not in value}
    ways: Mapping[str, Callable[[str], str]] = {
        "base64": lambda value: base64.b64encode(f"me:{value}".encode()).decode(),
        "base64 in a URL": lambda value: base64.urlsafe_b64encode(f"some:{value}!".encode()).decode(),
        "base64 in lines": lambda value: base64.encodebytes(("x" * 50 + value).encode()).decode(),
        "broken": lambda value: f"{value[:9]}\n    {value[9:]}",
        "broken in JSON": lambda value: f"{value[:9]}\\n{value[9:]}",
        "quoted twice": lambda value: quote(quote(value, safe=""), safe=""),
        "codes of JSON": lambda value: "".join(one if one.isalnum() else f"\\u{ord(one):04X}" for one in value),
        "codes of HTML": lambda value: "".join(one if one.isalnum() else f"&#x{ord(one):X};" for one in value),
    }
    for name, way in ways.items():
        spelled = {form: way(value) for form, value in values.items()}
        texts = {_IDS[form]: text for form, text in spelled.items()}
        environment = {f"SERVICE_{_IDS[form]}_SECRET": value for form, value in values.items()}
        parts = {f"{form} {n}": part for form, text in spelled.items() for n, part in enumerate(text.split()[-2:])}
        yield _raising(f"environment, {name}", texts, _RAISE, environment=environment, forms=parts)


def _headers() -> Iterator[Place]:
    shapes = {
        "x-api-key": "{{'x-api-key': {0!r}, 'accept': '*/*'}}",
        "authorization": "{{'Authorization': 'Bearer {0}', 'n': 1}}",
        "raw": "[(b'authorization', b'Bearer {0}'), (b'accept', b'*/*')]",
        "curl": "curl -H 'Authorization: Bearer {0}' -H \"X-Api-Key: {0}\" http://h/v1",
        "cookie": "{{'Set-Cookie': 'session={0}; Path=/'}}",
        "json": '{{"api_key": {1}, "password": {1}, "client_secret": {1}}}',
        "keywords": "Client(api_key={0!r}, password={0!r})",
        "json in json": '{{"api_key": {1}, "Authorization": {1}}}',
        "html": "{{&quot;api_key&quot;: &quot;{2}&quot;, &#x27;password&#x27;: &#x27;{2}&#x27;}}",
        "lines of .env": "OPENAI_API_KEY={0}\nexport DB_PASSWORD={0}\nSTRIPE_SECRET: {0}",
        "yaml": "auth:\n  password: {0}\n  client_secret: {0}",
        "wire": "X-Auth-Token: {0}\r\nOcp-Apim-Subscription-Key: {0}\r\napi-key: {0}",
        "xml": "<password>{0}</password><apiKey>{0}</apiKey>",
        "connection": "Server=h;User Id=me;Password={0};SharedAccessKey={0}",
        "options": "tool --api-key {0} --password={0} failed",
        "curl -u": "curl -u me:{0} http://h/v1",
    }
    for name, shape in shapes.items():
        texts = {_IDS[form]: _filled(name, shape, value) for form, value in FORMS.items()}
        # A quote, a line break or a space ends what stands in no quotes of its own.
        forms = FORMS if name in ("x-api-key", "json", "json in json", "keywords") else _plain(FORMS)
        yield _raising(f"headers {name}", texts, _RAISE, forms=forms)


def _filled(name: str, shape: str, value: str) -> str:
    text = shape.format(value, json.dumps(value), html.escape(value))
    return json.dumps(text) if name == "json in json" else text


def _plain(forms: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in forms.items() if not set(value) & set(" \n;<>&,'\"")}


def _urls() -> Iterator[Place]:
    for name, shape in {
        "user info": "GET https://me:{0}@host.example/v1/x failed",
        "query": "GET https://host.example/x?api_key={0}&n=1 failed, https://h/x?a=1&access_token={0}",
        "signed": "GET https://h/x?sv=1&sig={0}&X-Amz-Signature={0}&X-Amz-Security-Token={0}",
        "in a URL": "GET https://h/login?next=https%3A%2F%2Fh%2Fx%3Fapi_key%3D{0}%26n%3D1",
        "proxy": "ProxyError: HTTPS_PROXY=http://me:{0}@proxy:8080, redis://:{0}@h:6379/0",
    }.items():
        texts = {_IDS[form]: shape.format(quote(value, safe="/")) for form, value in FORMS.items()}
        yield _raising(f"url {name}", texts, _RAISE)


def _arguments() -> Iterator[Place]:
    for kind, shape, forms in (
        ("named like secrets", "api_key_{}_token", FORMS),
        # Under such a name "pa/ss/word-long-1" may be the name of a model, which stays in messages.
        ("of other names", "a{}", {name: value for name, value in FORMS.items() if name != "password"}),
    ):
        names = {_IDS[form]: shape.format(number) for number, form in enumerate(forms)}
        query = "&".join(f"{names[_IDS[form]]}={quote(value, safe='')}" for form, value in forms.items())
        body = (
            f"NAMES = {names!r}\n\ndef model(prompt, **arguments):\n"
            "    raise RuntimeError('denied: ' + arguments[NAMES[prompt.strip()]])\n"
        )
        files = {
            "all.yaml": _suite("all", [*names]),
            "raising.py": body,
            "verdicts.yaml": _suite("verdicts", ["j"], "equivalence", response="a"),
        }
        refuses = "(_, **arguments):\n    raise RuntimeError('nothing for ' + ', '.join(arguments.values()))\n"
        judge = f"def judge{refuses}def embed{refuses}"
        yield Place(
            name=f"arguments {kind}", options=(f"--llm-model=python:raising:model?{query}", "all.yaml"), files=files
        )
        yield Place(
            name=f"arguments of a judge, {kind}",
            options=(
                f"--llm-judge=python:judging:judge?{query}",
                f"--llm-embedder=python:judging:embed?{query}",
                "verdicts.yaml",
            ),
            files={**files, "judging.py": judge},
        )
        ini = f"[pytest]\nllm_model =\n    python:raising:model?{query}\n"
        yield Place(name=f"ini, {kind}", options=("all.yaml",), files={**files, "pytest.ini": ini})
        broken = (
            "class model:\n    def __init__(self, **arguments):\n        raise ValueError(f'refused {arguments}')\n"
        )
        yield Place(
            name=f"a class that refuses, {kind}",
            options=(f"--llm-model=python:raising:model?{query}", "all.yaml"),
            files={**files, "raising.py": broken},
            ends=(1, 2, 4),
        )
        yield Place(
            name=f"arguments that cannot be read, {kind}",
            options=(f"--llm-model=python:raising:model?{query}&oops", "all.yaml"),
            files=files,
            ends=(4,),
        )
        yield Place(
            name=f"given twice, {kind}",
            options=(
                f"--llm-model=python:raising:model?{query}",
                f"--llm-model=python:raising:model?{query}2",
                "all.yaml",
            ),
            files=files,
            ends=(4,),
        )
        crash = "import os\n\ndef model(prompt, **arguments):\n    os._exit(3)\n"
        yield Place(
            name=f"a worker that crashes, {kind}",
            options=("-n2", f"--llm-model=python:raising:model?{query}", "all.yaml"),
            files={**files, "raising.py": crash},
        )


def _model_args() -> Iterator[Place]:
    for form, value in FORMS.items():
        shown = value if form in BY_FORM else ""
        shapes = {
            "api_key": f"api_key={value}",
            "extra_body": "extra_body=" + json.dumps({"api_key": value}),
            "user info": f"base_url=http://me:{quote(value, safe='/')}@host/v1",
            "a key for a name": f"api_key_env={value}",
            **({"alone": value} if shown else {}),
        }
        for name, text in shapes.items():
            yield Place(
                name=f"--llm-model-arg {name}, {form}",
                options=("--llm-model=http://127.0.0.1:9/v1", f"--llm-model-arg={text}", "all.yaml"),
                files={"all.yaml": _ALL},
                forms={form: value},
                ends=(4,),
            )
        for name, spec in {
            "user info": f"http://me:{quote(value, safe='/')}@127.0.0.1:9/v1",
            "query": f"http://127.0.0.1:9/v1?api_key={quote(value, safe='')}",
            "a key for a name": f"openai:x?api_key_env={quote(value, safe='')}",
        }.items():
            yield Place(
                name=f"--llm-model {name}, {form}",
                options=(f"--llm-model={spec}", "all.yaml"),
                files={"all.yaml": _ALL},
                forms={form: value},
                ends=(4,),
            )


def _files() -> Iterator[Place]:
    lines = "".join(f"SERVICE_SECRET_KEY={value}\n" for value in _plain(FORMS).values() if "\n" not in value)
    bare = "".join(f"{value}\n" for value in BY_FORM.values())
    for name, text, forms in (("variables", lines, _plain(FORMS)), ("bare", bare, BY_FORM)):
        for suffix in (".jsonl", ".csv", ".json", ".yaml", ".tsv"):
            suite = f"suite: all\ndataset: {{path: secret{suffix}}}\nscore: exact\n"
            yield Place(
                name=f"a data file {suffix}, {name}",
                options=("--llm-model=random", "all.yaml"),
                files={"all.yaml": suite, f"secret{suffix}": text},
                forms=forms,
                ends=(1, 2),
            )
        yield Place(
            name=f"a broken suite, {name}",
            options=("--llm-model=random", "all.yaml"),
            files={"all.yaml": f"suite: all\nscore: exact\n{text}"},
            forms=forms,
            ends=(1, 2, 4),
        )
        yield Place(
            name=f"a file of replies, {name}",
            options=("--llm-model=replay:secret.jsonl", "all.yaml"),
            files={"all.yaml": _ALL, "secret.jsonl": text},
            forms=forms,
            ends=(1, 2, 4),
        )


def _hand_written() -> Iterator[Place]:
    test = f"""
{_TEXTS}
import pytest

@pytest.mark.parametrize("number", range({len(FORMS)}))
def test_it(llm_model, llm_record, number):
    api_key = TEXTS[number]
    headers = {{"Authorization": "Bearer " + api_key}}
    print("asked with api_key=" + repr(api_key))
    llm_record(suite="hand", id=str(number), correct=False)
    assert headers is None
"""
    files = {"test_it.py": test, "raising.py": "def model(prompt):\n    return prompt\n"}
    texts = json.dumps([*FORMS.values()])
    yield Place(
        name="hand-written tests",
        options=("--llm-model=python:raising:model", "test_it.py"),
        files={**files, "texts.json": texts},
        forms=_plain(FORMS),
    )
    conftest = f"""
{_TEXTS}
import pytest

@pytest.fixture
def llm_model():
    password = TEXTS[0]
    raise ConnectionError(f"password={{password!r}}")
"""
    for form, value in FORMS.items():
        yield Place(
            name=f"a fixture, {form}",
            options=("all.yaml",),
            files={"all.yaml": _suite("all", ["a"]), "conftest.py": conftest, "texts.json": json.dumps([value])},
            forms={form: value},
        )


def _servers() -> Iterator[Place]:
    for form, value in FORMS.items():
        if not value.isascii() or not value.isprintable() or " " in value:
            continue
        suites = {
            "all.yaml": _suite("all", ["one", "two", "three"]),
            "verdicts.yaml": _suite("verdicts", ["two"], "equivalence", response="a"),
        }
        yield Place(
            name=f"a server that repeats its key, {form}",
            options=("--llm-model=SERVER?api_key_env=SOME_VARIABLE", "all.yaml"),
            files=suites,
            environment={"SOME_VARIABLE": value},
            forms={form: value},
        )
        yield Place(
            name=f"a judge that repeats its key, {form}",
            options=("--llm-judge=SERVER?api_key_env=SOME_VARIABLE", "verdicts.yaml"),
            files=suites,
            environment={"SOME_VARIABLE": value},
            forms={form: value},
        )


PLACES: tuple[Place, ...] = (
    _environment(),
    *_spelled_in_other_ways(),
    *_headers(),
    *_urls(),
    _raising("exceptions", {_IDS[name]: value for name, value in BY_FORM.items()}, _RAISE, forms=BY_FORM),
    _raising("chained exceptions", {_IDS[name]: value for name, value in BY_FORM.items()}, _CHAINED, forms=BY_FORM),
    _raising("an object with methods", {_IDS[name]: value for name, value in BY_FORM.items()}, _OBJECT, forms=BY_FORM),
    *_arguments(),
    *_model_args(),
    *_files(),
    *_hand_written(),
    *_servers(),
)


class _Echo(BaseHTTPRequestHandler):
    """Repeats the key that it is sent: in an error for "one", in its reply for "two"."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": "stub", "object": "model"}]})

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        key = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        if "one" in text:
            self._answer(400, {"error": {"message": f"bad request for key {key}", "headers": dict(self.headers)}})
            return
        said = f"your key is {key}" if "two" in text else "yes"
        choice = {"index": 0, "text": said, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        self._answer(200, {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 1}})


@contextmanager
def echoing_server() -> Iterator[str]:
    """Yield the URL of a server that repeats the key it is sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spellings(value: str) -> set[str]:
    """Return the spellings of the value that a file may hold; each line by itself of one that has several."""
    parts = [line for line in value.splitlines() if "-----" not in line] if "\n" in value else [value]
    found = set()
    for part in parts:
        found |= {part, json.dumps(part)[1:-1], repr(part)[1:-1], html.escape(part), quote(part), quote(part, safe="")}
        found.add(json.dumps(part)[1:-1].replace("/", "\\/"))
    return found


def leaks_in(texts: Mapping[str, str], forms: Mapping[str, str]) -> list[str]:
    """Return which form stands in which text."""
    return [
        f"{form} in {name}: …{text[max(0, place - 60) : place + 60]!r}"
        for name, text in texts.items()
        for form, value in forms.items()
        for spelling in _spellings(value)
        if (place := text.find(spelling)) >= 0
    ]


def files_below(folder: Path, without: Sequence[str]) -> dict[str, str]:
    """Return the texts of all files in a folder but for those that the project began with."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode("utf-8", "replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and str(path.relative_to(folder)) not in without and path.suffix != ".pyc"
    }
