"""Small suites that the plugin tests share."""

from __future__ import annotations

CAPITALS = """\
suite: capitals
samples:
  - {id: q1, question: "Capital of France?", choices: [Paris, Rome, Oslo, Bern], target: 0, part: west}
  - {id: q2, question: "Capital of Italy?", choices: [Paris, Rome, Oslo, Bern], target: Rome, part: south}
  - {id: q3, question: "Capital of Norway?", choices: [Paris, Rome, Oslo, Bern], target: 2, part: north}
prompt: {template: "Question: {{ question }}\\nAnswer:"}
score: choice
category: part
"""

CAPITALS_LIKELY = {"France": "Paris", "Italy": "Rome", "Norway": "Bern"}
"""q1 and q2 right, q3 wrong."""

SUMS = """\
suite: sums
samples:
  - {id: s1, question: "1 + 1 =", target: 2}
  - {id: s2, question: "2 + 3 =", target: 5}
  - {id: s3, question: "4 + 4 =", target: 8}
  - {id: s4, question: "5 + 4 =", target: 9}
score: number
"""

SUMS_REPLIES = {"1 + 1": "The answer is 2.", "2 + 3": "4", "4 + 4": "no idea", "5 + 4": "9"}
"""s1 and s4 right, s2 wrong, s3 without an answer."""
