"""References that a metric's tokenizer finds no words in."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite

CHINESE = "猫坐在垫子上睡了一整天。"
JAPANESE = "猫はマットの上で一日中眠っていました。"
THAI = "แมวนอนอยู่บนเสื่อตลอดทั้งวัน"
SEGMENTED = "猫 坐 在 垫子 上 睡 了 一整天 。"


def warnings_of(folder: Path, score: str, *references: str) -> list[str]:
    rows = "".join(f"  - {{question: q, target: '{reference}'}}\n" for reference in references)
    path = folder / "s.yaml"
    path.write_text(f"suite: s\nscore: {score}\nsamples:\n{rows}", encoding="utf-8")
    found = Evaluation(load_suite(path)).warnings()
    assert all(line.startswith(f"{path.name}:2: score") or f"{path}:2: score" in line for line in found)
    return [line.partition(": score")[2] for line in found]


@pytest.mark.parametrize(
    ("reference", "right"),
    [
        (CHINESE, "set score.bleu.tokenize: zh"),
        (JAPANESE, "set score.bleu.tokenize: ja-mecab (pip install 'sacrebleu[ja]'), or char"),
        (THAI, "set score.bleu.tokenize: char"),
    ],
)
@pytest.mark.parametrize("score", ["bleu", "{bleu: {tokenize: intl}}"])
def test_the_tokenizer_that_fits_is_named(tmp_path: Path, score: str, reference: str, right: str) -> None:
    (found,) = warnings_of(tmp_path, score, reference, reference, "one in English")
    assert found.endswith(right)


@pytest.mark.parametrize(("reference", "tokenize"), [(CHINESE, "zh"), (THAI, "char"), (JAPANESE, "char")])
def test_what_is_named_helps_and_what_is_warned_of_gives_nothing(reference: str, tokenize: str) -> None:
    reply = reference[:8] + reference[9:]
    assert sacrebleu.sentence_bleu(reply, [reference]).score < 1
    assert sacrebleu.sentence_bleu(reply, [reference], tokenize=tokenize).score > 50


@pytest.mark.parametrize(
    ("score", "reference"),
    [
        ("bleu", "the cat sat on the mat"),
        ("bleu", "Кошка сидела на коврике."),
        ("bleu", "고양이가 매트 위에 앉아 있었다."),
        ("bleu", "the 猫 sat on the mat"),
        ("bleu", SEGMENTED),
        ("{bleu: {tokenize: zh}}", CHINESE),
        ("{bleu: {tokenize: char}}", THAI),
        ("{bleu: {tokenize: none}}", CHINESE),
        ("chrf", CHINESE),
        ("rouge", "the cat sat on the mat"),
        ("rouge", "Müßiggänger übten Çedillen"),
        ("rouge", "42"),
        ("exact", CHINESE),
    ],
)
def test_others_are_not_warned_of(tmp_path: Path, score: str, reference: str) -> None:
    assert warnings_of(tmp_path, score, reference) == []


@pytest.mark.parametrize("reference", [CHINESE, "Кошка сидела на коврике."])
def test_rouge_knows_latin_letters_alone(tmp_path: Path, reference: str) -> None:
    (found,) = warnings_of(tmp_path, "rouge", reference)
    assert "ROUGE's words are runs of ASCII letters" in found
    assert found.endswith("use score: chrf, which compares characters")


def test_each_of_several_scorers_is_looked_at(tmp_path: Path) -> None:
    score = "{several: {scorers: {a: {score: bleu}, b: {score: rouge}, c: {score: chrf}}}}"
    assert len(warnings_of(tmp_path, score, CHINESE)) == 2
