"""Batcher: the same responses as asking one by one, fewer calls, and errors that stay with their sample."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference.batcher import Batcher, PlannedSample
from pytest_llmeval.types import (
    AskedSample,
    EngineUse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Request,
)


class Echo:
    """Answers with the prompt; ``raises`` fail the whole call, ``refuses`` only themselves."""

    def __init__(self, raises: Sequence[str] = (), refuses: Sequence[str] = ()) -> None:
        self.raises, self.refuses = set(raises), set(refuses)
        self.calls: list[list[str]] = []

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | RequestError]:
        prompts = [str(request.prompt) for request in requests]
        self.calls.append(prompts)
        if broken := self.raises.intersection(prompts):
            raise RuntimeError(f"cannot read {min(broken)}")
        return [
            RequestError(f"refused {prompt}") if prompt in self.refuses else GenerateResponse(text=prompt)
            for prompt in prompts
        ]


def member(key: str, group: str = "suite", times: int = 1) -> PlannedSample:
    return PlannedSample(key=key, group=group, requests=lambda: [GenerateRequest(f"{key}.{n}") for n in range(times)])


def planned(members: Sequence[PlannedSample], size: int = 8, *, shares_chunks: bool = False) -> Batcher:
    """Chunks of at most ``size`` members of one group each, in the members' order."""
    batcher = Batcher(shares_chunks=shares_chunks)
    for group in dict.fromkeys(member.group for member in members):
        own = [member for member in members if member.group == group]
        for start in range(0, len(own), size):
            batcher.add(own[start : start + size])
    return batcher


def outcome(batcher: Batcher, one: PlannedSample, model: object) -> object:
    try:
        return [response.text for response in batcher.responses(one, model) if isinstance(response, GenerateResponse)]
    except (RuntimeError, RequestError) as error:
        return f"{type(error).__name__}: {error}"


KEYS = st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1)


@given(keys=KEYS, groups=st.data(), size=st.integers(1, 12), order=st.randoms(use_true_random=False))
def test_lookahead_gives_what_asking_alone_gives(
    keys: list[str], groups: st.DataObject, size: int, order: object
) -> None:
    raises = groups.draw(st.lists(st.sampled_from([f"{key}.0" for key in keys]), unique=True))
    refuses = groups.draw(st.lists(st.sampled_from([f"{key}.1" for key in keys]), unique=True))
    members = [member(key, groups.draw(st.sampled_from("xyz")), groups.draw(st.integers(1, 3))) for key in keys]
    ahead, alone = Echo(raises, refuses), Echo(raises, refuses)
    batcher = planned(members, size)
    run = members.copy()
    order.shuffle(run)  # type: ignore[attr-defined]
    for one in run:
        assert outcome(batcher, one, ahead) == outcome(Batcher(), one, alone)


@given(keys=KEYS, size=st.integers(1, 12))
def test_nothing_is_asked_twice_and_chunks_are_full(keys: list[str], size: int) -> None:
    model, members = Echo(), [member(key) for key in keys]
    batcher = planned(members, size)
    for one in members:
        batcher.responses(one, model)
    assert [prompt for call in model.calls for prompt in call] == [f"{key}.0" for key in keys]
    assert [len(call) for call in model.calls] == [min(size, len(keys) - start) for start in range(0, len(keys), size)]


def test_groups_do_not_share_a_call() -> None:
    model, members = Echo(), [member("a", "one"), member("b", "two"), member("c", "one")]
    batcher = planned(members)
    for one in members:
        batcher.responses(one, model)
    assert model.calls == [["a.0", "c.0"], ["b.0"]]


def test_a_member_that_was_not_planned_is_asked_alone() -> None:
    model, batcher = Echo(), planned([member("a"), member("b")])
    batcher.responses(member("z"), model)
    assert model.calls == [["z.0"]]


def test_a_chunk_that_was_given_whole_is_asked_together() -> None:
    """What a worker of pytest-xdist knows of its queue is which test comes next."""
    model, members = Echo(), [member(key) for key in "abcd"]
    batcher = planned(members, shares_chunks=True)
    for place, one in enumerate(members):
        batcher.next_key = members[place + 1].key if place < 3 else "something else"
        batcher.responses(one, model)
    assert model.calls == [["a.0", "b.0", "c.0", "d.0"]]


