"""Judging: what many judgements ask goes out together, and each ends as it would alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference.accounting import TimeShares
from pytest_llmeval.inference.judging import Judging
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.types import Ask, GenerateRequest, GenerateResponse, Request, Response, Role, Score


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
        return [self.answer(prompt) for prompt in prompts]

    def answer(self, prompt: str) -> GenerateResponse | RequestError:
        return RequestError(f"refused {prompt}") if prompt in self.refuses else GenerateResponse(text=prompt)


class Background(Echo):
    """Has the futures that it promised, for a test to fill; with ``is_quick`` they are filled at once."""

    num_concurrent = 4

    def __init__(self, raises: Sequence[str] = (), refuses: Sequence[str] = (), *, is_quick: bool = False) -> None:
        super().__init__(raises, refuses)
        self.is_quick = is_quick
        self.promised: dict[str, Future[Response | Failed]] = {}
        self.when_submitted: Callable[[], None] = lambda: None

    def submit(self, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
        prompts = [str(request.prompt) for request in requests if isinstance(request, GenerateRequest)]
        self.calls.append(prompts)
        made: list[Future[Response | Failed]] = []
        for prompt in prompts:
            self.promised[prompt] = Future()
            made.append(self.promised[prompt])
            if self.is_quick:
                self.fill(prompt)
        self.when_submitted()
        return made

    def fill(self, prompt: str) -> None:
        if prompt in self.raises:
            self.promised[prompt].set_exception(RuntimeError(f"cannot read {prompt}"))
        else:
            self.promised[prompt].set_result(self.answer(prompt))


def asking(name: str, rounds: Sequence[int], end: BaseException | None = None) -> JudgeSteps:
    """Asks as often as there are ``rounds``, each time for so many replies; then the score, which holds all of them."""
    heard: list[str] = []
    for number, count in enumerate(rounds):
        prompts = [f"{name}.{number}.{place}" for place in range(count)]
        answers = yield Ask("judge", tuple(GenerateRequest(prompt) for prompt in prompts))
        assert len(answers) == count
        heard += [one.text if isinstance(one, GenerateResponse) else f"({one})" for one in answers]
    if end is not None:
        raise end
    return Score(status="scored", answer=" ".join(heard))


class OneJudge(Judging):
    """Judging by one judge, which is given when a judgement is finished."""

    def __init__(self) -> None:
        super().__init__(TimeShares())
        self.models: dict[Role, Sequence[object]] = {}

    def __contains__(self, key: str) -> bool:
        return self.has_begun(key, self.models)

    def start(self, key: str, one: JudgeSteps) -> None:
        self.begin(key, one, self.models)

    def end(self, key: str, model: object = None) -> Score:
        self.models["judge"] = (model,)
        return self.finish(key)


def begun(askings: dict[str, JudgeSteps]) -> OneJudge:
    judging = OneJudge()
    for key, one in askings.items():
        judging.start(key, one)
    return judging


def outcome(judging: OneJudge, key: str, model: object) -> str:
    try:
        return str(judging.end(key, model).answer)
    except (RuntimeError, ModelError, RequestError, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"


def test_many_askings_go_out_in_one_call() -> None:
    judging, model = begun({key: asking(key, [1, 2]) for key in "abc"}), Echo()
    assert outcome(judging, "b", model) == "b.0.0 b.1.0 b.1.1"
    assert model.calls == [
        ["a.0.0", "b.0.0", "c.0.0"],
        ["a.1.0", "a.1.1", "b.1.0", "b.1.1", "c.1.0", "c.1.1"],
    ]
    assert [judging.is_judged(key) for key in "abc"] == [True, False, True]
    assert outcome(judging, "a", model) == "a.0.0 a.1.0 a.1.1"
    assert outcome(judging, "c", model) == "c.0.0 c.1.0 c.1.1"
    assert len(model.calls) == 2
    assert not any(key in judging for key in "abc")


def asking_by_turns(name: str, roles: Sequence[Role]) -> JudgeSteps:
    """Asks for one reply of each role, one after another."""
    heard: list[str] = []
    for number, role in enumerate(roles):
        (answer,) = yield Ask(role, (GenerateRequest(f"{name}.{number}"),))
        heard.append(answer.text if isinstance(answer, GenerateResponse) else f"({answer})")
    return Score(status="scored", answer=" ".join(heard))


def outcome_of(judging: Judging, key: Hashable) -> str:
    try:
        return str(judging.finish(key).answer)
    except RuntimeError as error:
        return str(error)


def test_a_call_that_fails_in_one_role_is_no_error_of_who_waits_for_another() -> None:
    """The first waits for a model in the background, which answers once the judge has failed for the others."""

    class Judge(Echo):
        def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | RequestError]:
            if "a.0" in embedder.promised and not embedder.promised["a.0"].done():
                threading.Thread(target=embedder.fill, args=("a.0",)).start()
            return super().generate(requests)

    embedder, judge = Background(), Judge(raises=["b.0"])
    judging = Judging(TimeShares())
    models: dict[Role, Sequence[object]] = {"judge": [judge], "embedder": [embedder]}
    asked: dict[str, list[Role]] = {"a": ["embedder"], "b": ["judge"], "c": ["judge", "judge"]}
    for key, roles in asked.items():
        judging.begin(key, asking_by_turns(key, roles), models)
    assert outcome_of(judging, "a") == "a.0"
    assert outcome_of(judging, "b") == "cannot read b.0"
    assert outcome_of(judging, "c") == "c.0 c.1"


@given(
    askings=st.lists(st.lists(st.sampled_from(["judge", "embedder"]), max_size=3), min_size=1, max_size=4),
    raises=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2))),
    in_background=st.tuples(st.booleans(), st.booleans()),
    order=st.permutations(range(4)),
)
def test_whatever_the_roles_each_ends_as_it_would_alone(
    askings: list[list[Role]], raises: set[tuple[int, int]], in_background: tuple[bool, bool], order: list[int]
) -> None:
    broken = [f"{name}.{number}" for name, number in raises]

    def made(keys: Sequence[int]) -> Judging:
        kinds = [Background(broken, is_quick=True) if background else Echo(broken) for background in in_background]
        judging = Judging(TimeShares())
        for key in keys:
            models: dict[Role, Sequence[object]] = {"judge": [kinds[0]], "embedder": [kinds[1]]}
            judging.begin(key, asking_by_turns(str(key), askings[key]), models)
        return judging

    keys = [key for key in order if key < len(askings)]
    judging = made(range(len(askings)))
    together = {key: outcome_of(judging, key) for key in keys}
    assert together == {key: outcome_of(made([key]), key) for key in keys}


def test_one_that_asks_nothing_needs_no_model() -> None:
    judging = begun({"a": asking("a", [])})
    assert judging.is_judged("a")
    assert judging.end("a").answer == ""


@pytest.mark.parametrize("model", [Echo(), Background(is_quick=True)], ids=["calls", "background"])
def test_asking_for_no_reply_goes_on(model: Echo) -> None:
    judging = begun({"a": asking("a", [0, 1]), "b": asking("b", [0])})
    assert outcome(judging, "a", model) == "a.1.0"
    assert outcome(judging, "b", model) == ""


def test_one_that_fails_alone_is_to_blame_alone() -> None:
    judging, model = begun({key: asking(key, [1, 1]) for key in "abc"}), Echo(raises=["b.0.0"])
    assert outcome(judging, "a", model) == "a.0.0 a.1.0"
    assert outcome(judging, "b", model) == "RuntimeError: cannot read b.0.0"
    assert outcome(judging, "c", model) == "c.0.0 c.1.0"
    assert "b" not in judging


def test_one_that_fails_does_not_make_the_others_work_again_and_again() -> None:
    """A call that fails may have taken as long as one that does not: each is asked with others once at the most."""
    keys = [f"k{number}" for number in range(20)]
    judging, model = begun({key: asking(key, [1]) for key in keys}), Echo(raises=["k19.0.0"])
    found = [outcome(judging, key, model) for key in keys]
    assert found == [*(f"{key}.0.0" for key in keys[:-1]), "RuntimeError: cannot read k19.0.0"]
    assert sum(map(len, model.calls)) <= 2 * len(keys)


def test_a_request_that_fails_is_an_answer() -> None:
    judging, model = begun({key: asking(key, [2]) for key in "ab"}), Echo(refuses=["a.0.1"])
    assert outcome(judging, "a", model) == "a.0.0 (refused a.0.1)"
    assert outcome(judging, "b", model) == "b.0.0 b.0.1"


@pytest.mark.parametrize("rounds", [[], [1]])
@pytest.mark.parametrize("make", [RuntimeError, pytest.fail.Exception])
@pytest.mark.parametrize("is_background", [False, True])
def test_what_a_judgement_raises_is_its_own(
    rounds: list[int], make: Callable[[str], BaseException], is_background: bool
) -> None:
    """Pytest's own outcomes, which a scorer of a user's may raise, are no Exceptions."""
    judging = begun({"a": asking("a", [1]), "b": asking("b", rounds, make("mine")), "c": asking("c", [1])})
    model = Background(is_quick=True) if is_background else Echo()
    assert outcome(judging, "a", model) == "a.0.0"
    assert outcome(judging, "c", model) == "c.0.0"
    assert outcome(judging, "b", model).endswith(": mine")


@pytest.mark.parametrize("end", [KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_of_the_model_ends_the_wait(end: type[BaseException]) -> None:
    class Interrupted:
        num_calls = 0

        def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
            self.num_calls += 1
            raise end

    judging, model = begun({key: asking(key, [1]) for key in "ab"}), Interrupted()
    with pytest.raises(end):
        judging.end("a", model)
    assert model.num_calls == 1, "it is not asked again"


def test_each_goes_on_as_soon_as_its_own_answers_are_there() -> None:
    judging, model = begun({"a": asking("a", [1]), "b": asking("b", [1, 1])}), Background()
    rounds: list[list[str]] = []

    def submitted() -> None:
        rounds.append(model.calls[-1])
        if model.calls[-1] == ["b.0.0"]:
            model.fill("b.0.0")
        if model.calls[-1] == ["b.1.0"]:  # the second round of b, while a has no answer to its first
            assert not model.promised["a.0.0"].done()
            model.fill("a.0.0")

    model.when_submitted = submitted
    assert outcome(judging, "a", model) == "a.0.0"
    assert rounds == [["a.0.0"], ["b.0.0"], ["b.1.0"]]
    assert "b" in judging
    model.fill("b.1.0")
    assert outcome(judging, "b", model) == "b.0.0 b.1.0"


def test_answers_may_come_from_another_thread() -> None:
    judging, model = begun({key: asking(key, [2]) for key in "ab"}), Background()
    submitted = threading.Event()
    model.when_submitted = lambda: submitted.set() if len(model.promised) == 4 else None

    def answer() -> None:
        submitted.wait()
        for prompt in list(model.promised)[::-1]:
            model.fill(prompt)

    thread = threading.Thread(target=answer)
    thread.start()
    assert outcome(judging, "a", model) == "a.0.0 a.0.1"
    thread.join()
    assert outcome(judging, "b", model) == "b.0.0 b.0.1"


def test_a_future_that_fails_is_blamed_on_its_own() -> None:
    model = Background(raises=["b.0.0"], refuses=["c.0.0"], is_quick=True)
    judging = begun({key: asking(key, [1]) for key in "abc"})
    assert outcome(judging, "a", model) == "a.0.0"
    assert outcome(judging, "b", model) == "RuntimeError: cannot read b.0.0"
    assert outcome(judging, "c", model) == "(refused c.0.0)"


def test_a_future_with_an_outcome_of_pytest_is_blamed_on_its_own() -> None:
    class Failing(Background):
        def fill(self, prompt: str) -> None:
            if prompt.startswith("b"):
                self.promised[prompt].set_exception(pytest.fail.Exception("not here"))
            else:
                super().fill(prompt)

    model = Failing(is_quick=True)
    judging = begun({key: asking(key, [1]) for key in "abc"})
    assert outcome(judging, "a", model) == "a.0.0"
    assert outcome(judging, "b", model) == "Failed: not here"
    assert outcome(judging, "c", model) == "c.0.0"


def test_a_submit_that_fails_is_blamed_on_its_own() -> None:
    class Picky(Background):
        def submit(self, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
            if any(str(getattr(request, "prompt", "")).startswith("b") for request in requests):
                raise RuntimeError("b is too long")
            return super().submit(requests)

    model = Picky(is_quick=True)
    judging = begun({key: asking(key, [1]) for key in "abc"})
    assert outcome(judging, "a", model) == "a.0.0"
    assert outcome(judging, "b", model) == "RuntimeError: b is too long"
    assert outcome(judging, "c", model) == "c.0.0"


def test_too_few_futures_are_the_models_error() -> None:
    class Short(Background):
        def submit(self, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
            return super().submit(requests)[1:]

    judging = begun({"a": asking("a", [2]), "b": asking("b", [1])})
    model = Short(is_quick=True)
    assert outcome(judging, "a", model).endswith("submit returned 1 futures to 2 requests")
    assert outcome(judging, "b", model).endswith("submit returned 0 futures to 1 requests")


def test_close_gives_up() -> None:
    closed: list[str] = []

    def noted(key: str) -> JudgeSteps:
        try:
            return (yield from asking(key, [2, 1]))
        finally:
            closed.append(key)

    model = Background()

    def submitted() -> None:
        for prompt in model.calls[-1]:
            if prompt.startswith("a"):
                model.fill(prompt)

    model.when_submitted = submitted
    judging = begun({key: noted(key) for key in "abc"})
    assert outcome(judging, "a", model) == "a.0.0 a.0.1 a.1.0"
    assert closed == ["a"]
    judging.stop()
    assert sorted(closed) == ["a", "b", "c"]
    assert all(future.cancelled() for prompt, future in model.promised.items() if not prompt.startswith("a"))
    assert "b" not in judging
    judging.stop()


def test_what_was_judged_before_the_close_can_be_taken() -> None:
    judging, model = begun({"a": asking("a", [1]), "b": asking("b", [1])}), Echo()
    outcome(judging, "a", model)
    judging.stop()
    assert judging.is_judged("b")
    assert judging.end("b").answer == "b.0.0"


def test_a_judgement_whose_model_failed_can_begin_again() -> None:
    model = Echo(raises=["a.0.0"])
    judging = begun({"a": asking("a", [1])})
    assert outcome(judging, "a", model) == "RuntimeError: cannot read a.0.0"
    assert "a" not in judging
    judging.start("a", asking("a", [1]))
    assert outcome(judging, "a", Echo()) == "a.0.0"


def test_time_is_shared_by_what_the_model_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares of a call sum to what was spent: each sample's differences from it sum to nothing."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    class Timed(Echo):
        def answer(self, prompt: str) -> GenerateResponse:
            seconds = {"a": 1.0, "b": 3.0, "c": 0.0}[prompt[0]]
            now[0] += 2 * seconds
            return GenerateResponse(text=prompt, seconds=seconds)

    model, judging = Timed(), OneJudge()
    for key in "abc":
        judging.start(key, asking(key, [1]))
    for key, expected in (("a", 2 - 8), ("b", 6), ("c", 0)):
        judging.end(key, model)
        assert judging.shares.settle(key) == pytest.approx(expected)


PLANS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.lists(st.integers(0, 3), max_size=3), st.booleans()),
    min_size=1,
)


def prompts_of(plans: dict[str, tuple[list[int], bool]]) -> list[str]:
    return [
        f"{key}.{number}.{place}"
        for key, (rounds, _) in plans.items()
        for number, count in enumerate(rounds)
        for place in range(count)
    ]


@pytest.mark.parametrize("kind", ["calls", "background"])
@given(plans=PLANS, data=st.data())
def test_each_ends_as_it_would_alone(kind: str, plans: dict[str, tuple[list[int], bool]], data: st.DataObject) -> None:
    """Whatever the order in which they begin and are finished, and whatever fails."""
    prompts = prompts_of(plans)
    some = st.lists(st.sampled_from(prompts), unique=True, max_size=3) if prompts else st.just([])
    raises, refuses = data.draw(some), data.draw(some)

    def model() -> Any:
        return Echo(raises, refuses) if kind == "calls" else Background(raises, refuses, is_quick=True)

    def made(key: str) -> Generator[Ask, Sequence[Response | Failed], Score]:
        rounds, fails = plans[key]
        return asking(key, rounds, RuntimeError(f"{key} is wrong") if fails else None)

    alone = {key: outcome(begun({key: made(key)}), key, model()) for key in plans}
    order = data.draw(st.permutations(list(plans)))
    judging, shared = OneJudge(), model()
    found: dict[str, str] = {}
    for key in order:
        if key not in judging:
            judging.start(key, made(key))
        others = [other for other in plans if other not in judging and other not in found]
        for other in data.draw(st.permutations(others))[: data.draw(st.integers(0, len(others)))]:
            judging.start(other, made(other))
        found[key] = outcome(judging, key, shared)
    assert found == alone
    assert not any(key in judging for key in plans)


def test_each_is_judged_by_the_models_that_it_began_with() -> None:
    """Suites can have judges of their own, and a judgement that is open must not go on with another suite's."""
    first, second = Echo(), Echo()
    judging = Judging(TimeShares())
    judging.begin("a1", asking("a1", [1]), {"judge": (first,)})
    judging.begin("a2", asking("a2", [1, 1]), {"judge": (first,)})
    judging.begin("b1", asking("b1", [1, 1]), {"judge": (second,)})
    assert judging.finish("a1").answer == "a1.0.0"
    assert judging.finish("b1").answer == "b1.0.0 b1.1.0"
    assert (first.calls, second.calls) == ([["a1.0.0", "a2.0.0"]], [["b1.0.0"], ["b1.1.0"]])
    assert judging.finish("a2").answer == "a2.0.0 a2.1.0"
    assert judging.judges_ahead


