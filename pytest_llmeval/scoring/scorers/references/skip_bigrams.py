"""ROUGE-S: pairs of words in their order, with other words between them (C.-Y. Lin, 2004, section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["num_pairs", "rouge_s"]


def rouge_s(words: Sequence[str], reference: Sequence[str], max_gap: int | None) -> float:
    """F1 of the skip-bigrams of two texts: pairs of words with at most ``max_gap`` words between (None: any number).

    ``2PR / (P + R)`` with P and R the share of matching pairs among those of the text and of the reference, each pair
    counted as often as it stands in both; 0 where none matches. Equal to ROUGE-1.5.5 with beta 1, without ``-u``.
    """
    matches = (_pairs(words, set(reference), max_gap) & _pairs(reference, set(words), max_gap)).total()
    if not matches:
        return 0.0
    precision, recall = matches / num_pairs(len(words), max_gap), matches / num_pairs(len(reference), max_gap)
    return 2 * precision * recall / (precision + recall)


def num_pairs(length: int, max_gap: int | None) -> int:
    """How many pairs a text of so many words has."""
    furthest = length - 1 if max_gap is None else min(max_gap + 1, length - 1)
    return sum(length - distance for distance in range(1, furthest + 1))


def _pairs(words: Sequence[str], known: set[str], max_gap: int | None) -> Counter[tuple[str, str]]:
    """The pairs of known words, which alone can match."""
    places = [(place, word) for place, word in enumerate(words) if word in known]
    found: Counter[tuple[str, str]] = Counter()
    for number, (place, word) in enumerate(places):
        for other_place, other in places[number + 1 :]:
            if max_gap is not None and other_place - place > max_gap + 1:
                break
            found[word, other] += 1
    return found