@pytest.mark.parametrize("order", ["dcba", "ba", "d", "ca", "bd"])
def test_a_chunk_of_which_another_worker_died_is_asked_one_by_one(order: str) -> None:
    model, members = Echo(), {key: member(key) for key in "abcd"}
    batcher = planned(list(members.values()), shares_chunks=True)
    for key, following in zip(order, [*order[1:], None], strict=True):
        batcher.next_key = following
        batcher.responses(members[key], model)
    assert model.calls == [[f"{key}.0"] for key in order]


def test_nothing_is_computed_for_members_that_are_skipped() -> None:
    model, members = Echo(), [member(key) for key in "abcd"]
    for place in (0, 2):
        members[place] = dataclasses.replace(members[place], is_skipped=True)
    batcher = planned(members, shares_chunks=True)
    batcher.next_key = "c"
    batcher.responses(members[1], model)
    batcher.responses(members[3], model)
    assert model.calls == [["b.0", "d.0"]]


def test_another_models_turn_keeps_the_plan() -> None:
    first, second, members = Echo(), Echo(), [member("a"), member("b"), member("c", "g"), member("d", "g")]
    batcher = planned(members)
    batcher.responses(members[0], first)
    batcher.forget_model()
    batcher.responses(members[2], second)
    assert (first.calls, second.calls) == ([["a.0", "b.0"]], [["c.0", "d.0"]])


def test_a_member_that_runs_again_is_asked_again() -> None:
    model, members = Echo(), [member("a"), member("b")]
    batcher = planned(members)
    batcher.responses(members[0], model)
    batcher.responses(members[0], model)
    batcher.responses(members[1], model)
    assert model.calls == [["a.0", "b.0"], ["a.0"]]


def test_another_model_gets_its_own_responses() -> None:
    first, second, members = Echo(), Echo(), [member("a"), member("b")]
    batcher = planned(members)
    batcher.responses(members[0], first)
    batcher.responses(members[1], second)
    assert second.calls == [["b.0"]]


def test_a_new_model_for_every_member_is_not_asked_for_the_neighbours() -> None:
    members = [member(key) for key in "abcd"]
    batcher = planned(members)
    models = [Echo() for _ in members]
    for one, model in zip(members, models, strict=True):
        batcher.responses(one, model)
    assert [model.calls for model in models[1:]] == [[["b.0"]], [["c.0"]], [["d.0"]]]


class Raises(Echo):
    """Raises once, or whenever it meets a prompt."""

    def __init__(self, error: BaseException, prompt: str | None = None) -> None:
        super().__init__()
        self.error, self.prompt = error, prompt

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | RequestError]:
        responses = super().generate(requests)
        if len(self.calls) == 1 if self.prompt is None else self.prompt in self.calls[-1]:
            raise self.error
        return responses


def test_ctrl_c_ends_at_once() -> None:
    members = [member(key) for key in "abc"]
    batcher = planned(members)
    with pytest.raises(KeyboardInterrupt):
        batcher.responses(members[0], Raises(KeyboardInterrupt()))


class OneByOne(Echo):
    """Says that it gains nothing by being asked for many at once."""

    answers_one_by_one = True


def test_a_model_that_answers_one_by_one_is_asked_one_by_one() -> None:
    model, members = OneByOne(), [member(key, times=2) for key in "abc"]
    batcher = planned(members)
    batcher.responses(members[0], model)
    assert model.calls == [["a.0", "a.1"]]
    assert not batcher.has_answered("b")


class Yields:
    """Answers as a generator, until it meets a prompt."""

    def __init__(self, error: BaseException, prompt: str) -> None:
        self.error, self.prompt = error, prompt
        self.asked: list[str] = []

    def generate(self, requests: Sequence[GenerateRequest]) -> Iterator[GenerateResponse]:
        for request in requests:
            self.asked.append(str(request.prompt))
            if request.prompt == self.prompt:
                raise self.error
            yield GenerateResponse(text=str(request.prompt))


