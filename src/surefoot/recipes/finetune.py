"""finetune: trains a transformers model of a folder or the hub: all of it, adapters on it, or its head.

`model` is a folder as Hugging Face's libraries write it, `config.json` and safetensors, or `ORG/NAME` of the hub: its
commit is kept in the run, and a plan downloads its config only. No code of either runs. `method` says what is trained,
and `data` what from: conversations, instructions, preferences or texts in JSON, Parquet, Arrow or a folder of
`datasets`; a corpus of `surefoot data`; or a safetensors file whose tensors are the model's arguments. Without `data`
it takes random numbers, to plan and profile. `loss=dpo` learns from preferences. Needs peft and transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from surefoot import Recipe
from surefoot.data.columns import Columns
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.marked import MarkedDocuments
from surefoot.data.packing import PackedDocuments
from surefoot.data.pairs import Pairs, padded
from surefoot.data.windows import TokenWindows
from surefoot.errors import RecipeError
from surefoot.finetuning.chat_corpus import Broken, TooLong, holds_pairs, is_chat, marks_of, read_report
from surefoot.finetuning.converted import Conversion, converted, is_convertible
from surefoot.finetuning.dpo import RandomPairs, dpo_loss, dpo_metrics
from surefoot.finetuning.hub import Model, pinned
from surefoot.finetuning.local_folder import overruled, read_config, vocabulary_of
from surefoot.finetuning.methods import ALL_LINEAR, BY_PEFT, Adapt, Method
from surefoot.finetuning.optimizers import OptimizerName, optimizer_of
from surefoot.finetuning.reference_file import read_reference
from surefoot.finetuning.tasks import RandomSamples, Task, build, mask_token_of, masked_loss, task_loss, text_of
from surefoot.recipe.ranges import Count, CountOrNone, Positive, PositiveOrNone, Rate, RateOrNone, Share
from surefoot.recipe.recipe import Precision
from surefoot.records.manifest import HELD_OUT, TRAIN
from surefoot.techniques.precision import parameters_in
from surefoot.techniques.schedule import constant, warmup_cosine, warmup_linear

RATES = {"full": 2e-5, "lora": 2e-4, "dora": 2e-4, "qlora": 2e-4, "frozen": 1e-3, "bitfit": 1e-3}
"""Usual learning rates: adapters from the QLoRA paper (https://arxiv.org/abs/2305.14314), the others ten times less or
five times more, as the number of trained parameters is larger or smaller."""

DPO_SHARE = 1 / 40
"""The share of the usual rate with `loss=dpo`: 5e-7 for all weights and 5e-6 for adapters, as Zephyr was trained
(https://arxiv.org/abs/2310.16944)."""
Loss = Literal["task", "dpo"]
ScheduleName = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True)
class Source:
    """Where samples come from."""

    data: Callable[[], Any]
    about: str
    evaluation: Callable[[], Any] | None = None
    bytes_per_token: float | None = None
    collate: Callable[[list[Any]], Any] | None = None


def source_of(config: Any, task: Task, model: str, data: str, context: int, packed: bool, called: str) -> Source:
    """The samples that `data` names. `called` is what the user calls them."""
    if not data:
        rows = partial(RandomSamples, config, task, model, context)
        return Source(rows, "nothing: random numbers, for planning and profiling; set data=")
    if data.endswith(".safetensors"):
        return Source(partial(Columns, data), f"the samples in {data}")
    if not is_corpus(data):
        raise RecipeError(
            f"there is no data={data}; name a file or folder of conversations, preferences or texts, a corpus of "
            "`surefoot data`, or a .safetensors file"
        )
    if task not in ("causal", "masked"):
        raise RecipeError(f"task={task} cannot learn from the corpus {data}; give a .safetensors file with labels")
    corpus = open_corpus(data)
    refuse_other_vocabulary(corpus.manifest.vocabulary, data, vocabulary_of(text_of(config), model), model)
    if holds_pairs(data):
        raise RecipeError(f"{called} holds preferences, which loss=dpo learns from: set loss=dpo")
    if is_chat(data):
        return _conversations(data, task, context, called)
    kind = PackedDocuments if packed else TokenWindows
    train, held_out = corpus.only("train"), corpus.only(HELD_OUT)
    has_held_out = bool(held_out.manifest.shards)
    return Source(
        partial(kind, train, context),
        f"{train.manifest.tokens:,} tokens in {data}",
        partial(kind, held_out, context) if has_held_out else None,
        held_out.manifest.bytes_per_token if has_held_out else None,
    )


def _conversations(data: str, task: Task, context: int, called: str) -> Source:
    """Conversations, of which only the assistant's tokens bear loss."""
    if task != "causal":
        raise RecipeError(f"{called} holds conversations, which task=causal learns from, not task={task}")
    refuse_long(data, context)
    corpus, marks = open_corpus(data), open_corpus(marks_of(data))
    parts = {part: (corpus.only(part), marks.only(part)) for part in ("train", HELD_OUT)}
    return Source(
        partial(MarkedDocuments, *parts["train"], context),
        f"{parts['train'][0].manifest.documents:,} conversations in {called}",
        partial(MarkedDocuments, *parts[HELD_OUT], context) if parts[HELD_OUT][0].manifest.shards else None,
    )


def refuse_long(data: str, context: int) -> None:
    """Refuses a corpus with conversations that are longer than a row."""
    longest = read_report(data).longest
    if longest > context + 1:
        raise RecipeError(
            f"{data} holds conversations of up to {longest:,} tokens, and context={context:,}; set "
            f"context={longest - 1}, or make the corpus again with `surefoot data chat --context {context + 1}`"
        )


def preferences_of(config: Any, task: Task, model: str, method: Method, data: str, context: int, called: str) -> Source:
    """The pairs of a better and a worse answer that `data` names."""
    if task != "causal":
        raise RecipeError(f"loss=dpo compares answers of a model that predicts the next token: task=causal, not {task}")
    vocabulary, switches_off = vocabulary_of(text_of(config), model), method in BY_PEFT
    how = "reference: adapters switched off" if switches_off else "reference: log-probabilities computed beforehand"
    if not data:
        rows = partial(RandomPairs, vocabulary, context, with_reference=not switches_off)
        return Source(rows, f"nothing: random pairs, for planning and profiling; set data=; {how}")
    if not (is_corpus(data) and holds_pairs(data)):
        raise RecipeError(
            f"loss=dpo learns from preferences, and data={called} holds none; they are lines with prompt, chosen and "
            "rejected"
        )
    corpus, marks = open_corpus(data), open_corpus(marks_of(data))
    refuse_other_vocabulary(corpus.manifest.vocabulary, data, vocabulary, model)
    refuse_long(data, context)
    record, known = (None, {}) if switches_off else read_reference(data, model)
    digest = record.digest if record else ""
    parts = {
        part: partial(Pairs, corpus.only(part), marks.only(part), known.get(part), digest) for part in (TRAIN, HELD_OUT)
    }
    return Source(
        parts[TRAIN],
        f"{corpus.only(TRAIN).manifest.documents // 2:,} pairs in {called}; {how}",
        parts[HELD_OUT] if corpus.only(HELD_OUT).manifest.shards else None,
        collate=padded,
    )


def refuse_other_vocabulary(known: int, data: str, here: int, model: str) -> None:
    """Refuses a corpus with tokens that the model does not have."""
    if known > here:
        raise RecipeError(
            f"{data} has a vocabulary of {known:,} and {model} one of {here:,}: use the model's tokenizer"
        )


def schedule_of(name: ScheduleName, warmup: float, floor: float) -> Any:
    """A rise over a share of the run, then a curve down to a share of the rate, or none."""
    if name == "constant":
        return constant(warmup_share=warmup)
    falling = warmup_cosine if name == "cosine" else warmup_linear
    return falling(warmup_share=warmup, floor=floor)


def rates_of_adapters(method: Method, ratio: float | None) -> str | None:
    """LoRA+ (https://arxiv.org/abs/2402.12354): the second matrix of each adapter learns faster.

    So do DoRA's magnitudes, as with peft.
    """
    if ratio is None:
        return None
    if method not in BY_PEFT:
        raise RecipeError(f"lora_plus belongs to adapters: set method to {', '.join(BY_PEFT)}, not {method}")
    magnitudes = f",*.lora_magnitude_vector.*={ratio:g}" if method == "dora" else ""
    return f"*.lora_B.*={ratio:g}{magnitudes}"


def _built(adapt: Adapt, build: Callable[[], Any]) -> Any:
    with parameters_in(adapt.held):
        return adapt.built(build)


def finetune(
    model: Model,
    task: Task = "causal",
    method: Method = "lora",
    data: str = "",
    rank: Count = 16,
    alpha: Count = 32,
    dropout: Share = 0.0,
    targets: str = ALL_LINEAR,
    rslora: bool = False,
    modules_to_save: str = "",
    neftune: PositiveOrNone = None,
    lora_plus: PositiveOrNone = None,
    context: Count = 512,
    packed: bool = False,
    too_long: TooLong = "drop",
    broken: Broken = "stop",
    held_out: Share = 0.0,
    micro_batch_size: Count = 1,
    lr: RateOrNone = None,
    max_steps: CountOrNone = 200,
    max_epochs: PositiveOrNone = None,
    global_batch_tokens: CountOrNone = None,
    precision: Precision = "32-true",
    loss: Loss = "task",
    beta: Positive = 0.1,
    optimizer: OptimizerName = "adamw",
    weight_decay: Rate = 0.0,
    schedule: ScheduleName = "cosine",
    warmup: Share = 0.05,
    floor: Share = 0.1,
) -> Recipe:
    model = pinned(model)
    config = read_config(model, recipe="finetune", knob="model")
    config.use_cache = False
    prefers, made = loss == "dpo", None
    if is_convertible(data):
        how = Conversion(context + 1, too_long, held_out, broken)
        made = str(converted(data, model, how))
    if prefers:
        source = preferences_of(config, task, model, method, made or data, context, data)
    else:
        source = source_of(config, task, model, made or data, context, packed, data)
    usual = RATES[method] * (DPO_SHARE if prefers else 1.0)
    by_task = masked_loss(mask_token_of(config, model)) if task == "masked" else task_loss
    adapt = Adapt(method, task, precision, rank, alpha, dropout, targets, rslora, modules_to_save, neftune)
    recipe = Recipe(
        model=partial(_built, adapt, partial(build, config, task)),
        init_from=model,
        adapt=adapt,
        data=source.data,
        evaluation=source.evaluation,
        evaluate_every=1 if source.evaluation else None,
        bytes_per_token=source.bytes_per_token,
        loss=dpo_loss(beta) if prefers else by_task,
        metrics=dpo_metrics(beta) if prefers else None,
        collate=source.collate,
        optimizer=optimizer_of(optimizer, usual if lr is None else lr, weight_decay),
        rates=rates_of_adapters(method, lora_plus),
        schedule=schedule_of(schedule, warmup, floor),
        micro_batch_size=micro_batch_size,
        tokens_per_sample=context if task in ("causal", "masked", "seq2seq") and not prefers else 1,
        max_grad_norm=1.0,
        max_steps=max_steps if max_epochs is None else None,
        max_epochs=max_epochs,
        global_batch_tokens=global_batch_tokens,
        precision=precision,
        made_corpus=made,
        about=f"{method}{' by dpo' if prefers else ''} on {config.model_type} from {model}, from {source.about}"
        + overruled(config, precision, adapt.held),
    )
    return replace(recipe, evaluate_every=max(1, (recipe.steps() or 10) // 10)) if source.evaluation else recipe
