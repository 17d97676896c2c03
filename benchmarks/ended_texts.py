"""Texts that end where the data's own solutions do: a model with random weights does not know when it is done.

Both sides are made to end a text after as many tokens as its prompt's line says (``ends_after``): they learn of it
when the last token is written, as they would of an end-of-text token, so that no planning knows a length beforehand.

    python -m benchmarks.ended_texts PROMPTS.jsonl ARGUMENTS…      # lm-eval with these arguments, ending so
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["end_lm_eval", "end_ours", "ends_of"]


def ends_of(prompts: Path) -> dict[str, int]:
    """Tokens of each text, by its prompt."""
    lines = [json.loads(line) for line in prompts.read_text(encoding="ascii").splitlines()]
    return {line["context"]: line["ends_after"] for line in lines}


def end_ours(ends: Mapping[str, int]) -> None:
    """End the texts that this plugin writes in this process."""
    from pytest_llmeval.models.huggingface import generation
    from pytest_llmeval.models.huggingface.generation_writer import Writer

    class EndedWriter(Writer):
        def __init__(self, tokenizer: Any, prompt: Sequence[int], *arguments: Any) -> None:
            super().__init__(tokenizer, prompt, *arguments)
            self._ends_after = ends[tokenizer.decode(list(prompt))]

        def add(self, token: int) -> None:
            super().add(token)
            self.is_done |= len(self.tokens) >= self._ends_after

    setattr(generation, "Writer", EndedWriter)  # noqa: B010


def end_lm_eval(ends: Mapping[str, int]) -> None:
    """End the texts that lm-eval's ``hf`` writes in this process; a batch goes on until its last text has ended."""
    import torch
    import transformers
    from lm_eval.models import huggingface

    class Ended(transformers.StoppingCriteria):
        def __init__(self, num_read: int, ends_after: torch.Tensor) -> None:
            self._ends = ends_after + num_read

        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            return self._ends <= input_ids.shape[1]

    made = huggingface.stop_sequences_criteria

    def with_ends(tokenizer: Any, stop: Any, num_read: int, num_rows: int) -> Any:
        return transformers.StoppingCriteriaList([*made(tokenizer, stop, num_read, num_rows), *waiting])

    waiting: list[transformers.StoppingCriteria] = []
    generate: Any = huggingface.HFLM._model_generate

    def generate_ended(self: Any, context: torch.Tensor, *arguments: Any, **settings: Any) -> Any:
        prompts = self.tokenizer.batch_decode(context, skip_special_tokens=True)
        after = torch.tensor([ends.get(prompt, 1 << 30) for prompt in prompts])
        waiting[:] = [Ended(context.shape[1], after)]
        return generate(self, context, *arguments, **settings)

    huggingface.stop_sequences_criteria = with_ends
    huggingface.HFLM._model_generate = generate_ended


if __name__ == "__main__":
    end_lm_eval(ends_of(Path(sys.argv[1])))
    from lm_eval.__main__ import cli_evaluate

    sys.argv[1:2] = []
    cli_evaluate()