def test_what_was_answered_before_ctrl_c_is_kept() -> None:
    """The members all of whose requests were answered: not the one in the midst of its own."""
    members, model = [member(key, times=2) for key in "abcd"], Yields(KeyboardInterrupt(), "c.1")
    batcher = planned(members)
    with pytest.raises(KeyboardInterrupt):
        batcher.responses(members[0], model)
    assert [key for key in "abcd" if batcher.has_answered(key)] == ["a", "b"]
    assert outcome(batcher, members[1], model) == ["b.0", "b.1"]


def test_what_was_answered_before_a_time_limit_is_not_asked_again() -> None:
    members, model = [member(key) for key in "abc"], Yields(pytest.fail.Exception("too late"), "c.0")
    batcher = planned(members)
    for one in members[:2]:
        batcher.responses(one, model)
    assert model.asked == ["a.0", "b.0", "c.0"]
    with pytest.raises(pytest.fail.Exception):
        batcher.responses(members[2], model)


@pytest.mark.parametrize("error", [SystemExit(0), pytest.skip.Exception("no quota"), pytest.fail.Exception("late")])
def test_what_ends_a_chunk_from_outside_is_not_charged_to_its_first_member(error: BaseException) -> None:
    model, members = Raises(error), [member(key) for key in "abc"]
    batcher = planned(members)
    for one in members:
        batcher.responses(one, model)
    assert model.calls == [["a.0", "b.0", "c.0"], ["a.0"], ["b.0"], ["c.0"]]


def test_a_member_that_ends_a_chunk_from_inside_is_found() -> None:
    model, members = Raises(SystemExit(0), "b.0"), [member(key) for key in "abc"]
    batcher = planned(members)
    batcher.responses(members[0], model)
    with pytest.raises(SystemExit):
        batcher.responses(members[1], model)
    batcher.responses(members[2], model)


def test_numbers_of_other_libraries_become_pythons_own() -> None:
    import numpy

    class Numpy:
        def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
            number = numpy.float32(-1.5)
            return [LoglikelihoodResponse(loglikelihood=number, num_tokens=numpy.int64(2)) for _ in requests]  # type: ignore[arg-type]

    one = PlannedSample(key="a", group="g", requests=lambda: [LoglikelihoodRequest("c", " d")])
    (response,) = Batcher().responses(one, Numpy())
    assert isinstance(response, LoglikelihoodResponse)
    assert (type(response.loglikelihood), type(response.num_tokens)) == (float, int)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([], "model Bad: generate returned 0 responses to 1 requests"),
        (["text"], "model Bad: generate returned str, expected GenerateResponse"),
        (None, "model Bad: generate returned None, expected one response for each request"),
        ([GenerateResponse(text=None)], "model Bad: generate returned a response whose text is None, expected a str"),  # type: ignore[arg-type]
    ],
)
def test_a_model_is_held_to_its_protocol(returned: object, message: str) -> None:
    class Bad:
        def generate(self, requests: object) -> object:
            return returned

    with pytest.raises(ModelError, match=message):
        Batcher().responses(member("a"), Bad())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loglikelihood": 1.0, "num_tokens": 1}, "loglikelihood is 1.0, expected at most 0"),
        ({"loglikelihood": True, "num_tokens": 1}, "loglikelihood is True, expected a number"),
        ({"loglikelihood": "x", "num_tokens": 1}, "loglikelihood is 'x', expected a number"),
        ({"loglikelihood": -(10**400), "num_tokens": 1}, "expected a number"),
        ({"loglikelihood": -1.0, "num_tokens": None}, "num_tokens is None, expected a whole number, 0 or more"),
        ({"loglikelihood": -1.0, "num_tokens": 1.5}, "num_tokens is 1.5, expected a whole number, 0 or more"),
        ({"loglikelihood": -1.0, "num_tokens": 1, "seconds": float("nan")}, "seconds is nan, expected a finite number"),
    ],
)
def test_numbers_that_a_response_cannot_hold(fields: dict[str, Any], message: str) -> None:
    class Bad:
        def loglikelihood(self, requests: object) -> object:
            return [LoglikelihoodResponse(**fields)]

    one = PlannedSample(key="a", group="g", requests=lambda: [LoglikelihoodRequest("c", " d")])
    with pytest.raises(ModelError, match=re.escape(message)):
        Batcher().responses(one, Bad())


