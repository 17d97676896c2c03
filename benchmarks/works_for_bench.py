"""The works that the benchmarks time: lists of prompts, rendered once, so that both sides read the same text.

The data is published benchmark data (``../shared/data``, which is not part of the project). Everything drawn is drawn
with one seed.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.support import REPOSITORY

__all__ = [
    *("CHOICE_WORKS", "DATA", "MAX_NEW_TOKENS", "STOP", "WORKS", "CountTokens", "Prompt", "Sizes", "Work"),
    *("data_problem", "make_work"),
]

DATA = REPOSITORY.parent / "shared" / "data"
MAX_NEW_TOKENS = 64
MAX_NEW_TOKENS_WITH_ENDS = 256
"""lm-eval's default; 3 of 1000 solutions of GSM8K are longer."""
STOP = "Question:"
NUM_SHOTS = 5
SEED = 1234
TOKENS_FOR_A_QUESTION = 160
"""Left free after the examples; a question that needs more than is free is not asked."""

CountTokens: TypeAlias = Callable[[str], int]
Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question as both sides get it. ``choices`` are empty and ``target`` is a text where nothing is chosen.

    ``ends_after``: the tokens after which the reply ends, where the model does not say so (``ended_texts.py``).
    """

    id: str
    context: str
    choices: tuple[str, ...] = ()
    target: int | str = ""
    ends_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Prompts, and what is done with them. A ``rolling`` work scores each ``context`` as a whole text."""

    name: str
    kind: Literal["choice", "generation", "rolling"]
    prompts: tuple[Prompt, ...]
    max_new_tokens: int = MAX_NEW_TOKENS

    def first(self, num_prompts: int) -> Work:
        """The same work with fewer prompts."""
        return replace(self, prompts=self.prompts[:num_prompts])

    def write(self, path: Path) -> None:
        """One prompt a line, as JSON."""
        lines = [dataclasses.asdict(prompt) for prompt in self.prompts]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")

    @property
    def has_ends(self) -> bool:
        """Whether its texts end where the prompts say so."""
        return any(prompt.ends_after is not None for prompt in self.prompts)

    @property
    def num_requests(self) -> int:
        """What the model is asked: one log-likelihood for each choice, else one request for each prompt."""
        return sum(len(prompt.choices) or 1 for prompt in self.prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much work. ``num_questions`` None is each work's own number; ``max_length`` is the model's, in tokens."""

    max_length: int
    num_questions: int | None = None
    num_subjects: int = 8
    num_text_tokens: int = 20_000


def data_problem() -> str | None:
    """Why no work can be made here, or None."""
    missing = [name for name in ("mmlu_stem", "commonsense_qa", "gsm8k") if not (DATA / name).is_dir()]
    if missing:
        return (
            f"there is no {', '.join(missing)} in {DATA}: put the published data there (JSONL files, one folder each)"
        )
    return None


def make_work(name: str, sizes: Sizes, count_tokens: CountTokens) -> Work:
    """The work called ``name`` (of ``WORKS``), whose prompts fit into ``sizes.max_length`` tokens."""
    return WORKS[name](sizes, _Fit(sizes.max_length, count_tokens))


@dataclass(frozen=True, slots=True)
class _Fit:
    max_length: int
    count_tokens: CountTokens

    def header(self, examples: Sequence[str], reserved: int) -> bool:
        return self.count_tokens("".join(examples)) <= self.max_length - reserved - TOKENS_FOR_A_QUESTION

    def prompt(self, prompt: Prompt, reserved: int = 0) -> bool:
        longest = max(map(self.count_tokens, prompt.choices), default=0)
        return self.count_tokens(prompt.context) + longest + reserved < self.max_length


def _read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / path).read_text(encoding="utf-8").splitlines() if line.strip()]


def _shuffled(rows: Sequence[Row]) -> list[Row]:
    return random.Random(SEED).sample(rows, len(rows))


def _header(pool: Sequence[Row], render: Callable[[Row], str], fit: _Fit, seed: str, *, reserved: int = 0) -> str:
    """``NUM_SHOTS`` examples of ``pool``, drawn again until they leave room for a question."""
    for attempt in count():
        shots = random.Random(f"{SEED} {seed} {attempt}").sample(pool, NUM_SHOTS)
        examples = [render(row) for row in shots]
        if fit.header(examples, reserved):
            return "".join(examples)
        if attempt == 1000:
            raise SystemExit(f"no {NUM_SHOTS} examples fit into {fit.max_length} tokens beside a question")
    raise AssertionError("unreachable")


# MMLU with lettered options, in lm-eval's words


def _mmlu() -> list[dict[str, Any]]:
    rows = _read("mmlu_stem/test.jsonl")
    return [row for row in rows if all(choice.strip() for choice in row["choices"])]


def _lettered(row: Row) -> str:
    options = "".join(f"{letter}. {text}\n" for letter, text in zip("ABCD", row["choices"], strict=True))
    return f"{row['question'].strip()}\n{options}Answer:"


def _lettered_example(row: Row) -> str:
    return f"{_lettered(row)} {'ABCD'[row['answer']]}\n\n"


def _introduction(subject: str) -> str:
    return f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}.\n\n"


def _ask(name: str, rows: Sequence[Row], header: Callable[[Row], str], sizes: Sizes, fit: _Fit) -> Work:
    """The first rows whose prompts fit, with a letter for each option."""
    prompts: list[Prompt] = []
    for row in rows:
        prompt = Prompt(
            id=f"q{len(prompts)}", context=header(row) + _lettered(row), choices=tuple("ABCD"), target=row["answer"]
        )
        if fit.prompt(prompt):
            prompts.append(prompt)
        if len(prompts) == (sizes.num_questions or 200):
            break
    return Work(name=name, kind="choice", prompts=tuple(prompts))


def _one_header(sizes: Sizes, fit: _Fit) -> Work:
    """Lettered choice, five examples that all questions share."""
    pool, *questions = _halves(_shuffled(_mmlu()))
    shared = _introduction("science and mathematics") + _header(pool, _lettered_example, fit, "one")
    return _ask("letters_one_header", questions[0], lambda row: shared, sizes, fit)


def _several_headers(sizes: Sizes, fit: _Fit) -> Work:
    """Lettered choice over several subjects in random order, each with five examples of its own."""
    pool, questions = _halves(_shuffled(_mmlu()))
    subjects = sorted({row["type"] for row in pool})
    chosen = random.Random(SEED).sample(subjects, min(sizes.num_subjects, len(subjects)))
    headers = {
        subject: _introduction(subject)
        + _header([row for row in pool if row["type"] == subject], _lettered_example, fit, subject)
        for subject in chosen
    }
    asked = [row for row in questions if row["type"] in headers]
    return _ask("letters_several_headers", asked, lambda row: headers[row["type"]], sizes, fit)


def _other_shots(sizes: Sizes, fit: _Fit) -> Work:
    """Lettered choice with other examples for each question, as lm-eval's default sampler draws them."""
    pool, questions = _halves(_shuffled(_mmlu()))
    introduction = _introduction("science and mathematics")
    return _ask(
        "letters_other_shots",
        questions,
        lambda row: introduction + _header(pool, _lettered_example, fit, row["question"]),
        sizes,
        fit,
    )


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """What examples are drawn from, and what is asked."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


# Options as text


def _options_as_text(name: str, questions: Sequence[tuple[str, Sequence[str], int]], sizes: Sizes, fit: _Fit) -> Work:
    prompts: list[Prompt] = []
    for question, choices, target in questions:
        prompt = Prompt(
            id=f"q{len(prompts)}", context=f"Question: {question}\nAnswer:", choices=tuple(choices), target=target
        )
        if fit.prompt(prompt):
            prompts.append(prompt)
        if len(prompts) == (sizes.num_questions or 200):
            break
    return Work(name=name, kind="choice", prompts=tuple(prompts))


def _commonsense_qa(sizes: Sizes, fit: _Fit) -> Work:
    """CommonsenseQA, five options as text, no examples."""
    questions = []
    for row in _shuffled(_read("commonsense_qa/validation.jsonl")):
        choices = row["question"]["choices"]
        target = [choice["label"] for choice in choices].index(row["answerKey"])
        questions.append((row["question"]["stem"].strip(), [choice["text"] for choice in choices], target))
    return _options_as_text("commonsense_qa_texts", questions, sizes, fit)


def _mmlu_texts(sizes: Sizes, fit: _Fit) -> Work:
    """MMLU, four options as text, no examples."""
    questions = [(row["question"].strip(), row["choices"], row["answer"]) for row in _shuffled(_mmlu())]
    return _options_as_text("mmlu_texts", questions, sizes, fit)


# Generation and perplexity


def _gsm8k(sizes: Sizes, fit: _Fit) -> Work:
    """GSM8K, five examples that all questions share, ``MAX_NEW_TOKENS`` tokens each."""
    return Work(name="gsm8k_generation", kind="generation", prompts=_word_problems(sizes, fit, MAX_NEW_TOKENS))


def _gsm8k_ended(sizes: Sizes, fit: _Fit) -> Work:
    """GSM8K, five examples that all questions share; a reply is as long as the published solution."""
    prompts = _word_problems(sizes, fit, MAX_NEW_TOKENS_WITH_ENDS, ended=True)
    return Work(name="gsm8k_ended", kind="generation", prompts=prompts, max_new_tokens=MAX_NEW_TOKENS_WITH_ENDS)


def _word_problems(sizes: Sizes, fit: _Fit, max_new_tokens: int, *, ended: bool = False) -> tuple[Prompt, ...]:
    def example(row: Row) -> str:
        return f"Question: {row['question']}\nAnswer: {row['answer']}\n\n"

    header = _header(_read("gsm8k/train.jsonl"), example, fit, "gsm8k", reserved=max_new_tokens)
    prompts: list[Prompt] = []
    for row in _shuffled(_read("gsm8k/test.jsonl")):
        target = row["answer"].rpartition("#### ")[2]
        prompt = Prompt(
            id=f"q{len(prompts)}",
            context=f"{header}Question: {row['question']}\nAnswer:",
            target=f"#### {target}",
            ends_after=fit.count_tokens(f" {row['answer']}") if ended else None,
        )
        if fit.prompt(prompt, reserved=max_new_tokens):
            prompts.append(prompt)
        if len(prompts) == (sizes.num_questions or 32):
            break
    return tuple(prompts)


def _one_text(sizes: Sizes, fit: _Fit) -> Work:
    """Rolling perplexity of one text of about ``num_text_tokens`` tokens: word problems with their solutions."""
    parts: list[str] = []
    num_tokens = 0
    for row in _read("gsm8k/test.jsonl"):
        words = f"{row['question']}\n{row['answer']}\n\n".split(" ")
        for number, word in enumerate(words):
            part = word if number == 0 else f" {word}"
            parts.append(part)
            num_tokens += fit.count_tokens(part)
            if num_tokens >= sizes.num_text_tokens:
                return Work(name="perplexity", kind="rolling", prompts=(Prompt(id="text", context="".join(parts)),))
    raise SystemExit(f"the data holds {num_tokens} tokens of text, fewer than {sizes.num_text_tokens}")


WORKS: Mapping[str, Callable[[Sizes, _Fit], Work]] = {
    "letters_one_header": _one_header,
    "letters_several_headers": _several_headers,
    "letters_other_shots": _other_shots,
    "commonsense_qa_texts": _commonsense_qa,
    "mmlu_texts": _mmlu_texts,
    "gsm8k_generation": _gsm8k,
    "gsm8k_ended": _gsm8k_ended,
    "perplexity": _one_text,
}
"""What makes each work, by its name; called through ``make_work``."""

CHOICE_WORKS = (
    "letters_one_header",
    "letters_several_headers",
    "letters_other_shots",
    "commonsense_qa_texts",
    "mmlu_texts",
)
"""Those whose prompts have options."""
