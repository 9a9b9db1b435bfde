"""Models of transformers by their config, from a folder or the hub. No code of a folder is executed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from surefoot.errors import RecipeError, installing
from surefoot.finetuning.hub import folder_of, is_of_hub
from surefoot.finetuning.quiet import quiet
from surefoot.recipe.recipe import Precision
from surefoot.records.codec import parse, read_plain_file


def read_config(folder: str, *, recipe: str, knob: str) -> Any:
    """The config of a folder, or of a model of the hub. `recipe` and `knob` are named in error messages."""
    try:
        with quiet():  # its models import torchao, which tells of kernels for other machines
            importlib.import_module("transformers.modeling_utils")
        from transformers import AutoConfig
    except ImportError as error:
        raise RecipeError(f"the recipe {recipe} needs transformers: {installing('hf', 'transformers')}") from error
    name, folder = folder, folder_of(folder)
    if not (Path(folder) / "config.json").is_file():
        raise RecipeError(f"no config.json in {folder}; set {knob} to the folder that holds it")
    try:
        parse(read_plain_file(Path(folder) / "config.json", error=RecipeError))
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config.name_or_path = name.partition("@")[0] if is_of_hub(name) else folder
        return config
    except RecipeError:
        raise
    except Exception as error:  # a wrong field can make transformers raise anything
        raise RecipeError(
            f"{Path(folder) / 'config.json'} is not a config that transformers can read: {error}"
        ) from error


def built(kind: Any, config: Any) -> nn.Module:
    """A model of one of transformers' Auto classes, with random weights in the recipe's number format."""
    setattr(config, _dtype_name(config), torch.get_default_dtype())  # the precision's; the config may name another
    try:
        return kind.from_config(config, trust_remote_code=False)
    except Exception as error:
        said = f"transformers cannot build the {config.model_type} of {config.name_or_path}/config.json"
        raise RecipeError(f"{said}: {type(error).__name__}: {error}") from error


def overruled(config: Any, precision: Precision, held: Precision) -> str:
    """Says so if the config names another format of its parameters than that of `held`. `precision` decides."""
    named = str(getattr(config, _dtype_name(config), None) or "").removeprefix("torch.")
    stored = "bfloat16" if held == "bf16-true" else "float32"
    if named in ("", stored):
        return ""
    other = "; precision=bf16-true takes bfloat16" if named == "bfloat16" else ""
    return f"; parameters in {stored} (precision={precision}), not in the config's {named}{other}"


def _dtype_name(config: Any) -> str:
    """transformers 5 calls it `dtype`; before, it was `torch_dtype`."""
    return "dtype" if "dtype" in dir(config) else "torch_dtype"


def vocabulary_of(config: Any, folder: str) -> int:
    """The size of the vocabulary that the config gives."""
    vocabulary = getattr(config, "vocab_size", None)
    if type(vocabulary) is not int or vocabulary < 1:
        raise RecipeError(f"{Path(folder) / 'config.json'} gives vocab_size={vocabulary!r}; it must be at least 1")
    return vocabulary
