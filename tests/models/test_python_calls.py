"""Calls of a user's function: how many at a time, how long each may take, and what it may raise."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, OptionError, RequestError
from pytest_llmeval.models.base import identify
from pytest_llmeval.models.python.calls import CallBounds, CallOutcome, Calls
from pytest_llmeval.models.python.model import CallableModel
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse

SHORT_S = 0.01


def model_of(function: Callable[..., Any], **bounds: Any) -> CallableModel:
    return CallableModel(function, identify(object()), {}, bounds=CallBounds(**bounds))


def texts(model: CallableModel, *prompts: str) -> list[str]:
    responses = model.generate([GenerateRequest(prompt) for prompt in prompts])
    return [response.text if isinstance(response, GenerateResponse) else str(response) for response in responses]


def test_a_plain_function_runs_in_threads_where_it_is_asked_for() -> None:
    """All calls are under way at once, or the barrier would not let one through."""
    barrier = threading.Barrier(3, timeout=60)

    def meets(prompt: str) -> str:
        barrier.wait()
        return prompt if threading.current_thread() is not threading.main_thread() else "main"

    assert texts(model_of(meets, concurrency=3), "a", "b", "c") == ["a", "b", "c"]
    assert texts(model_of(lambda prompt: threading.current_thread().name), "a") == [threading.current_thread().name]
    assert model_of(meets).answers_one_by_one
    assert not model_of(meets, concurrency=2).answers_one_by_one


def test_never_more_threads_than_asked_for() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def counts(prompt: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return prompt

    prompts = [str(number) for number in range(30)]
    assert texts(model_of(counts, concurrency=2), *prompts) == prompts
    assert 1 <= most <= 2


def test_what_is_late_is_that_samples_error_alone() -> None:
    never, ended = asyncio.Event(), []

    async def hangs(prompt: str) -> str:
        if prompt == "bad":
            try:
                await never.wait()
            finally:
                ended.append(prompt)
        return prompt

    model, late = model_of(hangs, timeout_s=SHORT_S), f"{identify(object()).name}: no reply within 0.01 s"
    assert texts(model, "a", "bad", "c") == ["a", late, "c"]
    assert ended == ["bad"], "it is cancelled, and may clean up"
    assert texts(model, "bad") == [late]


def test_a_late_thread_is_left_to_itself() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def hangs(prompt: str) -> str:
        if prompt == "bad":
            may_end.wait(60)
            has_ended.set()
        return prompt

    model = model_of(hangs, timeout_s=SHORT_S)
    (late,) = model.generate([GenerateRequest("bad")])
    assert type(late) is RequestError
    assert str(late).endswith("no reply within 0.01 s; its thread is left to itself")
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(60), "nothing ends it"


def test_its_own_time_limit_is_no_other_than_what_it_raises() -> None:
    async def gives_up(prompt: str) -> str:
        raise TimeoutError("the tool took too long")

    (text,) = texts(model_of(gives_up, timeout_s=60), "a")
    assert "raised TimeoutError: the tool took too long" in text


@pytest.mark.parametrize("bounds", [{}, {"timeout_s": 60.0}, {"concurrency": 2}], ids=str)
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "raised SystemExit: 3"),
        (asyncio.CancelledError("gone"), "raised CancelledError"),
        (StopIteration(), "raised "),
        (ExceptionGroup("several", [ValueError("no luck")]), "raised ExceptionGroup of ValueError: no luck"),
        (
            ExceptionGroup("several", [ExceptionGroup("inner", [KeyError("a")]), ValueError()]),
            "raised ExceptionGroup of KeyError: 'a' and others",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_it_raises(bounds: dict[str, Any], error: BaseException, words: str) -> None:
    def breaks(prompt: str) -> str:
        if prompt == "bad":
            raise error
        return prompt

    async def breaks_later(prompt: str) -> str:
        await asyncio.sleep(0)
        return breaks(prompt)

    def breaks_in_a_coroutine(prompt: str) -> Any:
        return breaks_later(prompt)

    for function in (breaks, breaks_later, breaks_in_a_coroutine):
        first, second, third = texts(model_of(function, **bounds), "a", "bad", "c")
        assert (first, third) == ("a", "c")
        assert words in second.split("\n")[0]
        (alone,) = texts(model_of(function, **bounds), "bad")
        assert words in alone.split("\n")[0]


@pytest.mark.parametrize("bounds", [{}, {"timeout_s": 60.0}], ids=str)
def test_an_interruption_comes_through(bounds: dict[str, Any]) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    async def interrupted_later(prompt: str) -> str:
        raise KeyboardInterrupt

    for function in (interrupted, interrupted_later):
        with pytest.raises(KeyboardInterrupt):
            model_of(function, **bounds).generate([GenerateRequest("a")])


def test_processes_share_their_number(tmp_path: Path) -> None:
    """Two models with one name and one folder stand for two processes: one call is under way in both together."""
    entered, may_go, order = threading.Event(), threading.Event(), []

    def first(prompt: str) -> str:
        entered.set()
        may_go.wait(60)
        order.append("first")
        return prompt

    def second(prompt: str) -> str:
        order.append("second")
        return prompt

    one, two = (model_of(function, concurrency=1, folder=tmp_path) for function in (first, second))
    threads = [threading.Thread(target=texts, args=(one, "a")), threading.Thread(target=texts, args=(two, "b"))]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    may_go.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


@pytest.mark.parametrize("value", ["0", "-1", "soon", "true", "inf"])
def test_a_time_limit_is_a_number(value: str) -> None:
    with pytest.raises(OptionError, match=r"timeout is .*, expected seconds, a number above 0"):
        parse_model_spec(f"python:json:dumps?timeout={value}")


def test_bounds_are_the_sessions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--llm-model-arg`` counts where the model itself says nothing else."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "bounded_agents.py").write_text("async def later(prompt): ...\ndef now(prompt): ...\n")
    settings = ModelSettings(model_args={"max_connections": 3, "timeout": 5.0}, shared_folder=tmp_path)
    found = {}
    for name in ("later", "now", "later?concurrency=2&timeout=1"):
        model = load_model(parse_model_spec(f"python:bounded_agents:{name}"), settings)
        assert isinstance(model, CallableModel)
        found[name] = (model._calls.concurrency, model._bounds.timeout_s)
    assert found == {"later": (3, 5.0), "now": (1, 5.0), "later?concurrency=2&timeout=1": (2, 1.0)}


def test_operational_arguments_bound_calls_and_are_in_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``max_connections`` is the function's where it has such a parameter, and ours else, also with ``**others``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "operated_agents.py").write_text(
        "async def later(prompt, k=1): return f'{k}'\n"
        "async def others(prompt, **others): return f'{others}'\n"
        "async def own(prompt, max_connections=1, price_in=0): return f'{max_connections} {price_in}'\n"
    )
    found = {}
    for name in ("later?max_connections=3&k=2", "others?max_connections=3", "own?max_connections=3&price_in=1"):
        spec = parse_model_spec(f"python:operated_agents:{name}")
        model = load_model(spec, ModelSettings())
        assert isinstance(model, CallableModel)
        (reply,) = model.generate([GenerateRequest("q", max_tokens=5)])
        assert isinstance(reply, GenerateResponse)
        found[spec.name.removeprefix("python:operated_agents:")] = (model._calls.concurrency, reply.text)
        assert spec.deciding == ({"k": 2} if name.startswith("later") else {})
        assert model.identity.name == spec.name
    assert found == {"later?k=2": (3, "2"), "others": (3, "{}"), "own": (8, "3 1")}
    for value in ("0", "true", "many"):
        with pytest.raises(OptionError, match=r"max_connections is .*, expected a whole number above 0"):
            load_model(parse_model_spec(f"python:operated_agents:later?max_connections={value}"), ModelSettings())


def test_prices_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the function's where it has such parameters; the tokens are those that it returns."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "priced_agents.py").write_text(
        "from pytest_llmeval.types import GenerateResponse\n"
        "def counts(prompt, k=1): return {'text': 'a', 'num_prompt_tokens': 2000, 'num_tokens': 500, 'cost': 7}\n"
        "async def response(prompt): return GenerateResponse(text='a', num_prompt_tokens=2000, num_tokens=500)\n"
        "def silent(prompt, **others): return {'text': f'{others}', 'cost': 7}\n"
        "def own(prompt, price_in=0): return {'text': 'a', 'num_tokens': 500, 'cost': price_in}\n"
        "class Agent:\n"
        "    def __call__(self, prompt): return {'text': 'a', 'num_prompt_tokens': 1000}\n"
    )
    expected = {
        "counts": 7,
        "counts?price_in=0.5&price_out=2&k=3": 0.002,
        "counts?price_out=2": 0.001,
        "response?price_in=0.5": 0.001,
        "response": None,
        "silent?price_in=1&price_out=1": 7,
        "own?price_in=3": 3,
        "Agent?price_in=1": 0.001,
    }
    found: dict[str, float | None] = {}
    for name in expected:
        spec = parse_model_spec(f"python:priced_agents:{name}")
        model = load_model(spec, ModelSettings())
        assert isinstance(model, CallableModel)
        (reply,) = model.generate([GenerateRequest("q", max_tokens=5)])
        assert isinstance(reply, GenerateResponse)
        assert reply.text in ("a", "{}")
        found[name] = reply.cost
        assert spec.deciding == ({"k": 3} if "k=3" in name else {})
        assert "price_" not in model.identity.name
    assert found == {name: pytest.approx(cost) if cost else cost for name, cost in expected.items()}
    (reply,) = load_model(
        parse_model_spec("python:priced_agents:counts?price_in=0"),
        ModelSettings(model_args={"price_in": 4, "price_out": 2.0}),
    ).generate([GenerateRequest("q")])
    assert isinstance(reply, GenerateResponse)
    assert reply.cost == pytest.approx(0.001), "its own argument counts before the session's"
    for value in ("-1", "true", "many"):
        with pytest.raises(OptionError, match=r"price_in is .*, expected the price of a million tokens"):
            load_model(parse_model_spec(f"python:priced_agents:counts?price_in={value}"), ModelSettings())


def test_a_class_of_the_protocol_has_no_calls_to_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "whole_models.py").write_text("class Whole:\n    def generate(self, requests): ...\n")
    for argument in ("timeout=5", "concurrency=2", "max_connections=2", "price_out=2"):
        with pytest.raises(ModelError, match=r"Whole has a method generate .*it bounds its calls itself"):
            load_model(parse_model_spec(f"python:whole_models:Whole?{argument}"), ModelSettings())


def test_a_thread_sees_the_context_of_its_caller() -> None:
    """What libraries keep in context variables, a tracing span say, is there as it would be without threads."""
    here: contextvars.ContextVar[str] = contextvars.ContextVar("here")
    here.set("of the caller")
    outcomes: dict[int, CallOutcome] = {}
    Calls(len, "model", CallBounds(concurrency=2)).run([here.get, here.get], outcomes.__setitem__)
    assert [outcomes[place].returned for place in (0, 1)] == ["of the caller"] * 2


def test_a_coroutine_that_blocks_past_its_limit_is_told() -> None:
    """No sleep: the clock of the outcome says how long it was."""

    async def fine(prompt: str) -> str:
        return prompt

    model = model_of(fine, timeout_s=1.0)
    request = GenerateRequest("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._answer(request, CallOutcome("x", seconds=1.2))
        with pytest.raises(UserWarning, match=r"a call took 2\.5 s, and its limit is 1 s: it blocks the event loop"):
            model._answer(request, CallOutcome("x", seconds=2.5))
        model._answer(request, CallOutcome("x", seconds=2.5))  # once is enough


async def upper_later(prompt: str) -> str:
    await asyncio.sleep(0)
    return prompt.upper()


def upper_by_a_loop_of_its_own(prompt: str) -> str:
    return asyncio.run(upper_later(prompt))


def upper_as_a_coroutine(prompt: str) -> Any:
    return upper_later(prompt)


@pytest.mark.parametrize("bounds", [{}, {"timeout_s": 60.0}, {"concurrency": 3}], ids=str)
@pytest.mark.parametrize("function", [upper_later, upper_by_a_loop_of_its_own, upper_as_a_coroutine])
def test_it_answers_where_an_event_loop_runs(function: Callable[..., Any], bounds: dict[str, Any]) -> None:
    model = model_of(function, **bounds)

    async def in_a_notebook() -> list[str]:
        there = texts(model, "a", "b")
        elsewhere = await asyncio.gather(*(asyncio.to_thread(texts, model, text) for text in "cdef"))
        return [*there, *(text for (text,) in elsewhere)]

    assert asyncio.run(in_a_notebook()) == list("ABCDEF")
    assert texts(model, "g") == ["G"], "and where none runs any more"


def test_functions_of_one_process_share_a_loop() -> None:
    """A judge and a model of one module may share a client, which belongs to the loop of its first use."""
    loops = set()

    async def one(prompt: str) -> str:
        loops.add(asyncio.get_running_loop())
        return prompt

    async def other(prompt: str) -> str:
        loops.add(asyncio.get_running_loop())
        return prompt

    async def in_a_test() -> None:
        texts(model_of(one), "a")

    for model in (model_of(one), model_of(one, timeout_s=60.0), model_of(other, concurrency=1)):
        texts(model, "a", "b")
    asyncio.run(in_a_test())
    threading.Thread(target=lambda: asyncio.run(in_a_test())).run()
    assert len(loops) == 1


def test_a_coroutine_that_waits_for_another_model_is_told_how() -> None:
    inner = model_of(upper_later)

    async def blocks(prompt: str) -> str:
        return texts(inner, prompt)[0]

    async def waits(prompt: str) -> str:
        return (await asyncio.to_thread(texts, inner, prompt))[0]

    (text,) = texts(model_of(blocks), "a")
    assert "RuntimeError" in text.split("\n")[0]
    assert "await asyncio.to_thread(model.generate, request)" in text.split("\n")[0]
    assert texts(model_of(waits), "a", "b") == ["A", "B"]
    plain = model_of(str.upper)

    async def asks_a_plain_one(prompt: str) -> str:
        return texts(plain, prompt)[0]

    assert texts(model_of(asks_a_plain_one), "a") == ["A"]


def test_what_a_task_of_its_own_raises_does_not_end_the_loop() -> None:
    """``sys.exit`` in a tool that an agent runs beside others."""

    async def exits() -> None:
        raise SystemExit(3)

    async def runs_a_tool(prompt: str) -> str:
        if prompt == "bad":
            await asyncio.gather(asyncio.create_task(exits()))
        return prompt

    first, second, third = texts(model_of(runs_a_tool), "a", "bad", "c")
    assert (first, third) == ("a", "c")
    assert "raised SystemExit: 3" in second.split("\n")[0]
    assert texts(model_of(runs_a_tool), "d") == ["d"]


def test_what_is_told_of_a_reply_runs_where_it_was_asked_for() -> None:
    """A listener writes to the store, and to the terminal."""
    threads = []
    calls = Calls(upper_later, "model", CallBounds())
    calls.run([lambda: upper_later("a")] * 2, lambda *_: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 2


def test_a_listener_that_raises_cancels_the_rest() -> None:
    ended = []

    async def waits(prompt: str) -> str:
        if prompt == "a":
            return prompt
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(prompt)
        return prompt

    def full(*_: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Calls(waits, "model", CallBounds()).run([lambda text=text: waits(text) for text in "abc"], full)  # type: ignore[misc]
    assert sorted(ended) == ["b", "c"]
    assert texts(model_of(upper_later), "a") == ["A"]


def test_a_folder_that_cannot_be_made_is_an_error_and_no_wait(tmp_path: Path) -> None:
    """Processes agree in it on how many calls run at a time; a full disk must not end in silence."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    calls = Calls(upper_later, "model", CallBounds(folder=in_the_way / "slots"))
    raised: list[OSError] = []

    def run() -> None:
        try:
            calls.run([lambda: upper_later("a")], lambda *_: None)
        except OSError as error:
            raised.append(error)

    asking = threading.Thread(target=run, daemon=True)  # a wait without end must not stop the tests
    asking.start()
    asking.join(30)
    assert [Path(error.filename).is_relative_to(in_the_way) for error in raised] == [True]
