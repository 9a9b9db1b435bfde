"""Where the first weights of a model came from, if its config tells."""

from __future__ import annotations

from typing import Any

from torch import nn

from surefoot.checks.engine.rerun import inner


def config_of(model: nn.Module) -> Any:
    """The config of a transformers model, also inside adapters, DDP or a module of one's own; None if there is none."""
    for each in inner(model).modules():
        config = getattr(each, "config", None)
        if config is not None and hasattr(config, "_name_or_path"):
            return config
    return None


def origin(model: nn.Module) -> str:
    """The folder or repository that `from_pretrained` read; empty for a model that was built from a config."""
    return str(getattr(config_of(model), "_name_or_path", "") or "")
