"""Weights of a Hugging Face folder by the names of the model, where transformers stores them under others.

Mixtures of experts, for example, stand in files expert by expert and in the model as one tensor.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from surefoot.randomness import kept


class ConvertedWeights:
    """The tensors of a folder as transformers itself loads them. It takes the memory of a second model."""

    def __init__(self, model: Any, path: str) -> None:
        self.path = path
        with kept(), torch.device("cpu"):
            loaded, told = type(model).from_pretrained(
                path,
                config=copy.deepcopy(model.config),
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        self.unusual = bool(told["mismatched_keys"])
        absent = set(told["missing_keys"])
        self._tensors = {name: each for name, each in loaded.state_dict().items() if name not in absent}
        unused = dict.fromkeys(told["unexpected_keys"], ())
        self.shapes: dict[str, tuple[int, ...]] = {
            **unused,
            **{name: tuple(each.shape) for name, each in self._tensors.items()},
        }

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def equal(self, names: list[str]) -> bool:
        """Whether these tensors, one in the model, hold the same values."""
        return all(torch.equal(self.tensor(names[0]), self.tensor(name)) for name in names[1:])


def converted(model: Any, path: str) -> ConvertedWeights | None:
    """The weights of a Hugging Face folder. None if transformers did not make the model, or cannot load the folder."""
    if not (hasattr(model, "from_pretrained") and (Path(path) / "config.json").is_file()):
        return None
    try:
        found = ConvertedWeights(model, path)
    except Exception:  # what does not fit is listed by names as they stand in the files
        return None
    return None if found.unusual else found