def test_a_model_without_the_method() -> None:
    with pytest.raises(ModelError, match=r"model object: has no method generate\(requests\), which this suite"):
        Batcher().responses(member("a"), object())


# The audit before a group's first answer


class Audited:
    """Scores texts; its audit says which model a group is to ask, or raises."""

    def __init__(self, *, plain: bool = False, fails: int = 0) -> None:
        self.plain, self.fails = plain, fails
        self.audits: list[list[str]] = []
        self.answered: list[str] = []

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        self.answered += ["fast"] * len(requests)
        return [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]

    def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        self.audits.append([request.continuation for request in requests if isinstance(request, LoglikelihoodRequest)])
        if len(self.audits) <= self.fails:
            raise RuntimeError("the audit broke")
        if not self.plain:
            return self, EngineUse(engine="tree", reason="fast", num_audited=len(requests))
        return Slow(self), EngineUse(engine="plain", reason="off")


class Slow:
    """The model that a failed audit hands out."""

    def __init__(self, fast: Audited) -> None:
        self.fast = fast

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        self.fast.answered += ["slow"] * len(requests)
        return [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]


def scored_members(count: int) -> list[PlannedSample]:
    """Members of one group with one log-likelihood each."""

    def one(number: int) -> PlannedSample:
        return PlannedSample(key=number, group="suite", requests=lambda: [LoglikelihoodRequest("a", str(number))])

    return [one(number) for number in range(count)]


def test_a_group_is_audited_once_and_first() -> None:
    members, model = scored_members(6), Audited()
    batcher = planned(members, size=2)
    batcher.audit(members[4:])
    for one in members:
        batcher.responses(one, model)
    assert model.audits == [["4", "5"]]
    assert batcher.engine_uses["suite"].engine == "tree"


def test_what_an_audit_found_holds_after_another_model_was_here() -> None:
    """The model is dropped and comes back, as when a worker's leftovers are run at the end."""
    members, model = scored_members(4), Audited(plain=True)
    batcher = planned(members, size=2)
    batcher.audit(members[:1])
    batcher.responses(members[0], model)
    batcher.responses(members[1], model)
    batcher.forget_model()
    batcher.responses(members[2], model)
    batcher.responses(members[3], model)
    assert set(model.answered) == {"slow"}
    assert len(model.audits) == 2


def test_nothing_is_answered_unaudited() -> None:
    """An audit that raises fails its suite's samples, and is not tried for each of them."""
    members, model = scored_members(4), Audited(fails=99)
    batcher = planned(members)
    batcher.audit(members[:1])
    for one in members:
        with pytest.raises(RuntimeError, match="the audit broke"):
            batcher.responses(one, model)
    assert model.answered == []
    assert len(model.audits) == 1


def test_a_spare_is_audited_where_nothing_else_can_be() -> None:
    class Picky(Audited):
        def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
            super().audit(requests)
            fits = self.audits[-1] == ["2"]
            return self, EngineUse(engine="tree", reason="fast", num_audited=int(fits))

    members, model = scored_members(4), Picky()
    batcher = planned(members)
    batcher.audit(members[:1], members[1:])
    batcher.responses(members[0], model)
    assert model.audits == [["0"], ["1"], ["2"]]
    assert batcher.engine_uses["suite"].num_audited == 1


def test_generated_groups_need_no_audit() -> None:
    class Writer(Echo):
        def audit(self, requests: object) -> object:
            raise AssertionError("asked")

    members = [member("a"), member("b")]
    batcher = planned(members)
    batcher.audit(members)
    assert [outcome(batcher, one, Writer()) for one in members[:1]] == [["a.0"]]


