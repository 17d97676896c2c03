"""Checkpoints of a few thousand random weights, made on the fly: what a real one has, and nothing learned."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Literal

__all__ = ["CHAT_TEMPLATE", "make_checkpoint", "make_embedder", "make_hub_cache", "make_t5_tokenizer", "make_tokenizer"]

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

_BART_STACK = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}


def make_tokenizer(
    *, adds_bos: bool = False, adds_eos: bool = False, vocab_size: int = 384, chat_template: str | None = None
) -> Any:
    """A byte-level BPE tokenizer with ``<s>`` and ``</s>``; ``adds_bos`` puts ``<s>`` before every text, as Llama's
    does; ``adds_eos`` puts ``</s>`` behind it too, as BART's does.
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
        end = " </s>" * adds_eos
        special_tokens = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"<s> $A{end}", pair=f"<s> $A{end} $B{end}", special_tokens=special_tokens
        )
    bos = {"bos_token": "<s>"} if adds_bos else {}
    create: Any = PreTrainedTokenizerFast
    fast = create(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>", **bos)
    fast.chat_template = chat_template
    return fast


def make_t5_tokenizer(*, vocab_size: int = 160, chat_template: str | None = None) -> Any:
    """A unigram tokenizer as T5's: ``</s>`` after every text, no BOS, white space is one ``▁`` before a word, and what
    it has not seen is ``<unk>``.
    """
    from transformers import T5Tokenizer

    # Counted here: the library's trainer of unigram models gives other pieces and scores each time it runs, and with
    # them the next token of some random model is a matter of the last bit now and then.
    counts = Counter(
        word[start:end]
        for text in _CORPUS
        for word in ("▁" + word for word in text.split())
        for start in range(len(word))
        for end in range(start + 1, min(start + 6, len(word)) + 1)
    )
    ranked = sorted(counts, key=lambda piece: (len(piece) > 1, -counts[piece] * len(piece), piece))
    total = counts.total()
    special = [(piece, 0.0) for piece in ("<pad>", "</s>", "<unk>")]
    pieces = special + [(piece, math.log(counts[piece] / total)) for piece in ranked[: vocab_size - len(special)]]
    create: Any = T5Tokenizer
    tokenizer = create(vocab=pieces, extra_ids=4)
    tokenizer.chat_template = chat_template
    return tokenizer


def make_checkpoint(
    folder: Path,
    architecture: Literal["gpt2", "llama", "bloom", "t5", "bart"] = "gpt2",
    *,
    seed: int = 0,
    max_length: int = 128,
    adds_bos: bool | None = None,
    dtype: str = "float32",
    chat_template: str | None = None,
    **config_settings: Any,
) -> Path:
    """Write a checkpoint (config, safetensors, tokenizer) into ``folder`` and return it.

    ``adds_bos`` None: only ``llama`` and ``bart`` add BOS. ``config_settings`` go into the config. The weights are
    drawn wide, so that the distributions over tokens are far from flat. ``t5`` and ``bart`` are encoder-decoder models.
    """
    import torch
    import transformers

    if architecture == "t5":
        tokenizer = make_t5_tokenizer(chat_template=chat_template)
    else:
        tokenizer = make_tokenizer(
            adds_bos=architecture in ("llama", "bart") if adds_bos is None else adds_bos,
            adds_eos=architecture == "bart",
            chat_template=chat_template,
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
    elif architecture == "t5":
        common |= {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "n_positions": max_length}
        common |= {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
        config = transformers.T5Config(**{**common, **config_settings})
    elif architecture == "bart":
        common |= {"d_model": 32, "init_std": 0.3, "max_position_embeddings": max_length, "pad_token_id": 2}
        common |= {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in _BART_STACK.items()}
        common |= {"decoder_start_token_id": tokenizer.eos_token_id, "forced_eos_token_id": None}
        config = transformers.BartConfig(**{**common, **config_settings})
    else:
        common |= {"hidden_size": 32, "n_layer": 2, "n_head": 4}
        config = transformers.BloomConfig(**{**common, **config_settings})
    auto: Any = transformers.AutoModelForCausalLM
    if config.is_encoder_decoder:
        auto = transformers.AutoModelForSeq2SeqLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto.from_config(config)
        if architecture == "t5":  # whose own initialisation writes nothing but <pad>
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.data.normal_(0, 0.3)
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
    for number, path in enumerate(sorted(path for path in checkpoint.rglob("*") if path.is_file())):
        blob = root / "blobs" / f"{commit[:30]}{number:010d}"
        shutil.copyfile(path, blob)
        place = snapshot / path.relative_to(checkpoint)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(blob)
    return snapshot


def make_embedder(folder: Path, *, seed: int = 0, max_length: int = 32) -> Path:
    """A sentence-embedding model: a BERT of 16 numbers and 1 layer, the mean of its tokens, of length 1."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(seed)
    words = sorted({word for text in _CORPUS for word in text.lower().split() if word.isalpha()})
    letters = [f"{mark}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz" for mark in ("", "##")]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words]
    written = folder / "transformer"
    written.mkdir(parents=True)
    (written / "vocab.txt").write_text("\n".join(vocabulary))
    create: Any = BertTokenizer
    create(str(written / "vocab.txt")).save_pretrained(written)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    bert: Any = BertModel(config)
    bert.eval().save_pretrained(written)
    transformer = Transformer(str(written), max_seq_length=max_length)
    model = SentenceTransformer(modules=[transformer, Pooling(16), Normalize()], device="cpu")
    made = folder / "model"
    model.save(str(made), create_model_card=False)
    return made
