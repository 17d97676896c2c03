"""Our texts, boxes and normal forms against lm-eval's own functions of hendrycks_math, minerva_math and aime."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pytest_llmeval.scorers.math import MathScorer, MathSettings
from pytest_llmeval.scorers.mathematics.lm_eval import announced_answer, equal_texts, normalized_answer, published_box
from tests.properties import examples
from tests.scoring.helpers import a_sample, judge_reply
from tests.scoring.lm_eval_math import AIME, HENDRYCKS, MINERVA
from tests.support import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the published data sets are not here")

PARTS = (
    *("\\frac", "\\dfrac", "\\tfrac", "\\sqrt", "\\left", "\\right", "\\%", "\\$", "\\!", "\\\\", "\\;", ",\\!"),
    *("\\text{ ", "\\text{", "\\textbf{", "\\overline{", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\ldots", "mbox"),
    *("\\boxed{", "\\boxed ", "\\boxed", "\\fbox{", "{", "}", "(", ")", "[3]", "$", '"', "{,}", ",", ".", " ", "\n"),
    *("0.5", ".5", "0", "1", "2", "12", "100", "x", "=", "/", "+", "_", "\u0663", "an ", "a ", "and", "ft", "square"),
    *("cm", "hours", "Final Answer: The final answer is", ". I hope it is correct.", "I hope it is correct"),
)
latex = st.lists(st.sampled_from(PARTS), max_size=9).map("".join)


@given(latex, latex)
@hypothesis_settings(max_examples=examples(1000))
def test_equality_of_texts(one: str, other: str) -> None:
    assert equal_texts(one, other) == HENDRYCKS.is_equiv(one, other)


@given(latex, st.sampled_from([(" ", ""), ("\\dfrac", "\\frac"), ("0.5", "1/2"), ("\\left", ""), ("\\text{ ", "")]))
@hypothesis_settings(max_examples=examples(1000))
def test_equality_of_texts_that_are_nearly_the_same(text: str, change: tuple[str, str]) -> None:
    assert equal_texts(text, text.replace(*change)) == HENDRYCKS.is_equiv(text, text.replace(*change))
    assert equal_texts(text, text)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (r"\frac12", r"\dfrac{1}{2}", True),
        (r"\frac1{72}", r"\frac{1}{72}", True),
        ("1/2", "0.5", True),
        ("1/4", "0.25", False),
        ("x=5", "5", True),
        ("xyz=5", "5", False),
        (r"\sqrt2", r"\sqrt{2}", True),
        (r"5\text{ cm}", "5", True),
        ("a/b", "a/b", True),
        ("a /b", "a/b", False),
        (r"90^\circ", "90", True),
    ],
)
def test_equality_of_texts_by_example(one: str, other: str, equal: bool) -> None:
    assert HENDRYCKS.is_equiv(one, other) is equal
    assert equal_texts(one, other) is equal


@given(latex)
@hypothesis_settings(max_examples=examples(1000))
def test_boxes(text: str) -> None:
    try:
        expected = MINERVA.remove_boxed(MINERVA.last_boxed_only_string(text))
    except (AssertionError, TypeError):  # what lm-eval cannot read would end its run
        published_box(text)
        return
    assert published_box(text) == expected


@given(latex, st.sampled_from(["1", "12", "0.5", "100", r"2^\circ", ""]))
@hypothesis_settings(max_examples=examples(1000))
def test_replies_to_aime(reply: str, target: str) -> None:
    settings = MathSettings(compare="hendrycks", extract=("aime",))
    for text in (reply, f"{reply}\\boxed{{{target}}}", f"${target}$ {reply}"):
        expected = AIME.process_results({"Answer": target or "7"}, [text])["exact_match"]
        assert judge_reply(settings, target or "7", text).values["accuracy"] == expected


@given(latex)
@hypothesis_settings(max_examples=examples(1000))
def test_normalised_and_announced_answers(text: str) -> None:
    assert normalized_answer(text) == MINERVA.normalize_final_answer(text)
    assert (announced_answer(text) or "[invalidanswer]") == (MINERVA.get_unnormalized_answer(text) or "[invalidanswer]")


PAIRS = [
    ("24", "24"),
    ("24", "24.0"),
    (r"\frac{1}{2}", "0.5"),
    (r"\frac{1}{2}", r"\frac12"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    ("[2,5)", "[2,5)"),
    ("(2,5)", "(5,2)"),
    ("x+1", "1+x"),
    ("x=5", "5"),
    (r"2\pi", r"\pi 2"),
    ("1,000", "1000"),
    ("5", r"5\text{ cm}"),
    (r"\frac{1}{3}", "0.3333"),
    ("y", "z"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    (r"\text{Tuesday}", "Tuesday"),
    ("6", "3!"),
    ("2,4", "4,2"),
]


@pytest.mark.parametrize(("target", "answer"), PAIRS)
def test_metrics_of_minerva_math(target: str, answer: str) -> None:
    """Both metrics of a document, as lm-eval's ``process_results`` gives them.

    sympy's parser asks for ANTLR 4.11 by name, there and here; that later versions read the same was measured.
    """
    solution = f"So it is $\\boxed{{{target}}}$."
    reply = f"Let us see.\nFinal Answer: The final answer is ${answer}$. I hope it is correct."
    document = {"solution": solution, "answer": MINERVA.normalize_final_answer(target)}
    with mock.patch("sympy.parsing.latex._parse_latex_antlr.version", return_value="4.11"):
        expected = MINERVA.process_results(document, [reply])
    ours = {
        "exact_match": judge_reply(MathSettings(compare="minerva"), solution, reply).values["accuracy"],
        "math_verify": judge_reply(MathSettings(extract=("math_verify",)), solution, reply).values["accuracy"],
    }
    assert ours == expected


@pytest.mark.parametrize(("target", "answer"), PAIRS)
@pytest.mark.parametrize("reply", ["It is ${}$.", "{}", "First $1$, then ${}$", "${}$ or $7$"])
def test_metric_of_hendrycks_math(target: str, answer: str, reply: str) -> None:
    solution = f"So it is $\\boxed{{{target}}}$."
    text = reply.format(answer)
    expected = HENDRYCKS.process_results({"solution": solution}, [text])
    ours = judge_reply(MathSettings(compare="hendrycks"), solution, text)
    assert ours.values["accuracy"] == expected["exact_match"]


def published_solutions() -> Iterator[str]:
    for name, column in (("minerva_math", "solution"), ("gaokao2023en", "answer")):
        for line in Path(DATA, name, "test.jsonl").read_text(encoding="utf-8").splitlines():
            text = json.loads(line)[column]
            if text.strip():  # two rows of gaokao2023en have no answer
                yield text


@needs_data
def test_published_answers_are_read_as_lm_eval_reads_them() -> None:
    answers = []
    for solution in published_solutions():
        if "\\boxed" in solution:
            assert published_box(solution) == MINERVA.remove_boxed(MINERVA.last_boxed_only_string(solution))
        answers.append(published_box(solution) or solution)
    assert len(answers) == 272 + 383
    for answer in answers:
        assert normalized_answer(answer) == MINERVA.normalize_final_answer(answer)
        assert equal_texts(answer, answer)
        changed = answer.replace("\\frac", "\\dfrac").replace(" ", "")
        assert equal_texts(answer, changed) == HENDRYCKS.is_equiv(answer, changed)


@needs_data
@pytest.mark.parametrize("compare", ["math_verify", "hendrycks", "minerva"])
def test_every_published_answer_equals_itself(compare: str) -> None:
    settings = MathSettings(compare=compare, extract=("boxed", "whole"))  # type: ignore[arg-type]
    scorer = MathScorer.of(settings)
    for solution in published_solutions():
        answer = str(scorer.present(a_sample(solution)).target)
        # Of one answer ("…+$ $…") the published normalisation leaves nothing, so that lm-eval never counts it right.
        nothing_left = compare == "minerva" and MINERVA.normalize_final_answer(answer) == ""
        status = judge_reply(settings, solution, solution).status
        assert status == ("wrong" if nothing_left else "correct"), answer


@needs_data
@pytest.mark.campaign
def test_published_answers_written_otherwise() -> None:
    """Shares that Math-Verify finds equal: what is missing is LaTeX that it does not read (units, ``np.arcsin``)."""
    rewritings: dict[str, Callable[[str], str]] = {
        "fractions and spaces": lambda text: text.replace("\\frac", "\\dfrac").replace("=", " = "),
        "an equation": lambda text: "x = " + text,
        "a sum": lambda text: text + " + 0",
    }
    settings = MathSettings(timeout_s=20)
    scorer = MathScorer.of(settings)
    targets = [str(scorer.present(a_sample(solution)).target).strip("$") for solution in published_solutions()]
    for name, rewritten in rewritings.items():
        plain = [text for text in targets if name != "an equation" or not {"=", "<", ">"} & set(text)]
        right = sum(judge_reply(settings, text, f"\\boxed{{{rewritten(text)}}}").status == "correct" for text in plain)
        print(f"{name}: {right} of {len(plain)} equal")  # noqa: T201 - for the log
        assert right / len(plain) > (0.85 if name == "a sum" else 0.97)
