"""Who sees what: every question belongs to the test set or to training, by a hash of its key and nothing else.

A question's key is its own sentence, or something wider where sentences differ only in a name: the two numbers of a
sum, the passage of a reading question. What `is_test` claims is never written into the training text, in any format,
and what it does not claim is never written into a suite.
"""

from __future__ import annotations

import hashlib

TEST_PERCENT = 20
UNTAUGHT_PERCENT = 15


def percentile(key: str) -> int:
    """A number from 0 to 99 that depends on the key alone, the same on every machine."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100


def is_test(key: str) -> bool:
    """Whether the question with this key is kept for the suites."""
    return percentile("question:" + key) < TEST_PERCENT


def is_untaught(fact: str) -> bool:
    """Whether a fact is never stated in training at all, so that the model can only guess at it."""
    return percentile("fact:" + fact) < UNTAUGHT_PERCENT
