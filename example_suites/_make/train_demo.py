"""Trains the demo model from scratch and writes its checkpoint: `python -m example_suites._make.train_demo`.

Tokenizer, text and weights come from one seed. Documents are drawn, tokenised and packed into rows as training goes;
only answers count in the loss.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from . import apart
from .corpus import Corpus, Document
from .write_suites import held_out_lines

END = "<|endoftext|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ message['content'] }}{% if not loop.last %}\n\n{% endif %}{% endfor %}"
)
DEMO_MODEL = Path(__file__).resolve().parents[2] / "pytest_llmeval" / "demo_model"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the weights, beside the versions of the libraries and the machine's arithmetic."""

    seed: int = 20
    vocab_size: int = 2048
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    head_size: int = 32
    mlp_size: int = 384
    init_std: float = 0.07
    num_steps: int = 4200
    rope_theta: float = 1000.0
    looks_back: Mapping[int, Sequence[int]] = field(default_factory=lambda: {0: (1, 2, 3), 1: (1,)})
    look_strength: float = 6.0
    look_frequencies: int = 4
    rows_per_batch: int = 4
    row_width: int = 256
    rate: float = 0.003
    warmup: float = 0.02
    cooldown: float = 0.5
    context_weight: float = 0.0
    max_context: int = 4096


@dataclass(frozen=True, slots=True)
class Material:
    """What a model learns from: the maker of its corpus, the check of each document, its chats and where it is kept.

    ``corpus`` takes a seed; what it returns has ``document``, ``writers`` and ``words``, as ``corpus.Corpus`` has.
    ``marks`` are the tokens that separate the turns of a chat.
    """

    corpus: Callable[[int], Any]
    check: Callable[[Iterable[Document]], None]
    chat_template: str
    folder: Path
    marks: tuple[str, ...] = ()


@cache
def held_out() -> frozenset[str]:
    return held_out_lines()


DEMO = Material(Corpus, lambda documents: apart.check(documents, held_out()), CHAT_TEMPLATE, DEMO_MODEL)


def train_tokenizer(recipe: Recipe, material: Material) -> Any:
    """A byte-level BPE over the corpus, a number with its space apart; every text starts with the end-of-text token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r" ?\d+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    corpus = material.corpus(recipe.seed)
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size,
        special_tokens=[END, *material.marks],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Words in rows count beside the documents, so that nearly every word becomes a token of its own.
    texts = [corpus.document(0.5).text for _ in range(20_000)]
    for mark in material.marks:
        texts = [text.replace(mark, "\n") for text in texts]
    tokenizer.train_from_iterator([*texts, *(" " + " ".join(corpus.words) for _ in range(300))], trainer)
    end_id = tokenizer.token_to_id(END)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, end_id)]
    )
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=recipe.max_context,
        clean_up_tokenization_spaces=False,
        chat_template=material.chat_template,
    )


def new_model(recipe: Recipe, vocab_size: int, end_id: int) -> Any:
    """An untrained model of the Llama architecture with tied embeddings."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        head_dim=recipe.head_size,
        initializer_range=recipe.init_std,
        max_position_embeddings=recipe.max_context,
        tie_word_embeddings=True,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        bos_token_id=end_id,
        eos_token_id=end_id,
        dtype="float32",
    )
    # No pad_token_id: the embedding of a padding token is not trained, and ours is the end-of-text token too.
    torch.manual_seed(recipe.seed)
    model: Any = LlamaForCausalLM(config)
    for layer, offsets in recipe.looks_back.items():
        point_heads_back(recipe, model, layer, offsets)
    return model


