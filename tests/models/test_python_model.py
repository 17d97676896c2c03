"""What ``python:MODULE:NAME`` finds, and how it is asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pytest_llmeval.errors import ModelError, OptionError, RequestError
from pytest_llmeval.models.base import Model, NamedModel, identify
from pytest_llmeval.models.python.model import CallableModel
from pytest_llmeval.models.registry import check_model, load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, Message
from tests.models.support import one_line_of

SOURCE = """
import asyncio
from pytest_llmeval.types import GenerateResponse

def echo(prompt):
    return f"<{prompt}>"

def shout(prompt, times=1, *, loud=False):
    return (prompt.upper() if loud else prompt) * times

def settings(prompt, max_tokens, stop=(), temperature=None, seed=None, **others):
    return f"{max_tokens} {stop} {temperature} {seed} {sorted(others)}"

def chat(messages):
    return " | ".join(f"{turn['role']}: {turn['content']}" for turn in messages)

def counted(prompt):
    return GenerateResponse(text=prompt, num_tokens=7)

def nothing(prompt):
    return None

def number(prompt):
    return 5

def retrieves(prompt):
    found = {"docs": [{"text": "one"}, "two"], "none": [], "one": "all of it"}.get(prompt, None)
    return {"text": f"<{prompt}>", "contexts": found}

async def retrieves_later(prompt):
    return retrieves(prompt)

def retrieves_badly(prompt, api_key=""):
    return {
        "names": {"answer": "a", "documents": []},
        "more": {"text": "a", "contexts": [], "score": 1},
        "empty": {},
        "text": {"text": 5, "contexts": []},
        "contexts": {"text": "a", "contexts": [{"body": api_key}]},
        "number": {"text": "a", "contexts": 3},
    }[prompt]

def breaks(prompt, api_key="k"):
    return helper(prompt, api_key)

def helper(prompt, api_key):
    if "bad" in prompt:
        raise ValueError(f"no luck with {api_key}")
    return "fine"

running = most = 0

async def slow(prompt, prefix=""):
    global running, most
    running += 1
    most = max(most, running)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running -= 1
    if "bad" in prompt:
        raise KeyError("gone")
    return prefix + prompt

def later(prompt):
    return slow(prompt)

loops = set()

async def same_loop(prompt):
    loops.add(id(asyncio.get_running_loop()))
    return str(len(loops))

class Agent:
    def __init__(self, k=1, name="agent"):
        self.k, self.name = k, name
    def __call__(self, prompt):
        return f"{self.name} {self.k}"

class AsyncAgent:
    async def __call__(self, prompt):
        return "async"

class Scores:
    def __init__(self, base=0.0):
        self.base = base
    def loglikelihood(self, requests):
        from pytest_llmeval.types import LoglikelihoodResponse
        return [LoglikelihoodResponse(loglikelihood=-self.base, num_tokens=1) for _ in requests]

class Neither:
    pass

def make(k=1):
    return Agent(k, "made")

def make_from(size):
    return Agent(size, "made")

def make_text(size=1):
    return "text"

def make_broken(size=1):
    raise RuntimeError("no network")

agent = Agent(3, "global")
scores = Scores(2.0)
value = 5

