"""FP8: linear layers multiply in 8-bit floating point, by torchao's float8.

| `precision`   | scales                    | formats                                              |
|---------------|---------------------------|------------------------------------------------------|
| `fp8`         | one for each tensor       | e4m3 for inputs and weights, e5m2 for gradients      |
| `fp8-rowwise` | one for each row or column | e4m3 for all                                         |

Everything else is as with `bf16-mixed`: parameters, gradients and optimizer state in float32, other operators in
bfloat16. A layer casts its input and its weight in forward, and its gradient, input and weight once more in backward.
It keeps its input in bfloat16, so FP8 saves no activation memory.

Sharded ranks gather weights of `fp8` as FP8, half the bytes of bfloat16: each rank casts its shard with the scale of
the whole weight. `fp8-rowwise` gathers bfloat16, which torchao then casts.

A layer is not converted if the kernel cannot take it, if casting it gains nothing, or if it is the last one: the logits
stay in bfloat16, as in torchtitan.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from surefoot.errors import MissingPackage, RecipeError, WorldError, installing
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.adapters import four_bit_layers
from surefoot.world import cuda
from surefoot.world.world import World

SCALES = {"fp8": "tensorwise", "fp8-rowwise": "rowwise"}
"""torchao's name of each precision."""

MULTIPLE = 16
"""The kernels of FP8 products take only sizes that this number divides."""

NVIDIA, AMD = (8, 9), (9, 4)
"""The first compute capabilities with FP8 units: Ada, and gfx942."""


@dataclass(frozen=True)
class Conversion:
    """The linear layers that multiply in FP8, and why the others do not."""

    precision: str
    names: tuple[str, ...]
    kept: dict[str, str]
    gathered: bool = False
    """Whether sharded ranks gather these weights in FP8."""

    def explain(self) -> list[str]:
        """What was converted, what was not and why, and what FP8 does not do."""
        count = len(self.names) + len(self.kept)
        said = f"precision={self.precision}: {len(self.names)} of {count} linear layers multiply in FP8, with "
        said += f"{SCALES[self.precision]} scales; the rest is as with bf16-mixed"
        gathered = ["ranks gather the weights of these layers in FP8, and others in bfloat16"] if self.gathered else []
        return [
            said,
            *self._others(),
            *gathered,
            "FP8 saves no activation memory: layers keep their inputs in bfloat16",
        ]

    def _others(self) -> Iterator[str]:
        reasons = Counter(self.kept.values())
        for reason, count in reasons.items():
            first = next(name for name, why in self.kept.items() if why == reason)
            named = first if count == 1 else f"{count} layers, {first} first"
            yield f"not in FP8: {named}: {reason}"


def apply(model: nn.Module, recipe: Recipe, world: World, *, sharded: bool) -> Conversion | None:
    """Converts the linear layers of a model in place, if the recipe's precision is FP8. Parameters keep their names."""
    if not recipe.multiplies_in_fp8:
        return None
    _refuse_device(recipe, world)
    if four_bit_layers(model):
        raise RecipeError(
            f"precision={recipe.precision} does not work with 4-bit layers, which are not multiplied as they are "
            "stored; use precision=bf16-mixed"
        )
    kept = _not_converted(model)
    names = tuple(name for name, _ in _linear(model) if name not in kept)
    if not names:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(kept.items())[:3]) or "it has none"
        raise RecipeError(
            f"precision={recipe.precision} converts no linear layer of {type(model).__name__}: {reasons}; "
            "use precision=bf16-mixed"
        )
    gathered = sharded and recipe.precision == "fp8"
    with _quiet():
        float8 = _float8(recipe.precision)
        config = float8.Float8LinearConfig.from_recipe_name(SCALES[recipe.precision])
        config = replace(config, enable_fsdp_float8_all_gather=gathered)
        float8.convert_to_float8_training(model, module_filter_fn=lambda _, name: name in names, config=config)
    for name in names:
        model.get_submodule(name).register_forward_pre_hook(_in_format_of_autocast)
        model.get_submodule(name).register_forward_pre_hook(_refuse_rows)
    return Conversion(recipe.precision, names, kept, gathered)


@contextmanager
def scales_known(model: nn.Module, conversion: Conversion | None) -> Iterator[None]:
    """A context in which sharded weights keep their scales, which one all-reduce finds. They must not change inside.

    Outside of it, each weight would be measured before each gathering, by an all-reduce of its own.
    """
    if conversion is None or not conversion.gathered:
        yield
        return
    _float8(conversion.precision).precompute_float8_dynamic_scale_for_fsdp(model)
    try:
        yield
    finally:
        with torch.no_grad():
            for name in conversion.names:
                weight: Any = model.get_submodule(name).weight
                weight.to_local()._precomputed_scale = None


def _refuse_device(recipe: Recipe, world: World) -> None:
    """Raises if the device of a run or of a plan has no FP8 units. A CPU computes FP8 products, slowly."""
    if world.gpu is not None:
        name, capability, is_amd = world.gpu.name, world.gpu.capability, bool(world.gpu.architecture)
    elif world.device.type == "cuda":
        name, capability = cuda.device_name(world.device), cuda.capability(world.device)
        is_amd = torch.version.hip is not None
    elif world.device.type == "cpu":
        return
    else:
        raise WorldError(f"precision={recipe.precision} runs on CUDA, ROCm and CPUs, not on {world.device.type}")
    if capability < (AMD if is_amd else NVIDIA):
        units = "NVIDIA's begin with Ada and Hopper, AMD's with MI300"
        raise WorldError(f"{name} has no FP8 units; {units}; use precision=bf16-mixed")


def _linear(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def _not_converted(model: nn.Module) -> dict[str, str]:
    """The linear layers that stay as they are, each with the reason."""
    users = Counter(id(each) for module in model.modules() for each in module.parameters(recurse=False))
    layers, found = _linear(model), dict[str, str]()
    for name, module in layers:
        weight = module.weight
        if name == layers[-1][0]:
            found[name] = "the last layer stays in bfloat16"
        elif type(module) is not nn.Linear:
            found[name] = f"{type(module).__name__} has a forward of its own"
        elif users[id(weight)] > 1:
            found[name] = "another module shares its weight"
        elif not weight.requires_grad:
            found[name] = "its weight is frozen, and torchao computes the gradient of each"
        elif any(size % MULTIPLE for size in weight.shape):
            found[name] = f"{' x '.join(map(str, weight.shape))} is not divisible by {MULTIPLE}"
    return found


def _in_format_of_autocast(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The input of a converted layer in autocast's format: torchao looks for autocast only on CUDA."""
    given, *others = args
    if torch.is_autocast_enabled(given.device.type):
        given = given.to(torch.get_autocast_dtype(given.device.type))
    return (given, *others)


def _refuse_rows(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Refuses a number of rows that the product for the weight's gradient, which sums over them, does not take.

    CUDA would fail in backward, a CPU would not.
    """
    given = args[0]
    rows = given.numel() // given.shape[-1]
    if torch.is_grad_enabled() and rows % MULTIPLE:
        raise RecipeError(
            f"FP8 products need a number of rows that {MULTIPLE} divides, and a linear layer gets {rows} "
            f"{list(given.shape)}: change micro_batch_size or the context, or use precision=bf16-mixed"
        )


def _float8(precision: str) -> Any:
    try:
        return importlib.import_module("torchao.float8")
    except ImportError as error:
        raise MissingPackage(f"precision={precision} needs torchao: {installing('quantize', 'torchao')}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """torchao logs which of its binaries it could not load; float8 needs none of them."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