def point_heads_back(recipe: Recipe, model: Any, layer: int, offsets: Sequence[int]) -> None:
    """Sets attention biases so that a head starts out looking a fixed number of tokens back.

    With rotary positions the biases of query and key contribute a sum of cosines of (distance - offset), one for each
    of the fastest frequencies, which is highest at the offset. Training then need not find first how to see the word
    before a word, on which finding a word again in the text rests.
    """
    attention = model.model.layers[layer].self_attn
    half = recipe.head_size // 2
    fast = recipe.look_frequencies
    frequencies = model.model.rotary_emb.inv_freq[:fast]
    with torch.no_grad():
        for head, offset in enumerate(offsets):
            query = attention.q_proj.bias[2 * half * head : 2 * half * (head + 1)]
            key = attention.k_proj.bias[2 * half * head : 2 * half * (head + 1)]
            query[:fast] = recipe.look_strength
            key[:fast] = recipe.look_strength * torch.cos(offset * frequencies)
            key[half : half + fast] = recipe.look_strength * torch.sin(offset * frequencies)


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids with the end-of-text token at both ends, and the weight of each in the loss."""

    ids: list[int]
    weights: list[float]


def encode(tokenizer: Any, documents: list[Document], context_weight: float) -> list[Example]:
    """Token ids and loss weights: 1 for tokens of answers and the final end-of-text, less for the rest."""
    encoded = tokenizer.backend_tokenizer.encode_batch([document.text for document in documents])
    end_id = tokenizer.eos_token_id
    examples = []
    for document, encoding in zip(documents, encoded, strict=True):
        answered = {place for start, stop in document.answers for place in range(start + 1, stop + 1)}
        weights = [1.0 if end in answered else context_weight for _, end in encoding.offsets]
        examples.append(Example([*encoding.ids, end_id], [*weights, 1.0]))
    return examples


@dataclass(slots=True)
class Progress:
    """How far training is, from 0 to 1; the mixture of documents depends on it."""

    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of several examples each: ids, loss weights, and which example of its row a token belongs to (-1: none)."""

    ids: torch.Tensor
    weights: torch.Tensor
    owners: torch.Tensor

    def mask(self) -> torch.Tensor:
        """Which token sees which, [row, 1, query, key], as what is added to attention: only earlier ones of its own."""
        width = self.ids.shape[1]
        own = self.owners[:, :, None] == self.owners[:, None, :]
        seen = own & torch.ones(width, width, dtype=torch.bool).tril()
        return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]


def pack(recipe: Recipe, examples: Iterator[Example], pad_id: int) -> Iterator[Batch]:
    """Fills the rows of batches; an example goes into the first row with room, and one that finds none starts anew."""
    shape = (recipe.rows_per_batch, recipe.row_width)
    ids, weights, owners = (torch.empty(0),) * 3
    used: list[int] = []
    for example in examples:
        size = len(example.ids)
        row = next((at for at, count in enumerate(used) if count + size <= recipe.row_width), None)
        if row is None:
            if used:
                yield Batch(ids, weights, owners)
            ids, weights, owners = torch.full(shape, pad_id), torch.zeros(shape), torch.full(shape, -1)
            used, row = [0] * recipe.rows_per_batch, 0
        span = slice(used[row], used[row] + size)
        ids[row, span], weights[row, span] = torch.tensor(example.ids), torch.tensor(example.weights)
        # The first token of an example is given, never predicted from the example before it.
        weights[row, used[row]] = 0.0
        owners[row, span] = used[row]
        used[row] += size


def examples_of(recipe: Recipe, tokenizer: Any, material: Material, progress: Progress) -> Iterator[Example]:
    """Examples without end; checks that no document holds a question of a suite."""
    corpus = material.corpus(recipe.seed)
    while True:
        documents = [corpus.document(progress.share) for _ in range(200)]
        material.check(documents)
        examples = encode(tokenizer, documents, recipe.context_weight)
        yield from (example for example in examples if len(example.ids) <= recipe.row_width)


def held_back(recipe: Recipe, tokenizer: Any, material: Material) -> dict[str, Batch]:
    """A batch of each kind of document, drawn with another seed from the training side, to watch progress on."""
    corpus = material.corpus(recipe.seed + 1)
    batches = {}
    for kind, write in corpus.writers.items():
        examples = encode(tokenizer, [write() for _ in range(100)], 0.0)
        batches[kind] = next(pack(recipe, (e for e in examples if len(e.ids) <= recipe.row_width), 0))
    return batches


