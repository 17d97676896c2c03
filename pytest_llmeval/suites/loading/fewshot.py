"""Draws few-shot examples: which sample is shown which. ``prompts`` makes texts of them."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pytest_llmeval.suites.format.prompt_spec import FewshotSpec, PromptSpec
from pytest_llmeval.text.wording import Keys, expected_one_of, quoted
from pytest_llmeval.types import Sample

__all__ = ["FewshotError", "Shots", "contradiction", "draw_shots"]

_LM_EVAL_SEED = 1234
"""lm-eval 0.4.13's ``--seed`` for few-shot examples (``DEFAULT_OTHER_SEED``)."""
_COUNT: Keys = ("prompt", "fewshot", "count")
_MATCH: Keys = ("prompt", "fewshot", "match")


class FewshotError(ValueError):
    """Examples that cannot be drawn, the keys of the suite that ask for them, and the sample that needs them.

    ``is_example``: what is wrong is an example, which ``sample`` is then.
    """

    def __init__(
        self, message: str, keys: Keys = _COUNT, sample: Sample | None = None, *, is_example: bool = False
    ) -> None:
        super().__init__(message)
        self.keys = keys
        self.sample = sample
        self.is_example = is_example


@dataclass(frozen=True, slots=True)
class Shots:
    """The few-shot examples of a suite.

    ``pools`` are all examples, in the order in which they are drawn, by the value of ``match`` (by the empty text where
    nothing has to match). ``drawn`` are the examples of each sample, by its id, where each has a draw of its own.
    ``shown`` are names of variables that a prompt shows, beside question and choices.
    """

    count: int = 0
    match: str | None = None
    pools: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    drawn: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    def of(self, sample: Sample) -> tuple[Sample, ...]:
        """Return the examples of this sample's prompt, never the sample itself.

        That is an example with its row, or, but for lm-eval's sampler, one that asks the same and has its target.
        Raises ``FewshotError`` where there are too few.
        """
        if self.count == 0:
            return ()
        if self.drawn:
            return self.drawn[sample.id]
        pool = self.pools.get(_matched(sample, self.match) or "", ())
        shots = tuple(islice((shot for shot in pool if not self._is_itself(shot, sample)), self.count))
        if len(shots) < self.count:
            raise _too_few_beside(len(shots), self.count, sample)
        return shots

    def _is_itself(self, shot: Sample, sample: Sample) -> bool:
        """Tell whether an example is the sample; rows alone do not tell: one file may have ids, and the other none."""
        if _same_row(shot, sample):
            return True
        if not shot.question or (shot.question, shot.choices) != (sample.question, sample.choices):
            return False
        ours, others = sample.variables, shot.variables
        shows_the_same = all(ours[name] == others[name] for name in self.shown if name in ours and name in others)
        return shows_the_same and shot.target == sample.target


