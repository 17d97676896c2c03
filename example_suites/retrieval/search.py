"""A search in ``corpus.jsonl`` by BM25, with an answer that is a sentence of what it found.

It needs the library bm25s (pip install bm25s). ``pytest example_suites/retrieval --llm-model
python:example_suites/retrieval/search.py:bm25`` measures it; a second ``--llm-model`` with ``?stem=false`` at its end
compares it with a search that knows no plurals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import bm25s

__all__ = ["bm25"]


def bm25(question: str, *, k: int = 10, contexts: int = 3, stem: bool = True) -> dict[str, Any]:
    """The ids of the ``k`` best documents with their scores, and an answer from the texts of the first ``contexts``."""
    places, scores = _index(stem).retrieve(_tokens([question], stem), k=k, show_progress=False)
    found = [(_corpus()[place], float(score)) for place, score in zip(places[0], scores[0], strict=True) if score > 0]
    texts = [row["text"] for row, _ in found[:contexts]]
    return {
        "text": _nearest_sentence(question, texts),
        "contexts": texts,
        "documents": [(row["id"], score) for row, score in found],
    }


@cache
def _corpus() -> list[dict[str, str]]:
    lines = Path(__file__).with_name("corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@cache
def _index(stem: bool) -> bm25s.BM25:
    index = bm25s.BM25()
    index.index(_tokens([f"{row['title']}. {row['text']}" for row in _corpus()], stem), show_progress=False)
    return index


def _tokens(texts: Sequence[str], stem: bool) -> Any:
    return bm25s.tokenize(list(texts), stopwords="en", stemmer=_stems if stem else None, show_progress=False)


def _stems(words: Sequence[str]) -> list[str]:
    """Words without the endings of plurals: "dogs" finds "dog"."""
    return [re.sub(r"(?<=\w\w)(?<!s)s$", "", word) for word in words]


def _nearest_sentence(question: str, texts: Sequence[str]) -> str:
    """The sentence that shares most words with the question: no model has to write one."""
    wanted = _words(question)
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=\.)\s", text)]
    return max(sentences, key=lambda sentence: len(wanted & _words(sentence)), default="I do not know.")


def _words(text: str) -> set[str]:
    return set(_stems(re.findall(r"\w+", text.lower())))
