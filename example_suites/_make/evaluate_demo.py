"""Scores a checkpoint on every suite with transformers alone: `python -m example_suites._make.evaluate_demo`.

Written without the plugin, so that the two can be compared.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from .corpus import LETTER_REQUEST, LETTERS
from .train_demo import DEMO_MODEL
from .write_suites import ROOT

Result = tuple[str, bool, float, str]  # suite, correct, chance, category
BATCH = 48


class Scorer:
    """A checkpoint on the CPU that scores continuations and writes replies, a padded batch at a time."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)  # in evaluation mode
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def logprobs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        """For (context, continuation): the continuation's loglikelihood and its number of tokens."""
        found = []
        for start in range(0, len(pairs), BATCH):
            chunk = pairs[start : start + BATCH]
            cuts = [len(self.tokenizer(context).input_ids) for context, _ in chunk]
            whole = [self.tokenizer(context + rest).input_ids for context, rest in chunk]
            width = max(map(len, whole))
            ids = torch.tensor([row + [self.tokenizer.pad_token_id] * (width - len(row)) for row in whole])
            logprobs = self.model(input_ids=ids).logits.log_softmax(-1)
            for place, (row, cut) in enumerate(zip(whole, cuts, strict=True)):
                own = [logprobs[place, at - 1, row[at]].item() for at in range(cut, len(row))]
                found.append((sum(own), len(own)))
        return found

    @torch.inference_mode()
    def replies(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Greedy replies, without special tokens."""
        found = []
        self.tokenizer.padding_side = "left"
        for start in range(0, len(prompts), BATCH):
            inputs = self.tokenizer(prompts[start : start + BATCH], return_tensors="pt", padding=True)
            inputs.pop("token_type_ids", None)
            out = self.model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
            new = out[:, inputs["input_ids"].shape[1] :]
            found += self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return found


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]


def _pick(scorer: Scorer, prompts: Sequence[str], choices: Sequence[Sequence[str]]) -> list[int]:
    """The option with the highest logprob per token, for each prompt."""
    pairs = [(prompt, " " + text) for prompt, options in zip(prompts, choices, strict=True) for text in options]
    scores = iter(scorer.logprobs(pairs))
    picked = []
    for options in choices:
        means = [total / max(1, count) for total, count in (next(scores) for _ in options)]
        picked.append(means.index(max(means)))
    return picked


def _choice(
    scorer: Scorer,
    suite: str,
    prompts: list[str],
    choices: list[list[str]],
    targets: list[list[int]],
    categories: list[str],
) -> list[Result]:
    picked = _pick(scorer, prompts, choices)
    return [
        (suite, pick in target, len(target) / len(options), category)
        for pick, options, target, category in zip(picked, choices, targets, categories, strict=True)
    ]


def _letter(
    scorer: Scorer, suite: str, heads: list[str], options: list[list[str]], right: list[list[str]], names: list[str]
) -> list[Result]:
    prompts = []
    shuffled = []
    for head, texts in zip(heads, options, strict=True):
        order = random.Random(head).sample(texts, len(texts))
        shuffled.append(order)
        listed = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, order, strict=False))
        prompts.append(f"{head}\n\n{listed}\n\n{LETTER_REQUEST}")
    results = []
    for reply, order, texts, name in zip(scorer.replies(prompts, 10), shuffled, right, names, strict=True):
        found = re.search(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", reply)
        place = LETTERS.find(found.group()) if found else -1
        correct = 0 <= place < len(order) and order[place] in texts
        results.append((suite, correct, len(texts) / len(order), name))
    return results


def chronologic(scorer: Scorer) -> list[Result]:
    """Both suites on dates and order of events."""
    rows = _rows("chronologic/events.jsonl")
    heads = [
        (row["metadata_frame"] + "\n" if row["metadata_frame"] else "") + "QUESTION: " + row["main_question"]
        for row in rows
    ]
    targets = [[at for at, p in enumerate(row["answer_probabilities"]) if p == 1.0] for row in rows]
    categories = [row["question_category"] for row in rows]
    options = [
        [text for text, kind in zip(row["answer_strings"], row["answer_types"], strict=True) if kind != "negation"]
        for row in rows
    ]
    right = [[row["answer_strings"][at] for at in target] for row, target in zip(rows, targets, strict=True)]
    strings = [row["answer_strings"] for row in rows]
    prompts = [head + "\nANSWER:" for head in heads]
    return [
        *_choice(scorer, "chronologic_brier", prompts, strings, targets, categories),
        *_letter(scorer, "chronologic_mcq", heads, options, right, categories),
    ]


def boolq(scorer: Scorer) -> list[Result]:
    """Both yes/no suites."""
    rows = _rows("boolq/boolq.jsonl")
    prompts = [f"Passage: {row['passage']}\nQuestion: {row['question']}\nAnswer:" for row in rows]
    picked = _pick(scorer, prompts, [["yes", "no"]] * len(rows))
    results = [
        ("boolq_loglikelihood", (pick == 0) == row["answer"], 0.5, str(row["answer"]))
        for pick, row in zip(picked, rows, strict=True)
    ]
    for reply, row in zip(scorer.replies(prompts, 5), rows, strict=True):
        start = reply.strip()[:3].lower()
        said = True if start == "yes" else False if start.startswith("no") else None
        results.append(("boolq", said is row["answer"], 0.5, str(row["answer"])))
    return results


def _last_number(text: str) -> float | None:
    found = re.findall(r"-?\d+(?:\.\d+)?", text.rsplit("####", 1)[-1])
    return float(found[-1]) if found else None


def _numbers(
    scorer: Scorer, suite: str, questions: list[str], answers: list[str], names: list[str], room: int
) -> list[Result]:
    replies = scorer.replies([f"Question: {question}\nAnswer:" for question in questions], room)
    return [
        (suite, _last_number(re.split(r"\n\n|Question:", reply)[0]) == _last_number(answer), 0.0, name)
        for reply, answer, name in zip(replies, answers, names, strict=True)
    ]


def gsm8k(scorer: Scorer) -> list[Result]:
    """Word problems."""
    rows = _rows("gsm8k/gsm8k.jsonl")
    names = [f"{row['answer'].count(chr(10))} steps" for row in rows]
    return _numbers(scorer, "gsm8k", [row["question"] for row in rows], [row["answer"] for row in rows], names, 64)


def csqa(scorer: Scorer) -> list[Result]:
    """Both suites on everyday knowledge."""
    rows = _rows("csqa/csqa.jsonl")
    stems = [row["question"]["stem"] for row in rows]
    options = [[choice["text"] for choice in row["question"]["choices"]] for row in rows]
    targets = [["ABCDE".index(row["answerKey"])] for row in rows]
    right = [[texts[target[0]]] for texts, target in zip(options, targets, strict=True)]
    categories = [row["id"].split("-")[1] for row in rows]
    prompts = [f"Question: {stem}\nAnswer:" for stem in stems]
    return [
        *_choice(scorer, "csqa_choice", prompts, options, targets, categories),
        *_letter(scorer, "csqa_letter", stems, options, right, categories),
    ]


def mmlu(scorer: Scorer) -> list[Result]:
    """Four subjects, three examples before each question."""

    def block(row: dict[str, Any]) -> str:
        listed = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", row["choices"], strict=True))
        return f"Question: {row['question']}\n{listed}\nAnswer:"

    rows, dev = _rows("mmlu/mmlu.jsonl"), _rows("mmlu/dev.jsonl")
    prompts = []
    for row in rows:
        shots = random.Random(row["question"]).sample(dev, 3)
        prompts.append("\n\n".join([*(f"{block(shot)} {'ABCD'[shot['answer']]}" for shot in shots), block(row)]))
    targets = [[row["answer"]] for row in rows]
    categories = [row["subject"] for row in rows]
    return _choice(scorer, "mmlu", prompts, [list("ABCD")] * len(rows), targets, categories)


def every_key(scorer: Scorer) -> list[Result]:
    """The two suites that show the format."""
    suite = yaml.safe_load((ROOT / "every_key" / "every_key.yaml").read_text(encoding="utf-8"))
    prompt = suite["prompt"]
    shots = "\n\n".join(
        f"Question: {shot['question']}\nAnswer: {shot['target']}" for shot in prompt["fewshot"]["samples"]
    )
    samples = suite["samples"]
    prompts = [f"{prompt['system']}\n\n{shots}\n\nQuestion: {sample['question']}\nAnswer:" for sample in samples]
    results = _choice(
        scorer,
        "every_key",
        prompts,
        [sample["choices"] for sample in samples],
        [[sample["target"]] for sample in samples],
        [sample["topic"] for sample in samples],
    )
    rows = json.loads((ROOT / "every_key" / "sums.json").read_text(encoding="utf-8"))["questions"]
    easy = [row for row in rows if row["meta"]["level"] == "easy"]
    asks, answers = [row["ask"] for row in easy], [row["result"] for row in easy]
    return results + _numbers(scorer, "every_key_dataset", asks, answers, ["sum"] * len(asks), 8)


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a proportion."""
    z = 1.959963984540054
    share = correct / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return middle - half, middle + half


def main() -> None:
    """Prints a line for every suite, and with -v for every category."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO_MODEL)
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scorer = Scorer(arguments.model)
    results = [result for part in (chronologic, boolq, gsm8k, csqa, mmlu, every_key) for result in part(scorer)]
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result[0], []).append(result)
        if arguments.verbose:
            groups.setdefault(f"{result[0]} / {result[3]}", []).append(result)
    for name in sorted(groups):
        group = groups[name]
        correct = sum(result[1] for result in group)
        low, high = wilson(correct, len(group))
        chance = sum(result[2] for result in group) / len(group)
        accuracy = correct / len(group)
        sys.stdout.write(
            f"{name:45} n {len(group):3} accuracy {accuracy:.3f} [{low:.3f}, {high:.3f}] chance {chance:.3f}\n"
        )


if __name__ == "__main__":
    main()
