"""Trains the assistant model from scratch and writes its checkpoint: `python -m example_suites._make.train_assistant`.

It is trained as the demo model is (`train_demo.py`), on chats with function calls, facts to remember and programs.
"""

from __future__ import annotations

from . import assistant
from .train_demo import DEMO_MODEL, Material, Recipe, make

ASSISTANT = Material(
    corpus=assistant.AssistantCorpus,
    check=assistant.check,
    chat_template=assistant.CHAT_TEMPLATE,
    folder=DEMO_MODEL.with_name("demo_assistant"),
    marks=assistant.SPECIAL_TOKENS,
)

if __name__ == "__main__":
    make(ASSISTANT, Recipe(vocab_size=1024), __doc__)