class BySample(Echo):
    """Asked by sample: answers with suite, id and prompt; ``unfit`` suites cannot be answered."""

    def __init__(self, unfit: Sequence[str] = ()) -> None:
        super().__init__()
        self.unfit = unfit
        self.prepared: list[tuple[str, list[str]]] = []
        self.asked: list[list[str]] = []

    def prepare(self, suite: str, samples: Sequence[AskedSample]) -> None:
        self.prepared.append((suite, [sample.id for sample in samples]))
        if suite in self.unfit:
            raise ModelError(f"no replies to {suite}")

    def answer_samples(self, asked: Sequence[AskedSample]) -> list[GenerateResponse | RequestError]:
        self.asked.append([sample.id for sample in asked])
        return [
            GenerateResponse(text=f"{sample.suite}/{sample.id}: {request.prompt}")
            for sample in asked
            for request in sample.requests
            if isinstance(request, GenerateRequest)
        ]


def known(keys: str, group: str = "suite", times: int = 1) -> list[PlannedSample]:
    """Members that say which samples they are, of a suite that also has a sample ``unselected``."""

    def asked(key: str, requests: Sequence[Request] = ()) -> AskedSample:
        return AskedSample(suite=group, id=key, number=1, place="", requests=tuple(requests))

    def one(key: str) -> PlannedSample:
        own = member(f"{group}-{key}", group, times)
        return dataclasses.replace(own, sample=lambda requests: asked(key, requests), suite=lambda: whole)

    whole = [asked(key) for key in (*keys, "unselected")]
    return [one(key) for key in keys]


def test_a_model_that_is_asked_by_sample_sees_the_suite_first() -> None:
    model, members = BySample(), [*known("abc", times=2), *known("d", "other")]
    batcher = planned(members, size=2)
    found = [outcome(batcher, one, model) for one in members]
    assert found[0] == ["suite/a: suite-a.0", "suite/a: suite-a.1"]
    assert found[3] == ["other/d: other-d.0"]
    assert model.prepared == [("suite", ["a", "b", "c", "unselected"]), ("other", ["d", "unselected"])]
    assert (model.asked, model.calls) == ([["a", "b"], ["c"], ["d"]], [])


def test_a_suite_that_does_not_fit_fails_all_its_samples_and_no_other() -> None:
    model, members = BySample(unfit=["suite"]), [*known("ab"), *known("d", "other")]
    batcher = planned(members)
    for one in members[:2]:
        with pytest.raises(ModelError, match="no replies to suite"):
            batcher.responses(one, model)
    assert outcome(batcher, members[2], model) == ["other/d: other-d.0"]
    assert model.prepared == [("suite", ["a", "b", "unselected"]), ("other", ["d", "unselected"])]
    assert model.asked == [["d"]]


def test_another_model_prepares_anew() -> None:
    first, second, members = BySample(), BySample(), known("abc")
    batcher = planned(members, size=1)
    batcher.responses(members[0], first)
    batcher.forget_model()
    batcher.responses(members[1], second)
    batcher.responses(members[2], second)
    assert len(first.prepared) == len(second.prepared) == 1


def test_replies_of_the_data_are_read_without_the_model_that_others_ask() -> None:
    model, data = Echo(), BySample()
    members = [member("a"), member("b"), *(dataclasses.replace(one, recorded=data) for one in known("cd", "other"))]
    batcher = planned(members)
    assert outcome(batcher, members[0], model) == ["a.0"]
    assert outcome(batcher, members[2], None) == ["other/c: other-c.0"]
    assert [(one.key, found[0].text) for one, found in batcher.answered(members[2]) if hasattr(found[0], "text")] == [
        ("other-d", "other/d: other-d.0")
    ]
    assert batcher.model is model
    assert outcome(batcher, members[1], model) == ["b.0"]
    assert model.calls == [["a.0", "b.0"]]
    assert not data.prepared, "there is nothing to see that the rows do not say"


def test_who_does_not_know_its_sample_is_asked_by_prompt() -> None:
    model, one = BySample(), member("a")
    assert outcome(planned([one]), one, model) == ["a.0"]
    assert model.calls == [["a.0"]]


