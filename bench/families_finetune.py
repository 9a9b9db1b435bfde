"""Families of fine-tuning: eight architectures of transformers, each by every method of the recipe `finetune`.

A case is `finetune/llama-qlora`, or `finetune/llama-qlora-dpo` with preferences instead of texts. Its config is that of
`families_transformers.py`, written to a folder without weights: a plan needs none, and the real steps that it is
compared with begin with random ones.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from families_transformers import NEEDS, shrunk

from surefoot import Recipe, load_recipe

ARCHITECTURES = {
    "llama": "causal",
    "gpt2": "causal",
    "mixtral": "causal",
    "bert": "masked",
    "t5": "seq2seq",
    "vit": "classification",
    "whisper": "seq2seq",
    "wav2vec2": "classification",
}
"""Model type and task: two decoders, a mixture of experts, an encoder, an encoder-decoder, vision, and twice speech."""
METHODS = ("full", "lora", "dora", "qlora", "frozen", "bitfit")
WITHOUT = {
    "llama-bitfit": "no biases",
    "mixtral-bitfit": "no biases",
    "t5-bitfit": "no biases",
    "gpt2-qlora": "its layers are not torch.nn.Linear",
}
"""Pairs that the recipe refuses, and why."""
TARGETS = {"mixtral-dora": "q_proj,k_proj,v_proj,o_proj"}
"""peft has no DoRA for experts that are stacked in one parameter, which are among all linear layers."""
PREFERENCES = ("llama", "gpt2", "mixtral")
"""The decoders, which also learn by DPO."""
DPO, EIGHT_BIT = "-dpo", "-8bit"
BY_EIGHT_BIT = ("llama-full", "gpt2-full", "bert-full", "llama-lora")
"""Pairs that are also trained by AdamW with states of 8 bits."""
WITHIN_PCT, FOUR_BIT_PCT = 0.02, 0.5


def case_names() -> list[str]:
    pairs = [f"{family}-{method}" for family in ARCHITECTURES for method in METHODS]
    pairs = [pair for pair in pairs if pair not in WITHOUT]
    preferences = [f"{pair}{DPO}" for pair in pairs if pair.startswith(PREFERENCES)]
    eight_bit = [f"{pair}{EIGHT_BIT}" for pair in BY_EIGHT_BIT]
    return [f"finetune/{pair}" for pair in (*pairs, *preferences, *eight_bit)]


def within_pct(case: str) -> float:
    """How far a plan may be off."""
    return FOUR_BIT_PCT if "-qlora" in case else WITHIN_PCT


def case_recipe(case: str) -> Recipe:
    family, _, method = case.removeprefix("finetune/").removesuffix(DPO).removesuffix(EIGHT_BIT).rpartition("-")
    words = [f"model={folder_of(family)}", f"task={ARCHITECTURES[family]}", f"method={method}", "init_from=none"]
    words += ["loss=dpo"] if case.endswith(DPO) else []
    words += ["optimizer=adamw8bit"] if case.endswith(EIGHT_BIT) else []
    targets = TARGETS.get(f"{family}-{method}")
    words += [f"targets={targets}"] if targets else []
    return load_recipe("finetune", [*words, "context=64", "micro_batch_size=8", "rank=8"])


@functools.cache
def folder_of(family: str) -> Path:
    """A folder with the config of a small model."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    folder = Path(tempfile.mkdtemp(prefix="surefoot-finetune-"))
    shrunk(CONFIG_MAPPING[family], NEEDS.get(family, {})).save_pretrained(folder)
    return folder
