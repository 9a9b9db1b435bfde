"""An exported file in place of the recipe's model, so that the recipe's own loss and metrics score it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import MissingPackage, RunError, first_line
from surefoot.exports import aoti, onnx_file
from surefoot.exports.documents_apart import Answer, documents_apart, holds_packed
from surefoot.exports.weights_file import load_weights, quantization_of
from surefoot.recipe.recipe import SETTINGS, Recipe


def with_weights(recipe: Recipe, file: Path) -> Recipe:
    """The recipe with a model that has the weights of a file. They are what was averaged, so nothing is averaged."""

    def filled(model: torch.nn.Module) -> torch.nn.Module:
        whole = model if recipe.adapt is None else recipe.adapt(model)
        load_weights(whole, file)
        if not any(each.requires_grad for each in whole.parameters()):
            whole.register_parameter("unused", _unused())
        return whole

    if quantization_of(file) is None:
        return replace(recipe, adapt=filled, ema=None)
    return replace(recipe, adapt=filled, **_untrained(recipe))


def with_program(recipe: Recipe, answer: Answer) -> Recipe:
    """The recipe with a program in place of its model. What belongs to training is left out."""
    if recipe.loss is None:
        raise RunError(f"{recipe.name} has a step of its own and no loss, so only its weights can be scored")
    return replace(recipe, model=lambda: Program(answer), adapt=None, float32=None, **_untrained(recipe))


def _untrained(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe whose model is only called. FP8 converts layers that are trained."""
    fields = {name: each.default for name, each in SETTINGS.items() if each.part != "run"}
    fields["precision"] = "bf16-mixed" if recipe.multiplies_in_fp8 else recipe.precision
    return fields | {"step": None, "optimizer": _optimizer, "schedule": None, "dp_shard": 1}


class NotInProgram(RunError, AttributeError):
    """The recipe reads an attribute of its model, which a program has not."""


class Program(torch.nn.Module):
    """Called like the model. Dicts that it returns can be read like data classes, as in `output.logits`."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = (answer,)  # in a tuple, so that it is no part of this module
        self.unused = _unused()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._answer[0]
        made = documents_apart(answer, kwargs) if holds_packed(kwargs) else answer(args, kwargs)
        return _Named(made) if isinstance(made, dict) else made

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise NotInProgram(
                f"the recipe uses the model's {name!r}, and a program can only be called; score model.safetensors"
            ) from None

    def __getitem__(self, part: Any) -> Any:
        return self.__getattr__(str(part))


class _Named(dict[str, Any]):
    """A dict whose items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.0)


def _unused() -> torch.nn.Parameter:
    """An optimizer and DDP need a parameter that can be trained."""
    return torch.nn.Parameter(torch.zeros(()))


def program_of(file: Path, *, trusted: bool) -> Answer:
    """Reads a program. An ONNX file is data. A `.pt2` is code, so it is read only if the user trusts it."""
    if file.suffix not in (".pt2", ".onnx"):
        raise RunError(f"{file} is neither .safetensors nor .onnx nor .pt2; name one of these")
    if file.suffix == ".pt2" and not trusted:
        raise RunError(
            f"{file} is a program, and torch executes pickles or machine code in it; score model.safetensors, or use "
            "--trust-run if you made this file yourself"
        )
    try:
        program = _opened(file)
    except MissingPackage:
        raise
    except Exception as error:  # each reader raises many types
        raise RunError(
            f"{file} is not a program that can be read here: {first_line(error)}; export the run again"
        ) from error

    def answer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return program(args, kwargs)
        except Exception as error:  # a guard of the program, or another call than the one it was made for
            raise RunError(
                f"{file} does not take this call of the recipe: {first_line(error)}; score model.safetensors, or "
                "export the run again and see which sizes are fixed"
            ) from error

    return answer


def _opened(file: Path) -> Answer:
    if file.suffix == ".onnx":
        return onnx_file.session_of(file)
    loaded = aoti.package_of(file) if file.name.endswith(aoti.SUFFIX) else torch.export.load(file).module()
    return lambda args, kwargs: loaded(*args, **kwargs)
