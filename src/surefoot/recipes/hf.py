"""hf: a Hugging Face model from a config.json, in a folder or on the hub, with random weights and random tokens.

For planning and profiling, not for learning. Needs transformers. Of the hub it downloads the config only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.finetuning.hub import Model
from surefoot.finetuning.local_folder import built, overruled, read_config, vocabulary_of
from surefoot.recipe.ranges import Count, Rate
from surefoot.recipe.recipe import Precision


def model_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The model's own loss, with the tokens as labels."""
    tokens = batch[0]
    return model(input_ids=tokens, labels=tokens).loss


def build(config: Any) -> nn.Module:
    """The architecture that the config names, with its language-modelling head."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    kinds = (AutoModelForSeq2SeqLM,) if config.is_encoder_decoder else (AutoModelForCausalLM, AutoModelForMaskedLM)
    for kind in kinds:
        if type(config) in kind._model_mapping:
            return built(kind, config)
    raise RecipeError(f"{config.model_type} has no language-modelling head in transformers")


def hf(
    config: Model,
    context: Count = 512,
    micro_batch_size: Count = 1,
    lr: Rate = 1e-4,
    max_steps: Count = 10,
    precision: Precision = "32-true",
) -> Recipe:
    read = read_config(config, recipe="hf", knob="config")
    read.use_cache = False
    vocabulary, samples = vocabulary_of(read, config), 4 * micro_batch_size
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
        + overruled(read, precision, precision),
    )
