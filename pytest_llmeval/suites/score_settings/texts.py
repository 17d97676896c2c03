"""Settings of the scorers that compare a reply with reference texts."""

from __future__ import annotations

from typing import Literal

from pytest_llmeval.suites.spec import Spec

__all__ = ["BleuSettings", "ChrfSettings", "F1Settings", "MeteorSettings", "RougeSettings", "TerSettings"]


class F1Settings(Spec):
    """Token F1 and exact match against the references, as the SQuAD 1.1 script computes them."""

    kind: Literal["f1"] = "f1"


class BleuSettings(Spec):
    """BLEU against the references, by sacrebleu."""

    kind: Literal["bleu"] = "bleu"


class RougeSettings(Spec):
    """ROUGE against the references."""

    kind: Literal["rouge"] = "rouge"


class ChrfSettings(Spec):
    """chrF against the references, by sacrebleu."""

    kind: Literal["chrf"] = "chrf"


class TerSettings(Spec):
    """Translation edit rate against the references, by sacrebleu."""

    kind: Literal["ter"] = "ter"


class MeteorSettings(Spec):
    """METEOR against the references."""

    kind: Literal["meteor"] = "meteor"
