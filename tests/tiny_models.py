"""Checkpoints of a few thousand random weights, made on the fly: what a real one has, and nothing learned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

__all__ = ["CHAT_TEMPLATE", "make_checkpoint", "make_hub_cache", "make_tokenizer"]

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

_CORPUS = (
    "The capital of France is Paris. The capital of Italy is Rome, and of Japan Tokyo.",
    "Question: what is the answer? Answer: yes. Question: is that so? Answer: no.",
    "One, two, three, four, five, six; the quick brown fox jumps over the lazy dog.",
    "def add(a, b):\n    return a + b\n\nA. B. C. D. 0 1 2 3 4 5 6 7 8 9",
)


def make_tokenizer(*, adds_bos: bool = False, vocab_size: int = 384, chat_template: str | None = None) -> Any:
    """A byte-level BPE tokenizer with ``<s>`` and ``</s>``; ``adds_bos`` puts ``<s>`` before every text, as Llama's
    does.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    bos = {"bos_token": "<s>"} if adds_bos else {}
    create: Any = PreTrainedTokenizerFast
    fast = create(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>", **bos)
    fast.chat_template = chat_template
    return fast


def make_checkpoint(
    folder: Path,
    architecture: Literal["gpt2", "llama", "bloom"] = "gpt2",
    *,
    seed: int = 0,
    max_length: int = 128,
    adds_bos: bool | None = None,
    dtype: str = "float32",
    chat_template: str | None = None,
    **config_settings: Any,
) -> Path:
    """Write a checkpoint (config, safetensors, tokenizer) into ``folder`` and return it.

    ``adds_bos`` None: only ``llama`` adds BOS. ``config_settings`` go into the config. The weights are drawn wide, so
    that the distributions over tokens are far from flat.
    """
    import torch
    import transformers

    tokenizer = make_tokenizer(
        adds_bos=architecture == "llama" if adds_bos is None else adds_bos, chat_template=chat_template
    )
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None}
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        **ids,
    }
    config: Any
    if architecture == "gpt2":
        common |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": max_length}
        config = transformers.GPT2Config(**{**common, **config_settings})
    elif architecture == "llama":
        common |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        common |= {"num_key_value_heads": 2, "max_position_embeddings": max_length}
        config = transformers.LlamaConfig(**{**common, **config_settings})
    else:
        common |= {"hidden_size": 32, "n_layer": 2, "n_head": 4}
        config = transformers.BloomConfig(**{**common, **config_settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto: Any = transformers.AutoModelForCausalLM
        model = auto.from_config(config)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_hub_cache(cache: Path, repo: str, checkpoint: Path, *, revision: str = "main", commit: str = "0" * 40) -> Path:
    """Lay ``checkpoint`` out under ``cache`` as the hub's library would have downloaded it; returns the snapshot's
    folder.
    """
    root = cache / ("models--" + repo.replace("/", "--"))
    snapshot = root / "snapshots" / commit
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (root / "refs" / revision).write_text(commit)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(checkpoint.iterdir())):
        blob = root / "blobs" / f"{commit[:30]}{number:010d}"
        shutil.copyfile(path, blob)
        (snapshot / path.name).symlink_to(blob)
    return snapshot