class tools:
    echo = staticmethod(echo)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that can be imported, under a name that no other test uses."""
    name = f"agents_of_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def load(spec: str) -> Model:
    return load_model(parse_model_spec(spec), ModelSettings())


def write(model: Model, *prompts: str) -> list[str]:
    """Texts, or the messages of errors."""
    responses = model.generate([GenerateRequest(prompt) for prompt in prompts])
    return [response.text if isinstance(response, GenerateResponse) else str(response) for response in responses]


def refusal(spec: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(spec)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("echo", "<hi>"),
        ("tools.echo", "<hi>"),
        ("shout?times=2&loud=true", "HIHI"),
        ("counted", "hi"),
        ("slow?prefix=so-&shown=prefix", "so-hi"),
        ("later", "hi"),
        ("Agent", "agent 1"),
        ("Agent?k=5&name=x&shown=name", "x 5"),
        ("AsyncAgent", "async"),
        ("make", "made 1"),
        ("make?k=4", "made 4"),
        ("make_from?size=9", "made 9"),
        ("agent", "global 3"),
        ("settings?temperature=0.5", "256 [] 0.5 0 []"),
    ],
)
def test_what_can_be_named(module: str, name: str, text: str) -> None:
    model = load(f"python:{module}:{name}")
    assert write(model, "hi") == [text]
    assert identify(model).name == f"python:{module}:{name}".removesuffix("&shown=prefix").removesuffix("&shown=name")


def test_a_file(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds its neighbours, and is run once."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "neighbour.py").write_text("WORD = 'hello'\n")
    (folder / "own.py").write_text("from neighbour import WORD\ncount = 0\ndef f(prompt):\n    return WORD + prompt\n")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    assert write(load(f"python:{folder / 'own.py'}:f"), "!") == ["hello!"]
    monkeypatch.chdir(tmp_path)
    assert write(load("python:deep/own.py:f"), "!") == ["hello!"]


def test_settings_are_offered_by_name(module: str) -> None:
    model = load(f"python:{module}:settings")
    request = GenerateRequest("x", max_tokens=3, stop=("#",), temperature=0.5, seed=7, top_p=0.9)
    (response,) = model.generate([request])
    assert isinstance(response, GenerateResponse)
    assert response.text == "3 ['#'] 0.5 7 []"


def test_top_k_is_offered_where_a_suite_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search's own ``top_k`` stays what it is."""
    (tmp_path / "search_by_k.py").write_text(
        "def f(prompt, top_k=5, repetition_penalty=None):\n    return f'{top_k} {repetition_penalty}'\n"
        "def needs(prompt, top_k):\n    return str(top_k)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = load("python:search_by_k:f")
    asked = GenerateRequest("x", temperature=1.0, top_k=9, repetition_penalty=1.3)
    requests = [GenerateRequest("x"), asked, replace(asked, temperature=0.0)]
    assert [cast("GenerateResponse", one).text for one in model.generate(requests)] == ["5 None", "9 1.3", "5 1.3"]
    with pytest.raises(ModelError, match="missing a required argument: 'top_k'"):
        load("python:search_by_k:needs")
    given = load("python:search_by_k:needs?top_k=3")
    assert [cast("GenerateResponse", one).text for one in given.generate(requests)] == ["3", "3", "3"]


def test_who_takes_no_stop_strings_is_cut(module: str) -> None:
    model = load(f"python:{module}:echo")
    (response,) = model.generate([GenerateRequest("one two three", stop=("three", "two", ""))])
    assert isinstance(response, GenerateResponse)
    assert response.text == "<one "


def test_a_chat_is_a_list_of_messages(module: str) -> None:
    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    (response,) = load(f"python:{module}:chat").generate([GenerateRequest(turns)])
    assert isinstance(response, GenerateResponse)
    assert response.text == "system: Be brief. | user: Hi"


@pytest.mark.parametrize("name", ["breaks", "slow", "later"])
def test_what_it_raises_is_that_requests_error(module: str, name: str) -> None:
    found = write(load(f"python:{module}:{name}"), "good", "bad", "good")
    assert "raised" not in found[0] + found[2]
    first, *lines = found[1].split("\n")
    error = "ValueError: no luck with k" if name == "breaks" else "KeyError: 'gone'"
    assert first == f"python:{module}:{name} raised {error}"
    assert lines[0] == "Traceback (most recent call last):"
    assert "pytest_llmeval" not in found[1]
    assert f"{module}.py" in lines[1]
    assert lines[-1] == error


def test_secrets_stay_inside(module: str) -> None:
    model = load(f"python:{module}:breaks?api_key=hush-hush")
    (message,) = write(model, "bad")
    assert "hush" not in message + identify(model).name + refusal(
        f"python:{module}:make_text?size=hush-hush&key=hush-hush"
    )
    assert "no luck with ***" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "returned None, expected a str (or the ids of documents, where they are judged)"),
        ("number", "returned 5 (int), expected a str"),
    ],
)
def test_what_is_no_text_is_an_error(module: str, name: str, words: str) -> None:
    (response,) = load(f"python:{module}:{name}").generate([GenerateRequest("x")])
    assert isinstance(response, RequestError)
    assert one_line_of(response) == f"python:{module}:{name} {words}"


