"""Tasks: which class of transformers a task takes, what its batches hold, and the one loss of all of them.

| task             | model                                                | labels                          |
|------------------|------------------------------------------------------|---------------------------------|
| `causal`         | predicts the next token                              | the tokens, shifted by one      |
| `masked`         | predicts hidden tokens, from those on both sides     | the tokens that the loss hides  |
| `seq2seq`        | reads one text or spectrogram, predicts another text | the text to predict             |
| `classification` | text, images or sound, as its config says            | a number for each sample        |
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot.data.packing import IGNORED
from surefoot.errors import RecipeError
from surefoot.finetuning.documents import mask_of
from surefoot.finetuning.hub import WORDS, folder_of
from surefoot.finetuning.local_folder import built, vocabulary_of

Task = Literal["causal", "masked", "seq2seq", "classification"]
Batch = dict[str, Tensor]

_CLASSES = {
    "causal": ("AutoModelForCausalLM",),
    "masked": ("AutoModelForMaskedLM",),
    "seq2seq": ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq"),
    "classification": (
        "AutoModelForSequenceClassification",
        "AutoModelForImageClassification",
        "AutoModelForAudioClassification",
    ),
}
HIDDEN_SHARE = 0.15
"""The share of tokens that `masked` hides and predicts, as BERT has it (https://arxiv.org/abs/1810.04805)."""
SAMPLES = 4096
"""The number of random samples: as many as a search for the largest micro-batch may ask for."""
WAVE_SAMPLES = 16_000
"""A second of sound at 16 kHz, for models that take a wave."""


def build(config: Any, task: Task) -> nn.Module:
    """The model that the config names, with the head of the task and random weights."""
    return built(model_class(config, task), config)


def model_class(config: Any, task: Task) -> Any:
    """The Auto class of transformers for a config and a task."""
    import transformers

    for name in _CLASSES[task]:
        kind = getattr(transformers, name)
        if type(config) in kind._model_mapping:
            return kind
    able = [each for each, names in _CLASSES.items() if any(_has(config, name) for name in names)]
    other = f"it has {', '.join(able)}" if able else "it has none of the tasks that surefoot knows"
    raise RecipeError(f"{config.model_type} has no head for task={task} in transformers; {other}")


def _has(config: Any, name: str) -> bool:
    import transformers

    return type(config) in getattr(transformers, name)._model_mapping


def main_input(config: Any, task: Task) -> str:
    """What the model calls its first argument: `input_ids`, `pixel_values`, `input_features` or `input_values`."""
    kind = model_class(config, task)._model_mapping[type(config)]
    return str((kind[0] if isinstance(kind, tuple) else kind).main_input_name)


class RandomSamples(Dataset[Batch]):
    """Random inputs and labels of the right shapes, to plan and profile without data. A number names a sample."""

    draws_randomness = False

    def __init__(self, config: Any, task: Task, folder: str, context: int) -> None:
        self.config, self.task, self.context = config, task, context
        self.name = main_input(config, task)
        is_text = self.name == "input_ids" or task == "seq2seq"
        self.vocabulary = vocabulary_of(text_of(config), folder) if is_text else 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Batch:
        draw = torch.Generator().manual_seed(number)
        if self.name == "input_ids":
            inputs = torch.randint(0, self.vocabulary, (self.context,), generator=draw)
        else:
            inputs = torch.randn(*_input_shape(self.config, self.name), generator=draw)
        batch = {self.name: inputs}
        if self.task == "classification":
            return {**batch, "labels": torch.randint(0, self.config.num_labels, (), generator=draw)}
        if self.task == "seq2seq":
            labels = torch.randint(0, self.vocabulary, (self.context,), generator=draw)
            return {**batch, "decoder_input_ids": shifted_right(labels, self.config), "labels": labels}
        return batch if self.task == "masked" else next_tokens(inputs)


def next_tokens(tokens: Tensor) -> Batch:
    """Tokens, and for each the one after it; the last has none."""
    return {"input_ids": tokens, "labels": F.pad(tokens[..., 1:], (0, 1), value=IGNORED)}


def text_of(config: Any) -> Any:
    """The config that has the vocabulary."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def shifted_right(labels: Tensor, config: Any) -> Tensor:
    """What a decoder reads: its start token, then the labels but the last; padding in place of ignored ones."""
    start = getattr(config, "decoder_start_token_id", None)
    pad = getattr(config, "pad_token_id", None)
    start = start if start is not None else pad
    if start is None:
        raise RecipeError(f"the config of {config.model_type} names no decoder_start_token_id; add it to config.json")
    read = F.pad(labels[..., :-1], (1, 0), value=start)
    return read.masked_fill(read == IGNORED, pad if pad is not None else start)


def _input_shape(config: Any, name: str) -> tuple[int, ...]:
    """The shape of one image, spectrogram or wave."""
    if name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return getattr(config, "num_channels", 3), height, width
    bins = getattr(config, "num_mel_bins", None)
    if name == "input_features" and hasattr(config, "max_source_positions"):
        return bins or 80, 2 * config.max_source_positions
    if bins is not None:
        return getattr(config, "max_length", 1024), bins
    return (WAVE_SAMPLES,)


# ---------------------------------------------------------------------------------------- the loss


def task_loss(model: nn.Module, batch: Any, *, causal: bool = True) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every label that counts, as a sum and a count: micro-batches may have different counts."""
    batch = by_name(batch)
    inputs = {name: each for name, each in batch.items() if name not in ("labels", "documents")}
    if "documents" in batch:
        inputs["attention_mask"] = mask_of(model, batch["documents"], causal=causal)
    logits, labels = model(**inputs).logits, batch["labels"]
    summed = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return summed, (labels != IGNORED).sum()


def by_name(batch: Any) -> Batch:
    """A batch as a dict. Windows and packed documents are tuples: tokens, labels, positions, documents."""
    if isinstance(batch, dict):
        return batch
    return dict(zip(("input_ids", "labels", "position_ids", "documents"), batch, strict=False))


def masked_loss(mask_token: int) -> Any:
    """A loss that hides `HIDDEN_SHARE` of the tokens behind the mask token and predicts them.

    Its random numbers are those of the micro-batch, so a resumed run hides the same tokens.
    """

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        batch = by_name(batch)
        tokens = batch["input_ids"]
        hidden = torch.rand(tokens.shape, device=tokens.device) < HIDDEN_SHARE
        hidden[..., 0] = True  # a micro-batch without any hidden token would have no loss
        seen = torch.where(hidden, torch.full_like(tokens, mask_token), tokens)
        labels = tokens.masked_fill(~hidden, IGNORED)
        return task_loss(model, {**batch, "input_ids": seen, "labels": labels}, causal=False)

    return loss


def mask_token_of(config: Any, folder: str) -> int:
    """The mask token of the folder's tokenizer; for planning without one, the last token of the vocabulary."""
    from pathlib import Path

    folder = folder_of(folder, WORDS)
    if not any((Path(folder) / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return vocabulary_of(text_of(config), folder) - 1
    from surefoot.finetuning.local_tokenizer import read_tokenizer

    found = read_tokenizer(folder).mask_token_id
    if found is None:
        raise RecipeError(f"the tokenizer in {folder} has no mask token, which task=masked needs")
    return int(found)
