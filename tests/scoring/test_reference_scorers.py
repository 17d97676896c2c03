"""What holds for every scorer that compares a reply with reference texts and says nothing of right or wrong."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError
from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.bleu import BleuSettings
from pytest_llmeval.scorers.chrf import ChrfSettings
from pytest_llmeval.scorers.meteor import MeteorSettings
from pytest_llmeval.scorers.reading import reference_texts as reference_scorer
from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer
from pytest_llmeval.scorers.rouge import RougeSettings
from pytest_llmeval.scorers.ter import TerSettings
from pytest_llmeval.scoring.metrics.definitions import definition, is_known
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodResponse
from tests.scoring.helpers import GENERATE, a_sample, judge_reply
from tests.support import REPOSITORY, clean_environment

ALL: list[ScoreSettings] = [
    BleuSettings(),
    BleuSettings(tokenize="intl", smoothing="add-k", k=(2,), lowercase=True),
    RougeSettings(types=("1", "L", "Lsum"), stemmer=True),
    ChrfSettings(),
    TerSettings(normalized=True, asian_support=True),
    MeteorSettings(synonyms=False),
]
each = pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.kind)


@each
def test_a_scorer_describes_itself_and_travels_to_workers(settings: ScoreSettings) -> None:
    scorer = make_scorer(settings)
    assert (scorer.name, scorer.version, scorer.default_template) == (
        settings.kind,
        1 + (settings.kind == "rouge"),
        "{{ question }}",
    )
    assert all(is_known(name) for name in scorer.metrics)
    assert len(set(scorer.metrics)) == len(scorer.metrics)
    presented = scorer.present(a_sample(["one", "two"]))
    assert scorer.variables(presented) == {}
    assert (scorer.answer_text(presented), presented.target) == ("one", ("one", "two"))
    copy = pickle.loads(pickle.dumps(scorer))
    assert (copy, copy.present(a_sample(["one", "two"]))) == (scorer, presented)


@each
def test_generation_is_as_the_suite_says(settings: ScoreSettings) -> None:
    scorer = make_scorer(settings)
    (request,) = scorer.requests(scorer.present(a_sample("x")), "Q", delimiter=" ", generate=GENERATE)
    assert request == GenerateRequest("Q", max_tokens=77, stop=("\n",), temperature=0.5, seed=3)


@each
@given(reply=st.text(st.characters(), max_size=100), reference=st.text(st.characters(), max_size=60))
def test_any_reply_has_every_number(settings: ScoreSettings, reply: str, reference: str) -> None:
    score = judge_reply(settings, reference, reply)
    assert score.status == "scored"
    assert score.no_answer == (score.answer is None) == (not reply.strip())
    assert checked(score, "it") == score
    for name, metric in summarize([score], make_scorer(settings).metrics).items():
        assert metric.n == 1
        assert metric.value is not None
        assert definition(name).lowest <= metric.value <= definition(name).highest


@each
@given(text=st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), min_size=4, max_size=12).map(" ".join))
def test_the_reference_itself_is_perfect(settings: ScoreSettings, text: str) -> None:
    for name, metric in summarize([judge_reply(settings, ["zero", text], text)], make_scorer(settings).metrics).items():
        if name == "meteor":  # one chunk is still a chunk
            assert metric.value == pytest.approx(1 - 0.5 / len(text.split()) ** 3)
        elif definition(name).kind != "count":
            assert metric.value == pytest.approx(0 if name.endswith("ter") else definition(name).highest), name


@each
@pytest.mark.parametrize("piece", ["9", "1 ", "-", " ", "\x00", "\ud800", "A", "the "])
def test_a_long_reply_is_judged(settings: ScoreSettings, piece: str) -> None:
    reply = piece * (100_000 // len(piece))
    assert judge_reply(settings, "the cat sat on the mat", reply).status == "scored"


@pytest.mark.parametrize(
    ("settings", "count", "reason"),
    [
        (
            TerSettings(),
            1_000,
            "the reply has 1,000 words and a reference 1,000: TER is computed where their product is at most 400,000",
        ),
        (
            TerSettings(normalized=True, asian_support=True),
            1_000,
            "the reply has 1,000 words and a reference 1,000: TER is computed where their product is at most 400,000",
        ),
        (
            RougeSettings(),
            6_000,
            "the reply has 6,000 words and a reference 6,000: ROUGE is computed where their product is at most "
            "25,000,000",
        ),
    ],
    ids=["ter", "ter by character", "rouge"],
)
def test_what_would_take_minutes_is_unscored(settings: ScoreSettings, count: int, reason: str) -> None:
    word = "字" if isinstance(settings, TerSettings) and settings.asian_support else "a "
    score = judge_reply(settings, ["a", word * count], word * count)
    assert (score.status, score.reason) == ("unscored", reason)
    assert judge_reply(settings, "a b", word * count).status == "scored"


@each
def test_a_reply_is_judged_up_to_its_bound_and_the_record_says_so(settings: ScoreSettings) -> None:
    bounded = settings.model_copy(update={"max_reply_chars": 22})
    score = judge_reply(bounded, "the cat sat on the mat", "the cat sat on the mat" + " and so on" * 100_000)
    assert score.values == judge_reply(settings, "the cat sat on the mat", "the cat sat on the mat").values
    assert (score.answer, score.details) == (
        "the cat sat on the mat",
        {"reply_chars": 1_000_022, "judged_chars": 22},
    )
    assert judge_reply(bounded, "the cat sat on the mat", "the cat sat on the mat").details == {}


@each
def test_numbers_are_those_of_a_process_of_their_own_where_texts_are_long(settings: ScoreSettings) -> None:
    """3,000 characters against the library called here."""
    reply, reference = "the cat sat on a mat, " * 60, "the cat sat on the big mat. " * 60
    scorer = make_scorer(settings)
    assert isinstance(scorer, LibraryScorer)
    score = judge_reply(settings, [reference, "a cat"], reply)
    assert score.values == scorer.values(reply, [reference, "a cat"])
    assert score.details == {}


@pytest.mark.skipif(sys.platform == "win32", reason="only POSIX bounds processor time")
def test_what_takes_too_long_is_unscored_and_the_next_is_right() -> None:
    settings = MeteorSettings(synonyms=False, timeout_s=0.05)
    none_alike = (" ".join(f"{letter}{number}" for number in range(7_000)) for letter in "ab")
    score = judge_reply(settings, next(none_alike), next(none_alike))
    assert (score.status, score.values) == ("unscored", {})
    assert score.reason == "it took longer than 0.05 s (score.meteor.timeout_s)"
    assert judge_reply(settings, "the cat sat " * 200, "the cat sat " * 200).status == "scored"


@each
def test_a_model_that_does_not_answer_with_a_reply_is_named(settings: ScoreSettings) -> None:
    scorer = make_scorer(settings)
    presented = scorer.present(a_sample("x"))
    reply = GenerateResponse(text="x")
    for responses in ([], [reply, reply], [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)]):
        with pytest.raises(ModelError, match="expected one GenerateResponse from the model, found"):
            scorer.score(presented, responses)


@each
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "has no target"),
        ([], "empty list"),
        (True, "not text"),
        ({"a": 1}, "expected a text or a list of texts"),
        (["a", ["b"]], "expected a text or a list of texts"),
    ],
)
def test_a_target_that_is_no_text_is_refused(settings: ScoreSettings, target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scorer(settings).present(a_sample(target))


@each
def test_a_missing_library_is_named_with_its_extra(settings: ScoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"bleu": "sacrebleu", "chrf": "sacrebleu", "ter": "sacrebleu", "rouge": "rouge_score", "meteor": "nltk"}
    absent = missing[settings.kind]
    monkeypatch.setattr(reference_scorer, "find_spec", lambda name: None if name == absent else find_spec(name))
    package = absent.replace("_", "-")
    expected = rf"^{settings.kind} needs {package}, .*; pip install 'pytest-llmeval-suites\[metrics\]'$"
    with pytest.raises(ValueError, match=expected):
        make_scorer(settings)


def test_importing_the_scorers_imports_no_library_of_theirs() -> None:
    code = (
        "import sys, pytest_llmeval.evaluation.pipeline, pytest_llmeval.scoring.metrics.summary\n"
        "import pytest_llmeval.reporting.report.report\n"
        "print([name for name in ('sacrebleu', 'rouge_score', 'nltk', 'numpy', 'scipy') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"
