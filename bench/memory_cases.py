"""The cases: every model in every setting in which it can be trained, each named `model/setting`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import memory_models
import memory_models_held_out
from torch import nn

from surefoot import Recipe
from surefoot.planning.repeated_blocks import find_repeats

MODELS: dict[str, Callable[..., Recipe]] = {**memory_models.MODELS, **memory_models_held_out.MODELS}
FULL_SIZE: dict[str, Callable[..., Recipe]] = {"gpt2_124m": memory_models.gpt2_124m}
SKIPPED = memory_models.SKIPPED | memory_models_held_out.SKIPPED


@dataclass(frozen=True)
class Setting:
    """How a model is trained."""

    recompute: str = "none"
    optimizer: str = "adamw"
    precision: str = "32-true"
    micro_batches: int = 1
    max_grad_norm: float | None = None


SETTINGS = {
    "fp32": Setting(),
    "bf16-mixed": Setting(precision="bf16-mixed"),
    "16-mixed": Setting(precision="16-mixed"),
    "recompute-full": Setting(recompute="full"),
    "recompute-selective": Setting(recompute="selective"),
    "accumulate-4": Setting(micro_batches=4),
    "sgd": Setting(optimizer="sgd"),
    "adamw-foreach": Setting(optimizer="adamw-foreach"),
    "adamw-fused": Setting(optimizer="adamw-fused"),
    "adafactor": Setting(optimizer="adafactor"),
    "everything": Setting("full", "adamw-foreach", "bf16-mixed", micro_batches=2, max_grad_norm=1.0),
}
QUICK = (
    "deep_linear/adamw-fused",
    "resnet/bf16-mixed",
    "vit/recompute-selective",
    "gpt_sdpa/16-mixed",
    "lstm/fp32",
    "hf_llama/recompute-full",
    "routed_moe/fp32",
    "unet/everything",
    "convnext/fp32",
    "vae/adamw-foreach",
    "translator/bf16-mixed",
    "tagger/fp32",
    "graph/adafactor",
    "dlrm/accumulate-4",
    "two_towers/sgd",
    "hf_gpt2/recompute-full",
)


def model_of(case: str) -> str:
    return case.partition("/")[0]


def setting_of(case: str) -> Setting:
    return SETTINGS[case.partition("/")[2]]


def case_names() -> list[str]:
    """All cases but those of full size, which take a minute each."""
    return [f"{model}/{setting}" for model in MODELS for setting in SETTINGS if (model, setting) not in SKIPPED]


def case_recipe(case: str) -> Recipe:
    """The recipe of a case."""
    how = setting_of(case)
    recipe = (MODELS | FULL_SIZE)[model_of(case)](recompute=how.recompute, optimizer=how.optimizer)
    return replace(
        recipe,
        precision=how.precision,
        global_batch_tokens=how.micro_batches * recipe.micro_batch_size * recipe.tokens_per_sample,
        max_grad_norm=how.max_grad_norm,
        name=case,
    )


def deepened(recipe: Recipe, times: int) -> Recipe:
    """The same recipe with its alike blocks repeated so many times; one without such blocks stays as it is."""

    def model() -> nn.Module:
        built = recipe.model()
        configs = [module.config for module in built.modules() if hasattr(module, "config")]
        for run in find_repeats(built, fewest=2).runs:
            children = list(run.container.children())
            end = run.first + run.times * run.kinds
            shared = {id(config): config for config in configs}
            kinds = [children[run.first + n % run.kinds] for n in range((times - run.times) * run.kinds)]
            more = [copy.deepcopy(block, dict(shared)) for block in kinds]
            for position, block in enumerate(more, end):
                renumber(block, position)
            run.container._modules.clear()
            for position, child in enumerate([*children[:end], *more, *children[end:]]):
                run.container.add_module(str(position), child)
        return built

    return replace(recipe, model=model)


def renumber(block: nn.Module, position: int) -> None:
    """Hugging Face's layers know their position, and its models how many layers they have."""
    for module in block.modules():
        if hasattr(module, "layer_idx"):
            module.layer_idx = position
        if hasattr(getattr(module, "config", None), "num_hidden_layers"):
            module.config.num_hidden_layers = position + 1
