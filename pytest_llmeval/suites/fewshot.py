"""Few-shot examples: which sample is shown which. Samples in, examples out; texts are made of them in ``prompts``."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pytest_llmeval.suites.prompt_spec import FewshotSpec, PromptSpec
from pytest_llmeval.suites.wording import Keys, expected_one_of, quoted
from pytest_llmeval.types import Sample

__all__ = ["FewshotError", "Shots", "contradiction", "draw_shots"]

_LM_EVAL_SEED = 1234
"""lm-eval 0.4.13's ``--seed`` for few-shot examples (``DEFAULT_OTHER_SEED``)."""
_COUNT: Keys = ("prompt", "fewshot", "count")
_MATCH: Keys = ("prompt", "fewshot", "match")


class FewshotError(ValueError):
    """Examples that cannot be drawn, the keys of the suite that ask for them, and the sample whose they are."""

    def __init__(self, message: str, keys: Keys = _COUNT, sample: Sample | None = None) -> None:
        super().__init__(message)
        self.keys = keys
        self.sample = sample


@dataclass(frozen=True, slots=True)
class Shots:
    """The few-shot examples of a suite.

    ``pools`` are all examples, in the order in which they are drawn, by the value of ``match`` (by the empty text where
    nothing has to match). ``drawn`` are the examples of each sample, by its id, where each has a draw of its own.
    """

    count: int = 0
    match: str | None = None
    pools: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    drawn: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    def of(self, sample: Sample) -> tuple[Sample, ...]:
        """The examples of this sample's prompt, never its own row. Raises ``FewshotError`` where there are too few."""
        if self.count == 0:
            return ()
        if self.drawn:
            return self.drawn[sample.id]
        pool = self.pools.get(_matched(sample, self.match), ())
        shots = tuple(islice((shot for shot in pool if not _same_row(shot, sample)), self.count))
        if len(shots) < self.count:
            raise _too_few_beside(len(shots), self.count, sample)
        return shots


def draw_shots(
    fewshot: FewshotSpec, pool: Sequence[Sample], samples: Sequence[Sample], *, is_own: bool, holder: str
) -> Shots:
    """Decide which of the examples in ``pool`` each of ``samples`` is shown.

    ``samples`` are all of the suite in the order of the data set, before any shuffle or limit, so that neither changes
    a sample's examples. ``is_own``: ``pool`` is made of the same rows. ``holder`` begins an error: what holds the
    examples. With ``match`` each value has a pool and a stream of random numbers of its own: its samples are shown what
    they would be shown in a suite of their own. Raises ``FewshotError``.
    """
    count = fewshot.count
    if count == 0:
        return Shots()
    is_lm_eval = fewshot.sampler == "lm_eval"
    has_spare = is_lm_eval and (is_own if fewshot.spare is None else fewshot.spare)
    groups = _groups(pool, fewshot.match)
    asking = _groups(samples, fewshot.match)
    for value in asking:
        found, needed = len(groups.get(value, ())), count + (is_own or has_spare)
        if found < needed:
            which = "" if fewshot.match is None else f" whose {fewshot.match} is {quoted(value)}"
            raise FewshotError(f"{holder} {found} examples{which}, expected at least {needed}")
    seed = fewshot.seed if fewshot.seed is not None else _LM_EVAL_SEED if is_lm_eval else 0
    pools = {value: tuple(group) for value, group in groups.items()}
    drawn: dict[str, tuple[Sample, ...]] = {}
    if is_lm_eval:
        for value, group in asking.items():
            drawn.update(_lm_eval_draws(group, pools[value], count, seed, has_spare))
    elif fewshot.sampler == "seeded":
        pools = {value: tuple(random.Random(seed).sample(group, len(group))) for value, group in pools.items()}
    return Shots(count, fewshot.match, pools, drawn)


def contradiction(prompt: PromptSpec) -> tuple[str, Keys] | None:
    """What in a suite's ``prompt`` cannot be done together, and the keys at which it stands; None if all can."""
    fewshot = prompt.fewshot
    if fewshot is None:
        return None
    if fewshot.multi_turn and not prompt.chat:
        return "found true, but only a chat has turns; set prompt.chat: true", ("prompt", "fewshot", "multi_turn")
    if fewshot.spare is not None and fewshot.sampler != "lm_eval":
        return "has a meaning for sampler: lm_eval alone; remove it", ("prompt", "fewshot", "spare")
    return None


def _lm_eval_draws(
    samples: Sequence[Sample], pool: Sequence[Sample], count: int, seed: int, has_spare: bool
) -> dict[str, tuple[Sample, ...]]:
    """``ContextSampler.sample`` of lm-eval 0.4.13 (``lm_eval/api/samplers.py``) for one document after the other.

    Without the spare example lm-eval may show a sample to itself; another example takes its place here, drawn from a
    stream of its own so that the other samples' examples stay lm-eval's.
    """
    stream = random.Random(seed)
    places = range(len(pool))
    drawn: dict[str, tuple[Sample, ...]] = {}
    for sample in samples:
        chosen = stream.sample(places, count + has_spare)
        shots = [pool[place] for place in chosen if not _same_row(pool[place], sample)]
        if len(shots) < count:
            others = [place for place in places if not _same_row(pool[place], sample)]
            if len(others) < count:
                raise _too_few_beside(len(others), count, sample)
            if has_spare:
                shots = [pool[place] for place in stream.sample(others, count)]
            else:
                left = random.Random(f"{seed} {sample.id}").sample(sorted({*others} - {*chosen}), count - len(shots))
                spares = iter(left)
                shots = [pool[next(spares) if _same_row(pool[place], sample) else place] for place in chosen]
        drawn[sample.id] = tuple(shots[:count])
    return drawn


def _groups(samples: Sequence[Sample], match: str | None) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(_matched(sample, match), []).append(sample)
    return groups


def _matched(sample: Sample, match: str | None) -> str:
    """The value that examples have to share, as text: a CSV file's ``1`` is a JSON file's."""
    if match is None:
        return ""
    value = sample.variables.get(match)
    if value is None:
        known = sorted(name for name in sample.variables if name != "row")
        raise FewshotError(f"there is no value {quoted(match)}{expected_one_of(match, known)}", _MATCH, sample)
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)


def _same_row(shot: Sample, sample: Sample) -> bool:
    return bool(shot.variables["row"] == sample.variables["row"])


def _too_few_beside(found: int, count: int, sample: Sample) -> FewshotError:
    return FewshotError(f"found {found} examples beside the sample itself, expected {count}", sample=sample)