def test_each_judge_of_a_panel_is_asked_for_all_samples_at_once() -> None:
    """Judges of one process take turns as seldom as they can."""
    first, second = Echo(), Echo()
    judging = Judging(TimeShares())
    models: dict[Role, Sequence[object]] = {"judge": (first, second)}
    for name in ("a", "b"):
        judging.begin(name, in_turn(name), models)
    assert judging.finish("a").answer == "a.0 a.1"
    assert judging.finish("b").answer == "b.0 b.1"
    assert (first.calls, second.calls) == ([["a.0", "b.0"]], [["a.1", "b.1"]])


def test_a_judge_that_answers_one_by_one_is_asked_for_the_sample_that_runs() -> None:
    """What it has said is then in a record, and in a store, when Ctrl-C comes."""

    class Slow(Echo):
        answers_one_by_one = True

    judge = Slow()
    judging = Judging(TimeShares())
    for name in ("a", "b"):
        judging.begin(name, asking(name, [1, 1]), {"judge": (judge,)})
    judging.finish("a")
    assert judge.calls == [["a.0.0"], ["a.1.0"]]
    judging.finish("b")
    assert judge.calls[2:] == [["b.0.0"], ["b.1.0"]]


def in_turn(name: str) -> JudgeSteps:
    """Asks the first judge, then the second."""
    heard = []
    for place in range(2):
        (answer,) = yield Ask("judge", (GenerateRequest(f"{name}.{place}"),), place)
        heard.append(answer.text if isinstance(answer, GenerateResponse) else "")
    return Score(status="scored", answer=" ".join(heard))


def test_what_was_begun_with_another_model_begins_again() -> None:
    judging = Judging(TimeShares())
    judging.begin("a", asking("a", [1]), {"judge": (Echo(),)})
    other: dict[Role, Sequence[object]] = {"judge": (Echo(),)}
    assert not judging.has_begun("a", other)
    assert not judging.judges_ahead, "a fixture makes one for each test"
    judging.begin("a", asking("a", [1]), other)
    assert judging.has_begun("a", other)
    assert judging.finish("a").answer == "a.0.0"
