"""The adapters of a trained model as peft writes them, and the model with its adapters merged into its weights."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from surefoot.errors import RunError
from surefoot.exports.example_call import Call
from surefoot.exports.outputs import difference
from surefoot.finetuning.methods import peft_unwarned
from surefoot.plain_files import make_folder, refusals_of, sync_file, sync_folder

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
MERGED_TOLERANCE = 1e-4
"""Largest allowed difference between two outputs in float32, as a share of the largest output."""
COARSE_TOLERANCE = 3e-2
"""The same where weights or products are rounded to 8 or 11 bits."""


@dataclass(frozen=True)
class WrittenAdapter:
    """A folder that peft reads, its bytes, and how far the model read back from it differs."""

    folder: Path
    size_bytes: int
    difference: float


def has_adapters(model: nn.Module) -> bool:
    """Whether peft made the model."""
    return hasattr(model, "peft_config")


def write_adapter(model: nn.Module, call: Call, folder: Path) -> WrittenAdapter | None:
    """Writes the adapters in peft's format and compares the base model with them, read back. None without adapters."""
    if not has_adapters(model):
        return None
    import peft

    adapted: Any = model
    state = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    make_folder(folder)
    with refusals_of(folder):
        adapted.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # an empty form for a model card
        for name in (WEIGHTS, CONFIG):
            sync_file(folder / name)
        sync_folder(folder)
    base = without_adapters(copy.deepcopy(adapted))
    with peft_unwarned():
        again = peft.PeftModel.from_pretrained(base, str(folder), local_files_only=True).eval()
    read = peft.get_peft_model_state_dict(again, save_embedding_layers=False)
    if read.keys() != state.keys():
        return WrittenAdapter(folder, 0, float("inf"))
    found = difference(call.of(model), call.of(again))
    return WrittenAdapter(folder, sum(os.path.getsize(folder / name) for name in (WEIGHTS, CONFIG)), found)


def without_adapters(adapted: Any) -> nn.Module:
    """The base model alone. What the adapters were made of is lost."""
    base: nn.Module = adapted.unload() if hasattr(adapted, "unload") else adapted.get_base_model()
    if hasattr(base, "peft_config"):
        del base.peft_config
    return base


def stored_format(precision: str) -> torch.dtype:
    """The number format of merged weights."""
    return torch.bfloat16 if precision == "bf16-true" else torch.float32


def merged_tolerance(precision: str) -> float:
    """How far a merged model may differ from the one with adapters."""
    return MERGED_TOLERANCE if precision == "32-true" else COARSE_TOLERANCE


def merged(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model with its adapters in its weights, and without 4-bit layers, in one number format."""
    if not has_adapters(model):
        return model
    import peft

    adapted: Any = model
    if not hasattr(adapted, "merge_and_unload"):  # what peft puts before the tokens, and not into layers
        raise RunError(
            f"an adapter of the kind {adapted.active_peft_config.peft_type.value} changes no weights, so it cannot be "
            "merged into them; use the folder adapter/ with peft, or `surefoot export` with --format pt2 or onnx"
        )
    state, config = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False), adapted.peft_config["default"]
    if getattr(adapted.get_base_model(), "is_loaded_in_4bit", False):
        from surefoot.finetuning.four_bit import dequantise

        base: Any = without_adapters(adapted)
        dequantise(base, dtype)
        base.is_loaded_in_4bit = False
        with peft_unwarned():
            adapted = peft.get_peft_model(base, config)
        peft.set_peft_model_state_dict(adapted, state)
        adapted.eval()
    try:
        return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise RunError(f"peft cannot merge the adapters: {error}") from error