@torch.no_grad()
def shares_right(model: Any, checks: Mapping[str, Batch]) -> str:
    """For each kind of document the share of answer tokens that the model gives the highest probability."""
    shares = []
    for kind, batch in checks.items():
        guesses = model(input_ids=batch.ids, attention_mask=batch.mask()).logits[:, :-1].argmax(-1)
        asked = (batch.weights[:, 1:] > 0) & (batch.ids[:, 1:] != model.config.eos_token_id)
        share = (guesses == batch.ids[:, 1:])[asked].float().mean().item()
        shares.append(f"{kind} {share:.2f}")
    return "  " + ", ".join(shares)


def rate_factor(recipe: Recipe, step: int) -> float:
    """The learning rate's factor: a linear rise, a plateau, a linear fall to zero."""
    progress = step / recipe.num_steps
    return min(1.0, (step + 1) / (recipe.warmup * recipe.num_steps), (1.0 - progress) / recipe.cooldown)


def train(recipe: Recipe, tokenizer: Any, material: Material, folder: Path, save_every: int) -> Any:
    """Trains a new model with AdamW; saves to `folder` as it goes."""
    model = new_model(recipe, len(tokenizer), tokenizer.eos_token_id)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(recipe, step))
    model.train()
    started = time.perf_counter()
    num_tokens, recent = 0, 0.0
    progress = Progress()
    rows = pack(recipe, examples_of(recipe, tokenizer, material, progress), tokenizer.pad_token_id)
    checks = held_back(recipe, tokenizer, material)
    for step, batch in enumerate(islice(rows, recipe.num_steps)):
        progress.share = step / recipe.num_steps
        hidden = model.model(input_ids=batch.ids, attention_mask=batch.mask()).last_hidden_state[:, :-1]
        kept = batch.weights[:, 1:]
        logits = model.lm_head(hidden[kept > 0])
        losses = functional.cross_entropy(logits, batch.ids[:, 1:][kept > 0], reduction="none")
        loss = (losses * kept[kept > 0]).sum() / kept.sum()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        num_tokens += int((batch.owners >= 0).sum())
        recent = 0.98 * recent + 0.02 * loss.item() if step else loss.item()
        if step % 200 == 199 or step + 1 == recipe.num_steps:
            seconds = time.perf_counter() - started
            sys.stdout.write(
                f"step {step + 1}/{recipe.num_steps} loss {recent:.3f} tokens {num_tokens} seconds {seconds:.0f}\n"
            )
            sys.stdout.write(shares_right(model, checks) + "\n")
            sys.stdout.flush()
        if save_every and step % save_every == save_every - 1:
            write_checkpoint(model, tokenizer, folder)
    return model.eval()


def write_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes configuration, weights and tokenizer; weights are stored in float16, and the configuration says float32.

    So a loader that asks for nothing computes in float32, from a file of half the size.
    """
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = folder / "model.safetensors"
    halves = {name: tensor.half() for name, tensor in load_file(weights).items()}
    save_file(halves, weights, metadata={"format": "pt"})
    weights.chmod(0o644)


def make(material: Material, recipe: Recipe, about: str | None) -> None:
    """Trains and writes the checkpoint, as the command line says; prints what the card quotes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, default=material.folder)
    parser.add_argument("--steps", type=int, default=recipe.num_steps)
    parser.add_argument("--save-every", type=int, default=0, help="also write the checkpoint every so many steps")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    recipe = replace(recipe, num_steps=arguments.steps)
    started = time.perf_counter()
    tokenizer = train_tokenizer(recipe, material)
    model = train(recipe, tokenizer, material, arguments.out, arguments.save_every)
    write_checkpoint(model, tokenizer, arguments.out)
    size = sum(path.stat().st_size for path in arguments.out.iterdir() if path.is_file())
    summary = {
        "parameters": model.num_parameters(),
        "bytes": size,
        "wall_seconds": round(time.perf_counter() - started),
        "cpu_seconds": round(time.process_time()),
    }
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    make(DEMO, Recipe(), __doc__)