def test_what_is_answered_by_sample_is_checked_as_any_answer() -> None:
    class Short(BySample):
        def answer_samples(self, asked: Sequence[AskedSample]) -> list[GenerateResponse | RequestError]:
            return super().answer_samples(asked)[1:]

    (one,) = known("a")
    with pytest.raises(ModelError, match="answer_samples returned 0 responses to 1 requests"):
        planned([one]).responses(one, Short())


class Background:
    """Answers with the prompt, when it is told to; ``refuses`` fail, and ``breaks`` fail as if all did."""

    def __init__(self, num_concurrent: int = 2, refuses: Sequence[str] = (), breaks: Sequence[str] = ()) -> None:
        self.num_concurrent = num_concurrent
        self.refuses, self.breaks = set(refuses), set(breaks)
        self.given: list[str] = []
        self.futures: dict[str, Future[Any]] = {}
        self.answers_at_once = True

    def submit(self, requests: Sequence[Request]) -> list[Future[Any]]:
        return [self._take_in(str(request.prompt)) for request in requests if isinstance(request, GenerateRequest)]

    def _take_in(self, prompt: str) -> Future[Any]:
        self.given.append(prompt)
        future = self.futures[prompt] = Future[Any]()
        if self.answers_at_once:
            self.answer(prompt)
        return future

    def answer(self, prompt: str) -> None:
        if prompt in self.breaks:
            self.futures[prompt].set_exception(ModelError(f"gone at {prompt}"))
        elif prompt in self.refuses:
            self.futures[prompt].set_result(RequestError(f"refused {prompt}"))
        else:
            self.futures[prompt].set_result(GenerateResponse(text=prompt))

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
        raise AssertionError("it is asked in the background")


def in_order(batcher: Batcher, members: Sequence[PlannedSample]) -> Batcher:
    keys = [member.key for member in members]
    batcher.upcoming = lambda key: keys[keys.index(key) + 1 :]
    return batcher


@given(keys=KEYS, data=st.data(), size=st.integers(1, 4), order=st.randoms(use_true_random=False))
def test_a_window_gives_what_asking_alone_gives(keys: list[str], data: st.DataObject, size: int, order: object) -> None:
    prompts = [f"{key}.0" for key in keys]
    refuses = data.draw(st.lists(st.sampled_from(prompts), unique=True))
    members = [member(key, data.draw(st.sampled_from("xyz")), data.draw(st.integers(1, 3))) for key in keys]
    model, alone = Background(data.draw(st.integers(1, 5)), refuses), Echo(refuses=refuses)
    run = members.copy()
    order.shuffle(run)  # type: ignore[attr-defined]
    batcher = in_order(planned(members, size), run)
    for one in run:
        assert outcome(batcher, one, model) == outcome(Batcher(), one, alone)
    assert sorted(model.given) == sorted(set(model.given)), "nothing is asked twice"


def test_a_window_reaches_across_chunks_and_groups_and_holds_twice_what_the_model_works_on() -> None:
    members = [member(key, group) for key, group in zip("abcdefgh", "xxyyxxyy", strict=True)]
    model, batcher = Background(num_concurrent=2), in_order(planned(members, 2), members)
    batcher.responses(members[0], model)
    assert model.given == ["a.0", "b.0", "c.0", "d.0"]
    batcher.responses(members[1], model)
    assert model.given == ["a.0", "b.0", "c.0", "d.0", "e.0"]


class AuditedBackground(Background):
    """Its audit hands out another model."""

    def __init__(self) -> None:
        super().__init__()
        self.audits: list[int] = []
        self.slow = Background()

    def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        self.audits.append(len(requests))
        return self.slow, EngineUse(engine="plain", reason="off")

    def submit(self, requests: Sequence[Request]) -> list[Future[Any]]:
        raise AssertionError("what the audit handed out is asked")


