"""Layers that behave differently in evaluation mode, and the mode they are in."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def mode_dependent(module: nn.Module) -> bool:
    """Does evaluation mode change what this module computes?"""
    if isinstance(module, _DROPOUT):
        return module.p > 0
    if isinstance(module, _BATCH_NORM):
        return module.track_running_stats
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0


def is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BATCH_NORM)


def switching(model: nn.Module) -> tuple[str, ...]:
    """The layers of a model that depend on its mode."""
    return tuple(_told(*each) for each in model.named_modules() if mode_dependent(each[1]))


def resting(model: nn.Module) -> tuple[str, ...]:
    """Those of them in evaluation mode whose neighbouring parameters are trained."""
    found = [each for each in model.named_modules() if mode_dependent(each[1]) and not each[1].training]
    return tuple(_told(name, layer) for name, layer in found if _is_trained(model, name, layer))


def active(model: nn.Module) -> tuple[str, ...]:
    """Those of them in training mode. Skips layers without momentum: `update_bn` uses them to collect statistics."""
    found = [each for each in model.named_modules() if mode_dependent(each[1]) and each[1].training]
    return tuple(_told(*each) for each in found if getattr(each[1], "momentum", 0.1) is not None)


def dropping(model: nn.Module) -> tuple[str, ...]:
    """Modules with a dropout rate of their own, such as attention."""
    return tuple(_told(*each) for each in model.named_modules() if any(_rates(each[1])))


def _is_trained(model: nn.Module, name: str, layer: nn.Module) -> bool:
    """Is a parameter of this layer trained? For a layer without parameters: one of the module around it?"""
    own = list(layer.parameters()) or list(model.get_submodule(name.rpartition(".")[0]).parameters())
    return any(each.requires_grad for each in own)


def _rates(module: nn.Module) -> Iterator[bool]:
    yield from ("dropout" in name and isinstance(rate, float) and rate > 0 for name, rate in vars(module).items())


def _told(name: str, module: nn.Module) -> str:
    return f"{name} ({type(module).__name__})".lstrip()
