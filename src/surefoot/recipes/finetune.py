"""finetune: trains a transformers model from a local folder: all of it, adapters on it, or its head.

`model` is a folder as Hugging Face's libraries write it: `config.json` and safetensors. Nothing is downloaded, and no
code of the folder runs. `method` says what is trained, and `data` what from: a corpus of `surefoot data tokenize` or
`surefoot data chat`, or a safetensors file whose tensors are the model's arguments. Without `data` it takes random
numbers, to plan and profile. Needs `pip install 'surefoot[finetune]'`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from surefoot import Recipe
from surefoot.data.columns import Columns
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.marked import MarkedDocuments
from surefoot.data.packing import PackedDocuments
from surefoot.data.windows import TokenWindows
from surefoot.errors import RecipeError
from surefoot.finetuning.chat_corpus import is_chat, marks_of, read_report
from surefoot.finetuning.local_folder import overruled, read_config, vocabulary_of
from surefoot.finetuning.methods import ALL_LINEAR, Adapt, Method
from surefoot.finetuning.tasks import RandomSamples, Task, build, mask_token_of, masked_loss, task_loss, text_of
from surefoot.recipe.ranges import Count, RateOrNone, Share
from surefoot.recipe.recipe import Precision
from surefoot.records.manifest import HELD_OUT
from surefoot.techniques.schedule import warmup_cosine

RATES = {"full": 2e-5, "lora": 2e-4, "dora": 2e-4, "qlora": 2e-4, "frozen": 1e-3, "bitfit": 1e-3}
"""Usual learning rates: adapters from the QLoRA paper (https://arxiv.org/abs/2305.14314), the others ten times less or
five times more, as the number of trained parameters is larger or smaller."""


@dataclass(frozen=True)
class Source:
    """Where samples come from."""

    data: Callable[[], Any]
    about: str
    evaluation: Callable[[], Any] | None = None
    bytes_per_token: float | None = None


def source_of(config: Any, task: Task, model: str, data: str, context: int, packed: bool) -> Source:
    """The samples that `data` names."""
    if not data:
        rows = partial(RandomSamples, config, task, model, context)
        return Source(rows, "nothing: random numbers, for planning and profiling; set data=")
    if data.endswith(".safetensors"):
        return Source(partial(Columns, data), f"the samples in {data}")
    if not is_corpus(data):
        raise RecipeError(
            f"data={data} is neither a corpus nor a .safetensors file; `surefoot data tokenize` makes a corpus of text "
            "and `surefoot data chat` one of conversations"
        )
    if task not in ("causal", "masked"):
        raise RecipeError(f"task={task} cannot learn from the corpus {data}; give a .safetensors file with labels")
    corpus = open_corpus(data)
    known, here = corpus.manifest.vocabulary, vocabulary_of(text_of(config), model)
    if known > here:
        raise RecipeError(
            f"{data} has a vocabulary of {known:,} and {model} one of {here:,}: use the model's tokenizer"
        )
    if is_chat(data):
        return _conversations(data, task, context)
    kind = PackedDocuments if packed else TokenWindows
    train, held_out = corpus.only("train"), corpus.only(HELD_OUT)
    has_held_out = bool(held_out.manifest.shards)
    return Source(
        partial(kind, train, context),
        f"{train.manifest.tokens:,} tokens in {data}",
        partial(kind, held_out, context) if has_held_out else None,
        held_out.manifest.bytes_per_token if has_held_out else None,
    )


def _conversations(data: str, task: Task, context: int) -> Source:
    """Conversations, of which only the assistant's tokens bear loss."""
    if task != "causal":
        raise RecipeError(f"{data} holds conversations, which task=causal learns from, not task={task}")
    longest = read_report(data).longest
    if longest > context + 1:
        raise RecipeError(
            f"{data} holds conversations of up to {longest:,} tokens, and context={context:,}; set "
            f"context={longest - 1}, or make the corpus again with `surefoot data chat --context {context + 1}`"
        )
    corpus, marks = open_corpus(data), open_corpus(marks_of(data))
    parts = {part: (corpus.only(part), marks.only(part)) for part in ("train", HELD_OUT)}
    return Source(
        partial(MarkedDocuments, *parts["train"], context),
        f"{parts['train'][0].manifest.documents:,} conversations in {data}",
        partial(MarkedDocuments, *parts[HELD_OUT], context) if parts[HELD_OUT][0].manifest.shards else None,
    )


def finetune(
    model: str,
    task: Task = "causal",
    method: Method = "lora",
    data: str = "",
    rank: Count = 16,
    alpha: Count = 32,
    dropout: Share = 0.0,
    targets: str = ALL_LINEAR,
    context: Count = 512,
    packed: bool = False,
    micro_batch_size: Count = 1,
    lr: RateOrNone = None,
    max_steps: Count = 200,
    precision: Precision = "32-true",
) -> Recipe:
    config = read_config(model, recipe="finetune", knob="model")
    config.use_cache = False
    source = source_of(config, task, model, data, context, packed)
    return Recipe(
        model=lambda: build(config, task),
        init_from=model,
        adapt=Adapt(method, task, precision, rank, alpha, dropout, targets),
        data=source.data,
        evaluation=source.evaluation,
        evaluate_every=max(1, max_steps // 10) if source.evaluation else None,
        bytes_per_token=source.bytes_per_token,
        loss=masked_loss(mask_token_of(config, model)) if task == "masked" else task_loss,
        optimizer=lambda parameters: torch.optim.AdamW(
            parameters, lr=RATES[method] if lr is None else lr, weight_decay=0.0
        ),
        schedule=warmup_cosine(warmup_steps=max(1, max_steps // 20)),
        micro_batch_size=micro_batch_size,
        tokens_per_sample=context if task in ("causal", "masked", "seq2seq") else 1,
        max_grad_norm=1.0,
        max_steps=max_steps,
        precision=precision,
        about=f"{method} on {config.model_type} from {model}, from {source.about}" + overruled(config, precision),
    )