def test_a_group_in_a_window_is_audited_before_its_first_answer() -> None:
    members = scored_members(3)
    model, batcher = AuditedBackground(), in_order(planned(members), members)
    response = LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)

    def submit(requests: Sequence[Request]) -> list[Future[Any]]:
        future: Future[Any] = Future()
        future.set_result(response)
        model.slow.given.append("b")
        return [future]

    model.slow.submit = submit  # type: ignore[method-assign]
    batcher.audit(members[:2])
    assert batcher.responses(members[0], model) == [response]
    assert model.audits == [2]
    assert model.slow.given == ["b"] * 3
    assert batcher.engine_uses["suite"].engine == "plain"


def test_a_large_window_is_filled_in_portions() -> None:
    keys = [f"k{number}" for number in range(400)]
    members = [member(key) for key in keys]
    model, batcher = Background(num_concurrent=128), in_order(planned(members), members)
    sizes = []
    for one in members[:12]:
        batcher.responses(one, model)
        sizes.append(len(model.given))
    assert sizes[0] == 256
    assert sizes[3:6] == [256, 256, 261]
    assert len(set(sizes)) == 3


def test_an_item_waits_for_its_own_replies_only() -> None:
    members = [member(key) for key in "abc"]
    model, batcher = Background(), in_order(planned(members), members)
    model.answers_at_once = False
    given = threading.Event()

    def answer_the_first() -> None:
        while "c.0" not in model.futures:  # the window is full before anybody waits
            given.wait(0.001)
        model.answer("a.0")

    thread = threading.Thread(target=answer_the_first)
    thread.start()
    assert outcome(batcher, members[0], model) == ["a.0"]
    thread.join()
    assert not model.futures["b.0"].done()


def test_what_stops_a_session_takes_back_what_was_not_answered_and_keeps_what_was() -> None:
    members = [member(key) for key in "abcdef"]
    model, batcher = Background(num_concurrent=2), in_order(planned(members), members)
    batcher.responses(members[0], model)
    model.answers_at_once = False
    batcher.responses(members[1], model)
    batcher.stop()
    assert [key for key in "abcdef" if batcher.has_answered(key)] == ["c", "d"]
    assert model.futures["e.0"].cancelled()
    assert outcome(batcher, members[2], model) == ["c.0"]
    assert "f.0" not in model.given


def test_a_model_that_has_gone_fails_each_sample_with_its_line() -> None:
    members = [member(key) for key in "abc"]
    model = Background(breaks=["a.0", "b.0"])
    batcher = in_order(planned(members), members)
    for one in members[:2]:
        with pytest.raises(ModelError, match=f"gone at {one.key}"):
            batcher.responses(one, model)
    assert outcome(batcher, members[2], model) == ["c.0"]


@pytest.mark.parametrize("order", ["dcba", "ba", "d", "ca", "bd"])
def test_a_window_leaves_alone_what_a_worker_died_of(order: str) -> None:
    members = {key: member(key) for key in "abcdef"}
    model, batcher = Background(), planned(list(members.values()), 4, shares_chunks=True)
    batcher.upcoming = lambda key: order[order.index(str(key)) + 1 :]
    for place, key in enumerate(order, 1):
        batcher.responses(members[key], model)
        assert model.given == [f"{one}.0" for one in order[:place]]


def test_a_window_takes_in_the_next_chunk_of_a_workers_queue() -> None:
    members = {key: member(key) for key in "abcdef"}
    model, batcher = Background(8), planned(list(members.values()), 2, shares_chunks=True)
    batcher.upcoming = lambda key: "bcdf"  # e is another worker's: it came alone
    batcher.responses(members["a"], model)
    assert model.given == ["a.0", "b.0", "c.0", "d.0"]


def test_what_submit_promises_is_checked() -> None:
    model = Background()
    model.submit = lambda requests: []  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="submit returned 0 futures to 1 requests"):
        Batcher().responses(member("a"), model)


def test_samples_that_did_not_run_make_room() -> None:
    members = [member(key) for key in "abcdefghijkl"]
    model, batcher = Background(num_concurrent=2), in_order(planned(members, 12), members)
    for one in members[::2]:  # every other is skipped, which nobody knew
        assert outcome(batcher, one, model) == [f"{one.key}.0"]
    assert model.given == [f"{key}.0" for key in "abcdefghijkl"]
