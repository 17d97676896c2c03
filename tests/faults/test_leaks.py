"""Secrets of many forms in many places, and every output of a session and of our commands, which has none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.text import redaction
from tests.faults.leaks import BY_CONTEXT, BY_FORM, FORMS, PLACES, Place, echoing_server, files_below, leaks_in

OUTPUTS = (
    *(f"--llm-report=out/report.{suffix}" for suffix in ("json", "csv", "html", "md", "jsonl")),
    *("--junitxml=out/junit.xml", "--log-file=out/log.txt", "--log-file-level=DEBUG", "--llm-store=out/store"),
    *("-v", "--showlocals", "-rA", "--llm-report-prompts=full", "-p", "no:cacheprovider"),
)
COMMANDS = (
    *("show R", "show R --samples all --prompts", "show R --samples all --format json", "show R --format markdown"),
    *("compare R R", "compare R R --format markdown", "gate R --gate accuracy>=0 --format json"),
    *(f"export R --to {name}" for name in ("csv", "jsonl", "md", "questions", "html")),
    *("view R -o out/view.html", "merge R -o out/merged.json"),
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Forget what a session was told, which is no help to the next one in this process."""
    known = set(redaction._REMEMBERED)
    yield
    redaction._REMEMBERED.clear()
    redaction._REMEMBERED.update(known)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with echoing_server() as url:
        yield url


def outputs_of(
    pytester: pytest.Pytester,
    place: Place,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, dict[str, str]]:
    """Return the session's exit code, and all that it and our commands wrote, by name."""
    for name, text in place.files.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    (pytester.path / "out").mkdir()
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "out" / "summary.md"))
    options = [option.replace("SERVER", url) for option in place.options]
    result = pytester.runpytest(*OUTPUTS, *options)
    texts = {"terminal": result.stdout.str(), "stderr": result.stderr.str()}
    report = pytester.path / "out" / "report.json"
    if report.exists():
        capsys.readouterr()
        for command in COMMANDS:
            main([str(report) if word == "R" else word for word in command.split()])
            printed = capsys.readouterr()
            texts[f"llmeval {command}"] = printed.out + printed.err
    return int(result.ret), texts | files_below(pytester.path, [*place.files])


def test_the_search_finds_what_is_there() -> None:
    for form, value in FORMS.items():
        assert leaks_in({"text": f"a {value} b"}, FORMS)[0].startswith(f"{form} in text: ")
    assert leaks_in({"text": 'a "p%254%2B0w%26d%3C9%3E%3Bx"'}, BY_CONTEXT)
    assert not leaks_in({"text": "a *** b"}, FORMS)
    assert len(FORMS) >= 20
    assert not BY_FORM.keys() & BY_CONTEXT.keys()


_ALWAYS = ("environment", "chained exceptions", "arguments of other names", "a server that repeats its key, short")


def _tier(number: int, place: Place) -> list[pytest.MarkDecorator]:
    """Return the mark of a place: four are always tried, of the others each fourth in the slow tier."""
    return [] if place.name in _ALWAYS else [pytest.mark.campaign if number % 4 else pytest.mark.slow]


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=_tier(number, place), id=place.name) for number, place in enumerate(PLACES)]
)
def test_no_secret_is_shown(
    llm_pytester: pytest.Pytester,
    server: str,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, texts = outputs_of(llm_pytester, place, server, monkeypatch, capsys)
    assert not leaks_in(texts, place.forms)
    assert code in place.ends, texts["terminal"] + texts["stderr"]


def test_a_killed_session_leaves_no_secret(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal of a session whose process has died."""
    place = next(place for place in PLACES if place.name == "environment")
    for name, text in place.files.items():
        (llm_pytester.path / name).write_text(text, encoding="utf-8")
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    llm_pytester.makeconftest(
        "import os\n\ndef pytest_runtest_logfinish(nodeid):\n    os._exit(9) if nodeid.endswith('::s15') else None\n"
    )
    llm_pytester.runpytest_subprocess(*place.options, "--llm-report=out.json")
    assert (llm_pytester.path / "out.json.journal").exists()
    assert not leaks_in(files_below(llm_pytester.path, [*place.files, "conftest.py"]), FORMS)


def test_what_is_warned_of_shows_no_secret(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Code around a model warns, such as a library's."""
    value = FORMS["openai"]
    llm_pytester.makefile(".yaml", all="suite: all\nsamples: [{id: a, question: one, target: 'yes'}]\nscore: exact\n")
    llm_pytester.makepyfile(
        warning=f"import warnings\n\ndef model(prompt):\n    warnings.warn('old ' + {value[:9]!r} + {value[9:]!r})\n"
        "    return 'yes'\n"
    )
    result = llm_pytester.runpytest(*workers, "--llm-model=python:warning:model", "-Wdefault", "all.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*UserWarning: old [*][*][*]"])
    assert not leaks_in({"terminal": result.stdout.str()}, FORMS)


WORDS = ("yes", "accuracy", "internationalization", "gpt-4o-mini", "demo")


@pytest.mark.parametrize("key", ["12345678", "k3y", *(pytest.param(word, marks=pytest.mark.slow) for word in WORDS)])
def test_words_and_numbers_in_a_reply_stay_although_they_are_a_key(
    llm_pytester: pytest.Pytester, server: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reply says decides its score."""
    for name in ("API_KEY", "PASSWORD", "MY_TOKEN"):
        monkeypatch.setenv(name, key)
    rows = json.dumps([{"id": "a", "question": "two", "target": f"your key is {key}"}])
    llm_pytester.makefile(".yaml", all=f"suite: all\nsamples: {rows}\nscore: exact\n")
    result = llm_pytester.runpytest(f"--llm-model={server}?api_key_env=MY_TOKEN", "--llm-report=r.json", "all.yaml")
    assert result.ret == 0
    (record,) = json.loads((llm_pytester.path / "r.json").read_text())["records"]
    assert (record["status"], record["output"]) == ("correct", f"your key is {key}")