@pytest.mark.parametrize("name", ["retrieves", "retrieves_later"])
def test_contexts_come_with_a_text(module: str, name: str) -> None:
    prompts = {"docs": ("one", "two"), "none": (), "one": ("all of it",), "nothing": ()}
    model = load(f"python:{module}:{name}")
    responses = model.generate([GenerateRequest(prompt, stop=(">",)) for prompt in prompts])
    for response, (prompt, contexts) in zip(responses, prompts.items(), strict=True):
        assert isinstance(response, GenerateResponse)
        assert (response.text, response.contexts) == (f"<{prompt}", contexts)
    (response,) = load(f"python:{module}:echo").generate([GenerateRequest("docs")])
    assert isinstance(response, GenerateResponse)
    assert response.contexts is None


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("names", "a mapping with the keys 'answer', 'documents', expected a str, or a mapping with text and contexts"),
        ("more", "a mapping with the keys 'text', 'contexts', 'score', expected a str, or a mapping with text and"),
        ("text", "5 (int), expected a str"),
        (
            "contexts",
            "contexts: entry 1 is a mapping with the keys 'body', expected a text, or a mapping with a",
        ),
        ("number", "contexts: found 3 (a whole number), expected a text, or a mapping with a text under text"),
    ],
)
def test_a_mapping_that_is_no_text_with_contexts(module: str, prompt: str, words: str) -> None:
    model = load(f"python:{module}:retrieves_badly?api_key=hush-hush")
    (response,) = model.generate([GenerateRequest(prompt)])
    assert isinstance(response, RequestError)
    assert f"returned {words}" in one_line_of(response)
    assert "hush" not in str(response)


@pytest.mark.parametrize(("arguments", "most"), [("", 8), ("?concurrency=3", 3)])
def test_concurrency_is_bounded(module: str, arguments: str, most: int) -> None:
    prompts = [f"p{n}" for n in range(20)]
    assert write(load(f"python:{module}:slow{arguments}"), *prompts) == prompts
    assert sys.modules[module].most == most


def test_all_calls_share_one_loop(module: str) -> None:
    model = load(f"python:{module}:same_loop")
    assert write(model, "a") + write(model, "b", "c") == ["1"] * 3


def test_progress_is_reported(module: str) -> None:
    for name in ("echo", "slow"):
        told: list[tuple[int, int]] = []
        model = load(f"python:{module}:{name}")
        assert isinstance(model, CallableModel)
        model.on_progress = lambda done, total, told=told: told.append((done, total))
        write(model, "a", "b")
        assert told == [(1, 2), (2, 2)]


def test_an_object_keeps_its_methods(module: str) -> None:
    model = load(f"python:{module}:Scores?base=3")
    assert isinstance(model, NamedModel)
    (response,) = model.loglikelihood([LoglikelihoodRequest("a", " b")])
    assert getattr(response, "loglikelihood", None) == -3.0
    assert not hasattr(model, "generate")
    assert identify(load(f"python:{module}:scores")).name == f"python:{module}:scores"


