"""Text by transformers' own `generate`: for its models, and for a folder that holds one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import RunError, first_line
from surefoot.exports.decode import Sampling
from surefoot.exports.formats import need
from surefoot.finetuning.local_tokenizer import try_out


def is_its_model(model: torch.nn.Module) -> bool:
    """Whether a model is one of transformers that makes text."""
    return hasattr(model, "generate") and hasattr(model, "generation_config")


def is_its_folder(path: Path) -> bool:
    """Whether a folder is one of Hugging Face, and no run."""
    return (path / "config.json").is_file() and not (path / "run.json").exists()


def open_folder(path: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder. Code in the folder is not executed, and nothing is downloaded."""
    library = need("transformers", "hf", "text from a Hugging Face folder")
    if not any(path.glob("*.safetensors")):
        raise RunError(f"{path} holds no .safetensors; write the model with save_pretrained, which makes one")
    how = {"local_files_only": True, "trust_remote_code": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.logging.disable_progress_bar()
            model = library.AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, **how).eval()
            tokenizer = library.AutoTokenizer.from_pretrained(path, **how)
            try_out(tokenizer)
            return model, tokenizer
    except Exception as error:  # a wrong field can make transformers raise anything
        raise RunError(f"transformers cannot load {path}: {first_line(error)}") from error


def make_tokens(
    model: Any,
    prompt: list[int],
    *,
    tokens: int,
    sampling: Sampling,
    cached: bool,
    ends: frozenset[int],
    put: Callable[[int], None],
) -> None:
    """Calls `put` with each new token, until one ends the text for the model's own config or is in `ends`.

    `generate` draws from torch's generator, which is seeded here.
    """
    if not prompt:
        raise RunError("the prompt is empty; give it at least one token to go on from")
    draws = sampling.temperature > 0
    chosen: dict[str, Any] = {"do_sample": draws}
    if draws:
        chosen |= {"temperature": sampling.temperature, "top_k": sampling.top_k or 0, "top_p": sampling.top_p or 1.0}
    if stops := sorted(ends | _ends_of(model)):
        chosen["eos_token_id"] = stops
    torch.manual_seed(sampling.seed)
    given = torch.tensor([prompt], device=model.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=tokens,
            use_cache=cached,
            pad_token_id=0,
            streamer=_Streamer(put),
            **chosen,
        )


def _ends_of(model: Any) -> set[int]:
    """The tokens that end a text: one, several or none in a config."""
    found = model.generation_config.eos_token_id
    return set(found) if isinstance(found, list | tuple) else set() if found is None else {found}


class _Streamer:
    """What transformers hands each token to. The first call has the prompt."""

    def __init__(self, put: Callable[[int], None]) -> None:
        self._put, self._began = put, False

    def put(self, value: torch.Tensor) -> None:
        if self._began:
            for token in value.flatten().tolist():
                self._put(token)
        self._began = True

    def end(self) -> None:
        """Nothing is kept back."""