def draw_shots(
    fewshot: FewshotSpec,
    pool: Sequence[Sample],
    samples: Sequence[Sample],
    *,
    is_own: bool,
    holder: str,
    left: Collection[Sample] | None = None,
    shown: Sequence[str] = (),
) -> Shots:
    """Decide which of the examples in ``pool`` each of ``samples`` is shown.

    ``samples`` are all of the suite in the order of the data set, before any shuffle or limit, so that neither changes
    a sample's examples; ``left`` are those that are left after both, all by default: only they need examples.
    ``is_own``: ``pool`` is made of the same rows. ``holder`` begins an error: what holds the examples. ``shown`` are
    names of variables that a prompt shows: samples that differ in one are two, whatever they ask. With ``match`` each
    value has a pool and a stream of random numbers of its own: its samples are shown what they would be shown in a
    suite of their own. Raises ``FewshotError``.
    """
    count = fewshot.count
    if count == 0:
        return Shots()
    is_lm_eval = fewshot.sampler == "lm_eval"
    has_spare = is_lm_eval and (is_own if fewshot.spare is None else fewshot.spare)
    left_ids = {sample.id for sample in (samples if left is None else left)}
    asking: dict[str, list[Sample]] = {}
    needing: dict[str, None] = {}
    for sample in samples:
        value = _matched(sample, fewshot.match)
        if value is None and sample.id in left_ids:
            raise _no_value(sample, fewshot.match or "")
        if value is not None:
            asking.setdefault(value, []).append(sample)
            if sample.id in left_ids:
                needing[value] = None
    groups: dict[str, list[Sample]] = {}
    for shot in pool:
        value = _matched(shot, fewshot.match)
        if value is None and not is_own:
            raise _no_value(shot, fewshot.match or "", is_example=True)
        if value is not None:
            groups.setdefault(value, []).append(shot)
    for value in needing:
        found, needed = len(groups.get(value, ())), count + (is_own or has_spare)
        if found < needed:
            which = "" if fewshot.match is None else f" whose {fewshot.match} is {quoted(value)}"
            raise FewshotError(f"{holder} {found} examples{which}, expected at least {needed}")
    seed = fewshot.seed if fewshot.seed is not None else _LM_EVAL_SEED if is_lm_eval else 0
    pools = {value: tuple(group) for value, group in groups.items()}
    drawn: dict[str, tuple[Sample, ...]] = {}
    if is_lm_eval:
        for value in needing:
            drawn.update(_lm_eval_draws(asking[value], pools[value], count, seed, has_spare, left_ids))
    elif fewshot.sampler == "seeded":
        pools = {value: tuple(random.Random(seed).sample(group, len(group))) for value, group in pools.items()}
    return Shots(count, fewshot.match, pools, drawn, tuple(shown))


def contradiction(prompt: PromptSpec) -> tuple[str, Keys] | None:
    """Return what in a suite's ``prompt`` cannot be done together, and the keys at which it stands; None if all can."""
    fewshot = prompt.fewshot
    if fewshot is None:
        return None
    if fewshot.multi_turn and not prompt.is_chat:
        return "found true, but only a chat has turns; set prompt.chat: true", ("prompt", "fewshot", "multi_turn")
    if fewshot.spare is not None and fewshot.sampler != "lm_eval":
        return "is only for sampler: lm_eval; remove it", ("prompt", "fewshot", "spare")
    return None


def _lm_eval_draws(
    samples: Sequence[Sample],
    pool: Sequence[Sample],
    count: int,
    seed: int,
    has_spare: bool,
    left_ids: Collection[str],
) -> dict[str, tuple[Sample, ...]]:
    """Draw as ``ContextSampler.sample`` of lm-eval 0.4.13 (``lm_eval/api/samplers.py``), one document after the other.

    Every sample draws, and those that are left, by their ids, get what they drew.

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
                if sample.id not in left_ids:
                    continue
                raise _too_few_beside(len(others), count, sample)
            if has_spare:
                shots = [pool[place] for place in stream.sample(others, count)]
            else:
                left = random.Random(f"{seed} {sample.id}").sample(sorted({*others} - {*chosen}), count - len(shots))
                spares = iter(left)
                shots = [pool[next(spares) if _same_row(pool[place], sample) else place] for place in chosen]
        if sample.id in left_ids:
            drawn[sample.id] = tuple(shots[:count])
    return drawn


def _no_value(sample: Sample, match: str, *, is_example: bool = False) -> FewshotError:
    known = sorted(name for name, value in sample.variables.items() if name != "row" and value is not None)
    message = f"there is no value {quoted(match)}{expected_one_of(match, known)}"
    return FewshotError(message, _MATCH, sample, is_example=is_example)


def _matched(sample: Sample, match: str | None) -> str | None:
    """Return the value that examples have to share, as text: a CSV file's ``1`` is a JSON file's. None if there is
    none.
    """
    if match is None:
        return ""
    value = sample.variables.get(match)
    if value is None:
        return None
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)


def _same_row(shot: Sample, sample: Sample) -> bool:
    return bool(shot.variables["row"] == sample.variables["row"])


def _too_few_beside(found: int, count: int, sample: Sample) -> FewshotError:
    return FewshotError(f"found {found} examples beside the sample itself, expected {count}", sample=sample)