def test_a_function_has_no_likelihoods(module: str) -> None:
    with pytest.raises(ModelError, match=r"a function returns a text.*loglikelihood\(requests\)"):
        load(f"python:{module}:echo").loglikelihood([LoglikelihoodRequest("a", " b")])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ecko", "there is no 'ecko' in"),
        ("ecko", "did you mean 'echo'?"),
        ("value", "value is an int"),
        ("Neither", "made a Neither, expected something to call"),
        ("make_text", "make_text() made a str, expected something to call"),
        ("make_broken", "raised RuntimeError: no network"),
        ("shout?tims=2", "did you mean 'times'?"),
        ("Agent?kk=2", "cannot be called with these arguments"),
        ("agent?k=2", "cannot be called with these arguments"),
        ("scores?base=2", "scores is an object, and cannot take base"),
    ],
)
def test_what_cannot_be_asked(module: str, name: str, words: str) -> None:
    message = refusal(f"python:{module}:{name}")
    assert words in message
    assert message.startswith(f"model python:{module}:{name}: ")
    assert ("Traceback" in message) == (name == "make_broken")


def test_what_a_factory_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did not foresee has a traceback."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "refuses.py").write_text("""import json

def crew(model=None):
    raise ValueError("which model?")

class Crew:
    def __init__(self, size=0):
        raise ValueError(f"size is {size}, expected 1 or more")

def reads(): json.loads("{")
def below(): json.JSONEncoder(indent=2, allow_nan=False).encode(float("nan"))
def lacks(): {}["a"]
""")
    assert refusal("python:refuses:crew") == (
        "model python:refuses:crew: crew() raised ValueError: which model? (refuses.py:4)"
    )
    assert refusal("python:refuses:Crew?size=-1").endswith(
        "Crew(size) raised ValueError: size is -1, expected 1 or more (refuses.py:8)"
    )
    for name in ("reads", "below", "lacks"):
        assert "Traceback" in refusal(f"python:refuses:{name}")


def test_code_that_fails_when_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fails_on_import.py").write_text("import json\n\njson.loads('{')\n")
    first, *lines = refusal("python:fails_on_import:f").split("\n")
    assert first.startswith("model python:fails_on_import:f: cannot import fails_on_import: JSONDecodeError: ")
    assert 'fails_on_import.py", line 3' in lines[1]
    (tmp_path / "syntax_error_here.py").write_text("def f(:\n")
    assert "syntax_error_here.py" in refusal("python:syntax_error_here:f")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    assert "it ends the process (sys.exit(3))" in refusal("python:exits:f")


def test_missing_modules_are_refused_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "never_imported.py").write_text("raise RuntimeError\n")
    check_model(parse_model_spec("python:never_imported:f"), ModelSettings())
    for spec, words in (
        ("python:not_there_at_all:f", "there is no module 'not_there_at_all' on the import path"),
        ("python:never_imported.inside:f", "'never_imported' is a module, not a package"),
        ("python:not/there.py:f", "there is no file not/there.py"),
    ):
        with pytest.raises(ModelError) as caught:
            check_model(parse_model_spec(spec), ModelSettings())
        assert words in one_line_of(caught.value)


@pytest.mark.parametrize("value", ["0", "many", "true"])
def test_concurrency_is_a_number(module: str, value: str) -> None:
    with pytest.raises(OptionError, match=r"concurrency is .*, expected a whole number above 0"):
        load(f"python:{module}:slow?concurrency={value}")


def test_a_skip_of_pytest_comes_through() -> None:
    async def skips(prompt: str) -> str:
        await asyncio.sleep(0)
        pytest.skip("no quota")

    model = CallableModel(skips, identify(object()), {})
    with pytest.raises(pytest.skip.Exception, match="no quota"):
        model.generate([GenerateRequest("x")])


@pytest.mark.parametrize("has_requirements", [True, False])
def test_what_a_module_lacks_is_installed_from_the_file_beside_it(tmp_path: Path, has_requirements: bool) -> None:
    path = tmp_path / "agent_without.py"
    path.write_text("import no_such_package_at_all\n")
    if has_requirements:
        path.with_name("requirements.txt").write_text("no-such-package==1\n")
    with pytest.raises(ModelError) as caught:
        load(f"python:{path}:answer")
    first = str(caught.value).splitlines()[0]
    assert "No module named 'no_such_package_at_all'" in first
    assert (
        first.endswith(f"; pip install -r {path.with_name('requirements.txt')} installs what it needs")
        is has_requirements
    )
