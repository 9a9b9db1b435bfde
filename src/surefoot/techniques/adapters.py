"""Adapters: a recipe's `adapt` changes a model after it has its first weights: adapters, frozen and 4-bit layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from surefoot.recipe.recipe import Recipe


def parameter_count(model: nn.Module) -> int:
    """The number of all parameters, including frozen ones. Of 4-bit layers it counts weights, not bytes."""
    stored = sum(each.numel() for each in model.parameters())
    return stored + sum(module.whole_numel - module.weight.numel() for module in four_bit_layers(model))


def base_parameter_count(model: nn.Module) -> int:
    """The number of all parameters without those of adapters."""
    return parameter_count(model) - sum(each.numel() for name, each in model.named_parameters() if _is_added(name))


def four_bit_layers(model: nn.Module) -> list[Any]:
    """The layers that hold two weights in a byte."""
    return [module for module in model.modules() if is_four_bit(module)]


def is_four_bit(module: nn.Module) -> bool:
    """Whether a layer holds two weights in a byte."""
    return hasattr(module, "whole_numel")


def explain(model: nn.Module, recipe: Recipe) -> list[str]:
    """What `adapt` made of the model: trained and frozen parameters, adapters, and the bytes of 4-bit layers."""
    if recipe.adapt is None:
        return []
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    count, whole = sum(each.numel() for each in trained.values()), parameter_count(model)
    said = [f"trained: {count:,} of {whole:,} parameters ({count / whole:.3%}), in {len(trained)} tensors"]
    if count < whole:
        said.append(f"frozen: {whole - count:,} parameters: they have no gradient and no optimizer state")
    return [*said, *_adapters(trained), *_four_bits(model)]


def _adapters(trained: dict[str, nn.Parameter]) -> list[str]:
    added = {name: each for name, each in trained.items() if _is_added(name)}
    if not added:
        return []
    count, size = sum(each.numel() for each in added.values()), sum(each.nbytes for each in added.values())
    layers = {name.partition(".lora_")[0] for name in added}
    kinds = sorted({name.rpartition(".")[2] for name in layers})
    return [f"adapter: {count:,} parameters, {size:,} bytes, on {len(layers)} layers: {', '.join(kinds)}"]


def _is_added(name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return ".lora_" in name


def _four_bits(model: nn.Module) -> list[str]:
    layers = four_bit_layers(model)
    if not layers:
        return []
    weights = sum(module.whole_numel for module in layers)
    size = sum(each.nbytes for module in layers for each in (module.weight, *module.buffers(recurse=False)))
    return [f"4 bits: {weights:,} parameters of {len(layers)} layers in {size:,} bytes with their scales"]
