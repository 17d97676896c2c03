"""A model that is asked through a store: what was asked before does not reach it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference import dispatch
from pytest_llmeval.inference.dispatch import RequestKind, ask, received
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_model import StoredModel, with_store
from pytest_llmeval.models.base import Backend
from pytest_llmeval.models.guessing import GuessingModel
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    EngineUse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Request,
)


class Counting:
    """Counts the requests that reach it. Every reply is another one."""

    def __init__(self, fingerprint: str | None = "weights", answer: Callable[[Any], Any] | None = None) -> None:
        self.identity = ModelIdentity(name="counting", backend="test", fingerprint=fingerprint)
        self.calls: list[list[Any]] = []
        self._answer = answer
        self._number = 0

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
        self.calls.append(list(requests))
        return [self.reply(request) for request in requests]

    def reply(self, request: Any) -> Any:
        self._number += 1
        if self._answer is not None:
            return self._answer(request)
        return GenerateResponse(text=f"{self._number}", num_tokens=1, seconds=0.5)

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        self.calls.append(list(requests))
        return [LoglikelihoodResponse(loglikelihood=-1.0 - n, num_tokens=2) for n, _ in enumerate(requests)]

    def loglikelihood_rolling(self, requests: Sequence[LoglikelihoodRollingRequest]) -> list[LoglikelihoodResponse]:
        self.calls.append(list(requests))
        return [LoglikelihoodResponse(loglikelihood=-3.0, num_tokens=len(request.text)) for request in requests]


def stored(model: object, folder: Path, **options: Any) -> Any:
    return with_store(model, Store(folder / "store", **options))  # type: ignore[arg-type]


def texts(answers: Sequence[Any]) -> list[str]:
    return [answer.text for answer in answers]


REQUESTS: list[Request] = [
    GenerateRequest("one"),
    LoglikelihoodRequest("one", " two"),
    LoglikelihoodRollingRequest("one two"),
    GenerateRequest("two"),
    LoglikelihoodRequest("one", " three"),
]


def test_requests_of_each_kind_reach_the_model_once(tmp_path: Path) -> None:
    model = Counting()
    first = ask(stored(model, tmp_path), REQUESTS)
    assert [len(call) for call in model.calls] == [2, 1, 2], "as without a store: one call for each kind"
    again = Counting()
    assert ask(stored(again, tmp_path), REQUESTS) == first
    assert again.calls == []


def test_what_is_missing_is_asked_in_one_call_in_its_order(tmp_path: Path) -> None:
    ask(stored(Counting(), tmp_path), [GenerateRequest("b"), GenerateRequest("d")])
    model = Counting()
    answers = ask(stored(model, tmp_path), [GenerateRequest(text) for text in "abcdea"])
    assert model.calls == [[GenerateRequest(text) for text in "ace"]]
    assert texts(answers) == ["1", "1", "2", "2", "3", "1"]


def test_what_another_process_has_added_meanwhile_is_found(tmp_path: Path) -> None:
    model = Counting()
    wrapped = stored(model, tmp_path)
    ask(stored(Counting(), tmp_path), REQUESTS)
    ask(wrapped, REQUESTS)
    assert (model.calls, wrapped.has_reused) == ([], True)
    own = stored(model, tmp_path)
    ask(own, [GenerateRequest("new")] * 2)
    ask(own, [GenerateRequest("new")])
    assert (len(model.calls), own.has_reused) == (1, False)


def test_where_replies_are_not_reused_none_is_shared(tmp_path: Path) -> None:
    """One call asks as often as five calls."""
    model = Counting(None)
    equal: list[Request] = [GenerateRequest("q")] * 5
    assert texts(ask(stored(model, tmp_path), equal)) == ["1", "2", "3", "4", "5"]
    background = Background(None)
    futures = stored(background, tmp_path).submit(equal)
    background.answer_all()
    assert [future.result().text for future in futures] == ["1", "2", "3", "4", "5"]


@dataclass(frozen=True)
class Tagged(GenerateRequest):
    tag: str = ""


def test_a_subclass_of_a_request_is_another_question(tmp_path: Path) -> None:
    asked: list[Request] = [GenerateRequest("q"), Tagged("q"), Tagged("q", tag="a"), Tagged("q", tag="b")]
    first = ask(stored(Counting(), tmp_path), asked)
    assert len(set(texts(first))) == 4
    model = Counting()
    assert ask(stored(model, tmp_path), asked) == first
    assert model.calls == []


def test_what_a_subclass_has_besides_its_fields_is_part_of_the_question(tmp_path: Path) -> None:
    class Hidden(GenerateRequest):
        """Its attribute is not a field."""

    hidden = [Hidden("q") for _ in range(3)]
    for request, tag in zip(hidden, "aba", strict=True):
        object.__setattr__(request, "tag", tag)
    assert texts(ask(stored(Counting(), tmp_path), hidden)) == ["1", "2", "1"]


def test_numbers_of_numpy_are_those_of_python(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    ask(stored(Counting(), tmp_path), [GenerateRequest("q", seed=3, max_tokens=9, temperature=0.5)])
    model = Counting()
    same = GenerateRequest("q", seed=numpy.int64(3), max_tokens=numpy.int32(9), temperature=numpy.float32(0.5))
    ask(stored(model, tmp_path), [same])
    assert model.calls == []
    with pytest.raises(ModelError, match="found a ndarray in a request"):
        ask(stored(model, tmp_path), [GenerateRequest("q", seed=numpy.array([1, 2]))])


def test_contexts_are_kept_with_their_text(tmp_path: Path) -> None:
    request = GenerateRequest("q")
    for number, contexts in enumerate((("one", "two"), (), None)):
        reply = GenerateResponse(text="t", contexts=contexts)
        model = Counting(f"weights {number}", {request: reply}.__getitem__)
        for _ in range(2):
            (found,) = ask(stored(model, tmp_path), [request])
            assert isinstance(found, GenerateResponse)
            assert found.contexts == contexts
        assert len(model.calls) == 1
    lines = [line for file in tmp_path.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    assert sum('"contexts":' in line for line in lines) == 2, "a reply without is kept as it always was"


@pytest.mark.parametrize("contexts", ["one", [1], [None], 5, {"a": "b"}], ids=str)
def test_contexts_that_are_no_texts_are_refused(contexts: Any) -> None:
    model = Counting(answer=lambda _: GenerateResponse(text="t", contexts=contexts))
    with pytest.raises(ModelError, match=r"contexts is .*, expected a list or tuple of str"):
        ask(model, [GenerateRequest("q")])


@pytest.mark.parametrize("wrap", [stored, lambda model, folder: model], ids=["store", "no store"])
def test_what_is_not_a_request_is_refused(tmp_path: Path, wrap: Callable[[object, Path], object]) -> None:
    with pytest.raises(ModelError, match="found a str among the requests to a model, expected one of: Loglik"):
        ask(wrap(Counting(), tmp_path), ["what?"])  # type: ignore[list-item]


@dataclass(frozen=True)
class RankRequest:
    text: str


@dataclass(frozen=True)
class RankResponse:
    places: list[float]
    asked_at: float | None = None
    kept_as: str | None = None


def test_a_new_kind_of_request_needs_one_entry_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ranking(Counting):
        def rank(self, requests: Sequence[RankRequest]) -> list[RankResponse]:
            self.calls.append(list(requests))
            return [RankResponse([float(len(request.text))]) for request in requests]

    asked: Any = [RankRequest("one"), GenerateRequest("q"), RankRequest(""), RankRequest("four")]
    with pytest.raises(ModelError, match="found a RankRequest"):
        ask(stored(Ranking(), tmp_path), asked)
    rank = RequestKind("rank", RankRequest, RankResponse, lambda found: found, lambda asked, found: asked.text)
    monkeypatch.setattr(dispatch, "REQUEST_KINDS", (*dispatch.REQUEST_KINDS, rank))
    first: Any = ask(stored(Ranking(), tmp_path), asked)
    assert [first[place].places for place in (0, 2, 3)] == [[3.0], [0.0], [4.0]]
    again = Ranking()
    assert ask(stored(again, tmp_path), asked)[3] == first[3]
    assert again.calls == [[RankRequest("")]], "what is not whole is asked again"
    assert stored(again, tmp_path).rank([RankRequest("four")]) == [first[3]]
    assert not hasattr(stored(Counting(), tmp_path), "rank")


def test_a_reply_says_when_it_was_asked_and_keeps_its_time(tmp_path: Path) -> None:
    (first,) = ask(stored(Counting(), tmp_path), [GenerateRequest("a")])
    (second,) = ask(stored(Counting(), tmp_path), [GenerateRequest("a")])
    assert first.asked_at is not None  # type: ignore[union-attr]
    assert second == first
    assert second.seconds == 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": "other"},
        {"max_tokens": 5},
        {"stop": ("\n",)},
        {"temperature": 0.5},
        {"seed": 1},
        {"top_p": 0.9},
        {"epoch": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_settings_seeds_and_epochs_are_other_questions(tmp_path: Path, changed: dict[str, Any]) -> None:
    ask(stored(Counting(), tmp_path), [GenerateRequest("q")])
    model = Counting()
    ask(stored(model, tmp_path), [GenerateRequest(**{"prompt": "q", **changed})])
    assert len(model.calls) == 1


def test_what_decides_a_models_replies_besides_its_identity_is_part_of_the_question(tmp_path: Path) -> None:
    def answer(*more: str) -> list[str]:
        return texts(ask(with_store(model, Store(tmp_path / "store"), *more), [GenerateRequest("q")]))

    model = Counting()
    assert [answer("A"), answer("B"), answer("A"), answer()] == [["1"], ["2"], ["1"], ["3"]]


def test_repeats_of_one_question_are_not_collapsed(tmp_path: Path) -> None:
    epochs = [GenerateRequest("q", temperature=1.0, epoch=epoch) for epoch in range(4)]
    first = texts(ask(stored(Counting(), tmp_path), epochs))
    assert len(set(first)) == 4
    assert texts(ask(stored(Counting(), tmp_path), epochs)) == first


def test_another_model_is_asked(tmp_path: Path) -> None:
    ask(stored(Counting("weights"), tmp_path), [GenerateRequest("q")])
    other = Counting("finetuned")
    ask(stored(other, tmp_path), [GenerateRequest("q")])
    assert len(other.calls) == 1


@pytest.mark.parametrize(
    "reply",
    [
        RequestError("429"),
        RequestError("the reply was ended by the server: content_filter"),
        GenerateResponse(text="The ans", finish_reason="length", num_tokens=3),
    ],
    ids=["error", "content filter", "cut"],
)
def test_what_is_no_reply_is_asked_again(tmp_path: Path, reply: Any) -> None:
    failed = ask(stored(Counting(answer=lambda _: reply), tmp_path), [GenerateRequest("q")])
    assert failed == [reply]
    assert texts(ask(stored(Counting(), tmp_path), [GenerateRequest("q")])) == ["1"]


def test_a_none_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="NoneType"):
        ask(stored(Counting(answer=lambda _: None), tmp_path), [GenerateRequest("q")])
    assert texts(ask(stored(Counting(), tmp_path), [GenerateRequest("q")])) == ["1"]


def test_an_old_failure_does_not_hide_a_newer_success_nor_the_other_way_round(tmp_path: Path) -> None:
    ask(stored(Counting(answer=lambda _: RequestError("500")), tmp_path), [GenerateRequest("q")])
    ask(stored(Counting(), tmp_path), [GenerateRequest("q")])
    refreshed = stored(Counting(answer=lambda _: RequestError("500")), tmp_path, refresh=True)
    ask(refreshed, [GenerateRequest("q")])
    model = Counting()
    assert texts(ask(stored(model, tmp_path), [GenerateRequest("q")])) == ["1"]
    assert model.calls == []


def test_the_empty_log_of_a_killed_retry_hides_nothing(tmp_path: Path) -> None:
    first = ask(stored(Counting(), tmp_path), [GenerateRequest("q")])
    (tmp_path / "store" / f"replies-{'f' * 16}.jsonl").touch()
    model = Counting()
    assert ask(stored(model, tmp_path), [GenerateRequest("q")]) == first
    assert model.calls == []


def test_an_empty_text_is_a_reply(tmp_path: Path) -> None:
    ask(stored(Counting(answer=lambda _: GenerateResponse(text="")), tmp_path), [GenerateRequest("q")])
    model = Counting()
    assert texts(ask(stored(model, tmp_path), [GenerateRequest("q")])) == [""]
    assert model.calls == []


class Stopping(Backend):
    """Answers half of what it is asked, and dies."""

    identity = ModelIdentity(name="stopping", backend="test", fingerprint="weights")

    def run_generate(self, requests: Sequence[GenerateRequest]) -> Any:
        self.take_listener()({place: GenerateResponse(text=f"{place}") for place in range(len(requests) // 2)})
        raise KeyboardInterrupt


def test_what_a_call_had_finished_when_it_was_stopped_is_kept(tmp_path: Path) -> None:
    model = stored(Stopping(), tmp_path)
    finished: dict[int, Any] = {}
    with pytest.raises(KeyboardInterrupt):
        ask(model, [GenerateRequest(text) for text in "abcd"], finished.update)
    assert {place: answer.text for place, answer in finished.items()} == {0: "0", 1: "1"}
    store = Store(tmp_path / "store")
    assert len(store) == 2


class Yielding(Counting):
    """A generator, which leaves out the prompts in ``skips``; ``on_yielded`` is called once a response was taken."""

    def __init__(self, on_yielded: Callable[[int], None] = lambda number: None, skips: Sequence[str] = ()) -> None:
        super().__init__()
        self._on_yielded = on_yielded
        self._skips = skips

    def generate(self, requests: Sequence[GenerateRequest]) -> Any:
        self.calls.append(list(requests))
        for number, request in enumerate(requests, start=1):
            if request.prompt not in self._skips:
                yield GenerateResponse(text=str(request.prompt).upper())
                self._on_yielded(number)


def lines_in(folder: Path) -> list[bytes]:
    return [line for path in folder.joinpath("store").glob("*.jsonl") for line in path.read_bytes().splitlines()]


def test_what_is_yielded_is_in_the_store_at_once_and_once(tmp_path: Path) -> None:
    def look(number: int) -> None:
        assert len(lines_in(tmp_path)) == number

    requests = [GenerateRequest(text) for text in "abca"]
    model = stored(Yielding(look), tmp_path)
    answers = ask(model, requests)
    assert texts(answers) == ["A", "B", "C", "A"]
    assert len(lines_in(tmp_path)) == 3
    assert ask(stored(Counting(), tmp_path), requests) == answers, "with the same times"


def test_replies_that_may_be_another_requests_are_taken_back(tmp_path: Path) -> None:
    """Nothing tells whose replies those of a generator that left a request out are: they were kept by then."""
    requests = [GenerateRequest(text) for text in ("a", "", "b")]
    told: dict[int, Any] = {}
    with pytest.raises(ModelError, match="generate returned 2 responses to 3 requests"):
        ask(stored(Yielding(skips=[""]), tmp_path), requests, told.update)
    assert told == {0: None, 1: None}
    model = Yielding()
    assert texts(ask(stored(model, tmp_path), requests)) == ["A", "", "B"]
    assert model.calls == [requests]


class Telling(Backend):
    """Tells of replies which it then does not return, and of an error; another thread asks it meanwhile."""

    identity = ModelIdentity(name="telling", backend="test", fingerprint="weights")

    def run_generate(self, requests: Sequence[GenerateRequest]) -> Any:
        tell = self.take_listener()
        if len(requests) > 1:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.generate, "from another thread").result()
            self.generate("from within")
        tell({0: GenerateResponse(text=f"{requests[0].prompt}!")})
        tell({0: GenerateResponse(text="another"), 1: RequestError("429")})
        return [GenerateResponse(text="at the end") if n != 1 else RequestError("429") for n in range(len(requests))]


def test_what_was_kept_is_what_is_returned(tmp_path: Path) -> None:
    requests = [GenerateRequest(text) for text in "abc"]
    answers: list[Any] = ask(stored(Telling(), tmp_path), requests)
    assert [getattr(answer, "text", None) for answer in answers] == ["a!", None, "at the end"]
    assert len(lines_in(tmp_path)) == 2


def test_a_model_that_may_have_changed_is_reused_within_a_lifetime_alone(tmp_path: Path) -> None:
    for model in (Counting(None), SimpleNamespace(generate=Counting().generate)):
        first = ask(stored(model, tmp_path), [GenerateRequest("q")])
        assert ask(stored(model, tmp_path), [GenerateRequest("q")]) != first
        within = stored(model, tmp_path, max_age_s=3600)
        assert ask(within, [GenerateRequest("q")]) == ask(within, [GenerateRequest("q")])
    assert "not reused" in str(stored(Counting(None), tmp_path).identity.details["store"])
    named = Counting()
    named.why_weights_may_change = "it is a hosted name"  # type: ignore[attr-defined]
    ask(stored(named, tmp_path), [GenerateRequest("q")])
    ask(stored(named, tmp_path), [GenerateRequest("q")])
    assert len(named.calls) == 2


def test_the_short_form_of_hand_written_tests_goes_through_the_store(tmp_path: Path) -> None:
    model = Counting()
    assert stored(model, tmp_path).generate("q", max_tokens=5).text == "1"
    assert stored(model, tmp_path).generate("q", max_tokens=5).text == "1"
    assert stored(model, tmp_path).loglikelihood("a", " b").loglikelihood == -1.0
    assert len(model.calls) == 2


def test_everything_else_is_the_models_own(tmp_path: Path) -> None:
    model: Any = Counting()
    model.colour = "red"
    model.answers_one_by_one = True
    wrapped = stored(model, tmp_path)
    assert (wrapped.colour, wrapped.answers_one_by_one, wrapped.identity.name) == ("red", True, "counting")
    for name in ("audit", "submit", "answer_samples"):
        assert not hasattr(wrapped, name)
    guessing = GuessingModel("random", "random")
    assert stored(guessing, tmp_path) is guessing


def test_a_model_without_the_method_is_told_as_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no method generate"):
        ask(stored(SimpleNamespace(), tmp_path), [GenerateRequest("q")])


class Audited(Counting):
    def __init__(self, engine: Literal["tree", "plain"] = "tree") -> None:
        super().__init__()
        self.num_audits = 0
        self.engine: Literal["tree", "plain"] = engine

    def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        self.num_audits += 1
        return self, EngineUse(engine=self.engine, reason="full attention", num_audited=len(requests))


def test_numbers_of_the_tree_are_not_taken_for_plain_ones(tmp_path: Path) -> None:
    """With other requests an audit may find that the tree is wrong for this model."""
    answerer, _ = stored(Audited("tree"), tmp_path).audit(REQUESTS[1:2])
    ask(answerer, REQUESTS[1:2])
    plain = Audited("plain")
    answerer, use = stored(plain, tmp_path).audit(REQUESTS[:2])
    ask(answerer, REQUESTS[1:2])
    assert use.engine == "plain"
    assert plain.calls == [REQUESTS[1:2]]


def test_an_engine_that_this_version_does_not_know_is_audited_anew(tmp_path: Path) -> None:
    stored(Audited("other"), tmp_path).audit(REQUESTS[1:2])  # type: ignore[arg-type]
    model = Audited()
    _, use = stored(model, tmp_path).audit(REQUESTS[1:2])
    assert (model.num_audits, use.engine) == (1, "tree")


def test_a_model_is_not_audited_before_it_has_to_answer(tmp_path: Path) -> None:
    first = Audited()
    answerer, use = stored(first, tmp_path).audit(REQUESTS[1:2])
    ask(answerer, REQUESTS[1:2])
    assert (first.num_audits, len(first.calls)) == (1, 1)
    second = Audited()
    answerer, again = stored(second, tmp_path).audit(REQUESTS[1:2])
    ask(answerer, REQUESTS[1:2])
    assert again == use
    assert (second.num_audits, len(second.calls)) == (0, 0)
    ask(answerer, REQUESTS)
    ask(answerer, [GenerateRequest("new")])
    assert second.num_audits == 1


# Models that answer in the background


class Background(Counting):
    num_concurrent = 2

    def __init__(self, fingerprint: str | None = "weights", answer: Callable[[Any], Any] | None = None) -> None:
        super().__init__(fingerprint, answer)
        self.open: list[tuple[Any, Future[Any]]] = []

    def submit(self, requests: Sequence[Request]) -> list[Future[Any]]:
        self.calls.append(list(requests))
        futures: list[Future[Any]] = [Future() for _ in requests]
        self.open += zip(requests, futures, strict=True)
        return futures

    def answer_all(self) -> None:
        given, self.open = self.open, []
        for request, future in given:
            if future.set_running_or_notify_cancel():
                future.set_result(self.reply(request))


def test_the_background_is_given_what_is_missing(tmp_path: Path) -> None:
    first = Background()
    wrapped = stored(first, tmp_path)
    requests = [GenerateRequest("a"), GenerateRequest("b")]
    futures = wrapped.submit(requests)
    assert not any(future.done() for future in futures)
    first.answer_all()
    answers = received(wrapped, requests, futures)
    assert len(Store(tmp_path / "store")) == 2, "before anybody has taken the replies"
    second = Background()
    more = [*requests, GenerateRequest("c")]
    futures = stored(second, tmp_path).submit(more)
    assert [future.done() for future in futures] == [True, True, False]
    second.answer_all()
    assert received(wrapped, more, futures)[:2] == answers
    assert second.calls == [[GenerateRequest("c")]]


def test_what_the_audit_hands_out_is_asked_in_the_background_too(tmp_path: Path) -> None:
    first, plain = Background(), Background()
    first.audit = lambda requests: (plain, EngineUse(engine="plain", reason="off"))  # type: ignore[attr-defined]
    answerer, use = stored(first, tmp_path).audit(REQUESTS[:1])
    assert use.engine == "plain"
    (future,) = answerer.submit(REQUESTS[:1])
    plain.answer_all()
    assert future.done()
    assert (len(first.calls), len(plain.calls)) == (0, 1)


def test_equal_requests_that_are_open_at_once_share_a_reply(tmp_path: Path) -> None:
    """In one call, and in a later one, as of two variants of a suite that judge the same replies."""
    model = Background()
    wrapped = stored(model, tmp_path)
    equal = [GenerateRequest("a")] * 2
    futures = [*wrapped.submit(equal), *wrapped.submit([*equal[:1], GenerateRequest("b")])]
    assert model.calls == [equal[:1], [GenerateRequest("b")]]
    model.answer_all()
    assert texts(received(wrapped, [*equal, equal[0], GenerateRequest("b")], futures)) == ["1", "1", "1", "2"]
    assert len({future.result().asked_at for future in futures[:3]}) == 1
    assert wrapped.submit(equal)[0].done()


def test_an_equal_request_is_sent_where_the_first_has_no_reply(tmp_path: Path) -> None:
    model = Background(answer=lambda request: RequestError("refused"))
    wrapped = stored(model, tmp_path)
    first, second, third = wrapped.submit([GenerateRequest("a")] * 3)
    assert len(model.calls) == 1
    first.cancel()
    assert len(model.calls) == 3, "the others ask by themselves"
    third.cancel()
    model.answer_all()
    assert isinstance(second.result(timeout=1), RequestError)
    taken_back = wrapped.submit([GenerateRequest("b")] * 2)
    for future in reversed(taken_back):
        future.cancel()
    assert [call for call in model.calls if call[0].prompt == "b"] == [[GenerateRequest("b")]]


def test_an_error_of_a_second_asking_comes_through(tmp_path: Path) -> None:
    model = Background()
    wrapped = stored(model, tmp_path)
    first, second = wrapped.submit([GenerateRequest("a")] * 2)
    model.submit = lambda requests: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    first.cancel()
    with pytest.raises(ZeroDivisionError):
        second.result(timeout=1)


def test_a_request_that_is_taken_back_is_taken_back_from_the_model(tmp_path: Path) -> None:
    model = Background()
    (future,) = stored(model, tmp_path).submit([GenerateRequest("a")])
    assert future.cancel()
    assert model.open[0][1].cancelled()
    model.answer_all()
    assert len(Store(tmp_path / "store")) == 0


THINKS = GenerateRequest("a", stop=("\n\n",), reasoning=DEFAULT_TAGS)


def stops_everywhere(request: Any) -> GenerateResponse:
    text = "<think>b" if request.stop else "<think>b\n\nc</think>d\n\ne"
    return GenerateResponse(text=text, num_tokens=len(text), cost=0.25)


def test_a_reply_that_stopped_in_its_reasoning_is_asked_again_in_the_background(tmp_path: Path) -> None:
    model = Background(answer=stops_everywhere)
    wrapped = stored(model, tmp_path)
    futures = wrapped.submit([THINKS])
    model.answer_all()
    assert [request.stop for call in model.calls for request in call] == [("\n\n",), ()]
    assert not futures[0].done()
    model.answer_all()
    (reply,) = received(wrapped, [THINKS], futures)
    assert isinstance(reply, GenerateResponse)
    assert (reply.text, reply.reasoning, reply.num_tokens, reply.cost) == ("d", "b\n\nc", 8 + 23, 0.5)
    (again,) = received(wrapped, [THINKS], stored(Background(answer=stops_everywhere), tmp_path).submit([THINKS]))
    assert isinstance(again, GenerateResponse)
    assert (again.text, again.num_tokens, again.cost) == ("d", 31, 0.5)


def test_a_second_asking_in_the_background_can_be_taken_back_and_fail(tmp_path: Path) -> None:
    model = Background(answer=stops_everywhere)
    wrapped = stored(model, tmp_path)
    first, second, third = wrapped.submit([replace(THINKS, prompt=prompt) for prompt in "abc"])
    model.answer_all()
    assert first.cancel()
    assert model.open[0][1].cancelled()
    model.open.pop()[1].set_exception(ModelError("gone"))
    model.open.pop()[1].cancel()
    assert second.cancelled()
    with pytest.raises(ModelError, match="gone"):
        received(wrapped, [THINKS], [third])
    assert len(Store(tmp_path / "store")) == 0


def test_errors_of_the_background_come_through_and_are_not_kept(tmp_path: Path) -> None:
    model = Background(answer=lambda request: RequestError("refused") if request.prompt == "a" else 5)
    wrapped = stored(model, tmp_path)
    requests = [GenerateRequest("a"), GenerateRequest("b"), GenerateRequest("c")]
    futures = wrapped.submit(requests)
    model.open.pop()[1].set_exception(ModelError("gone"))
    model.answer_all()
    assert isinstance(futures[0].result(), RequestError)
    with pytest.raises(ModelError, match="returned int"):
        received(wrapped, requests[1:2], futures[1:2])
    with pytest.raises(ModelError, match="gone"):
        received(wrapped, requests[2:], futures[2:])
    assert len(Store(tmp_path / "store")) == 0


def test_processes_can_ask_at_the_same_time(tmp_path: Path) -> None:
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            ask(stored(Counting(), tmp_path), [GenerateRequest(f"{number} {n}") for n in range(50)])
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    model = Counting()
    wrapped = StoredModel(model, Store(tmp_path / "store"))
    ask(wrapped, [GenerateRequest(f"{number} {n}") for number in range(4) for n in range(50)])
    assert model.calls == []
