"""hf: a Hugging Face model from the config.json in a local folder, with random weights and random tokens.

For planning and profiling, not for learning. Needs `pip install 'surefoot[hf]'`. Downloads nothing.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.recipe.ranges import Count, Rate
from surefoot.recipe.recipe import Precision
from surefoot.records.codec import parse, read_plain_file


def model_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The model's own loss, with the tokens as labels."""
    tokens = batch[0]
    return model(input_ids=tokens, labels=tokens).loss


def read_config(folder: str) -> Any:
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise RecipeError("the recipe hf needs transformers: pip install 'surefoot[hf]'") from error
    if not (Path(folder) / "config.json").is_file():
        raise RecipeError(f"no config.json in {folder}; set config to the folder that holds it")
    try:
        parse(read_plain_file(Path(folder) / "config.json", error=RecipeError))
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except RecipeError:
        raise
    except Exception as error:  # a wrong field can make transformers raise anything
        raise RecipeError(
            f"{Path(folder) / 'config.json'} is not a config that transformers can read: {error}"
        ) from error


def build(config: Any) -> nn.Module:
    """The architecture that the config names, with its language-modelling head."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    kinds = (AutoModelForSeq2SeqLM,) if config.is_encoder_decoder else (AutoModelForCausalLM, AutoModelForMaskedLM)
    for kind in kinds:
        if type(config) in kind._model_mapping:
            return _built(kind, config)
    raise RecipeError(f"{config.model_type} has no language-modelling head in transformers")


def _built(kind: Any, config: Any) -> nn.Module:
    config.torch_dtype = torch.get_default_dtype()  # that of the recipe's precision; the config may name another
    try:
        return kind.from_config(config, trust_remote_code=False)
    except Exception as error:
        said = f"transformers cannot build the {config.model_type} of {config.name_or_path}/config.json"
        raise RecipeError(f"{said}: {type(error).__name__}: {error}") from error


def overruled(config: Any, precision: Precision) -> str:
    """Says so if the config names another format of its parameters than the precision. `precision` decides."""
    named = str(getattr(config, "torch_dtype", None) or "").removeprefix("torch.")
    stored = "bfloat16" if precision == "bf16-true" else "float32"
    if named in ("", stored):
        return ""
    other = "; precision=bf16-true takes bfloat16" if named == "bfloat16" else ""
    return f"; parameters in {stored} (precision={precision}), not in the config's {named}{other}"


def hf(
    config: str,
    context: Count = 512,
    micro_batch_size: Count = 1,
    lr: Rate = 1e-4,
    max_steps: Count = 10,
    precision: Precision = "32-true",
) -> Recipe:
    read = read_config(config)
    read.use_cache = False
    vocabulary, samples = getattr(read, "vocab_size", None), 4 * micro_batch_size
    if type(vocabulary) is not int or vocabulary < 1:
        raise RecipeError(f"{Path(config) / 'config.json'} gives vocab_size={vocabulary!r}; it must be at least 1")
    return Recipe(
        model=lambda: build(read),
        data=lambda: TensorDataset(torch.randint(0, vocabulary, (samples, context))),
        loss=model_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=micro_batch_size,
        tokens_per_sample=context,
        max_steps=max_steps,
        precision=precision,
        about=f"nothing: {read.model_type} from {config} on random tokens, for planning and profiling"
        + overruled(read, precision),
    )
