"""A Hugging Face folder that plain `transformers` loads offline: config, weights, tokenizer, generation config.

A model of transformers saves itself, with its adapters merged. The built-in `gpt` becomes a GPT-2 and `llama` a Llama;
models of your own that have their layers and names do too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surefoot.exports.adapter import has_adapters
from surefoot.exports.byte_tokenizer import byte_tokenizer
from surefoot.exports.decode import logits_of
from surefoot.exports.first_difference import first_difference
from surefoot.exports.formats import CannotWrite, Job, Runner, need
from surefoot.exports.outputs import tensors
from surefoot.exports.text_of_run import Text, text_of
from surefoot.exports.to_gpt2 import to_gpt2
from surefoot.exports.to_llama import to_llama
from surefoot.exports.transformers_folder import copied_files, write_folder

NAME = "hf"
TOLERANCE = 1e-5
COMPARED = "transformers"
MERGES = True


@dataclass(frozen=True)
class Other:
    """The same model in transformers: its config, its tensors, and which modules of both compute the same."""

    config: Any
    tensors: dict[str, torch.Tensor]
    modules: dict[str, str]


FAMILIES: tuple[Callable[[torch.nn.Module], Any], ...] = (to_gpt2, to_llama)


def write(job: Job, path: Path) -> str:
    """Writes the folder. The note says which class loads it."""
    library = need("transformers", "hf", "a Hugging Face folder")
    library.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(job.merged, library.PreTrainedModel):
            write_folder(job.merged, path, job.recipe.init_from)
            return "; ".join((f"{type(job.merged).__name__}, as transformers saves it", *_added(job, path)))
        other = _other(job.network)
        made = _filled(library, other)
        made.save_pretrained(path)
        text = text_of(job.recipe)
        _generation(library, text, other.config).save_pretrained(path)
        said = _tokenizer(library, text, path)
    return f"{type(made).__name__}; {said}"


def runner(job: Job, path: Path) -> Runner:
    """Loads the folder anew, offline."""
    model = _loaded(job, path)
    if isinstance(job.merged, type(model)):
        return lambda call: call.of(model)
    return lambda call: logits_of(model(call.tensors[0]))


def first_module(job: Job, path: Path, tolerance: float) -> str:
    """Compares the outputs of modules that compute the same on both sides, in order."""
    theirs = _loaded(job, path)
    is_its_own = type(theirs) is type(job.merged)
    pairs = _same(theirs, job.network) if is_its_own else _other(job.network).modules
    here = _outputs(job.network, list(pairs), lambda: job.call.of(job.network))
    there = _outputs(
        theirs, list(pairs.values()), lambda: job.call.of(theirs) if is_its_own else theirs(job.call.tensors[0])
    )
    both = {name: there[pairs[name]] for name in here if pairs[name] in there}
    return first_difference({name: here[name] for name in both}, both, tolerance)


def _other(network: torch.nn.Module) -> Other:
    for family in FAMILIES:
        if (found := family(network)) is not None:
            return Other(*found)
    raise CannotWrite(
        "it is neither a model of transformers nor one with the layers of the built-in gpt or llama; "
        "write model.safetensors and a class of your own"
    )


def _filled(library: Any, other: Other) -> Any:
    dtype = next(iter(other.tensors.values())).dtype
    model = library.AutoModelForCausalLM.from_config(other.config).to(dtype)
    missing, unexpected = model.load_state_dict(other.tensors, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise CannotWrite(f"transformers' model has other tensors: {[*unexpected, *missing][0]}")
    return model.eval()


def _loaded(job: Job, path: Path) -> Any:
    library = need("transformers", "hf", "a Hugging Face folder")
    kind = type(job.merged) if isinstance(job.merged, library.PreTrainedModel) else library.AutoModelForCausalLM
    device = next((each.device for each in job.network.parameters()), torch.device("cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind.from_pretrained(path, local_files_only=True).to(device).eval()


def _generation(library: Any, text: Text, config: Any) -> Any:
    end = text.end_of_document
    return library.GenerationConfig(
        bos_token_id=end, eos_token_id=end, pad_token_id=end or 0, max_length=config.max_position_embeddings
    )


def _tokenizer(library: Any, text: Text, path: Path) -> str:
    if text.kind == "unknown":
        return "no tokenizer: the recipe has no knob `corpus`"
    made = library.PreTrainedTokenizerFast(
        tokenizer_file=str(text.tokenizer) if text.tokenizer else None,
        tokenizer_object=None if text.tokenizer else byte_tokenizer(ends=text.end_of_document is not None),
    )
    made.save_pretrained(path)
    return "tokenizer of the corpus" if text.tokenizer else "a tokenizer of bytes"


def _added(job: Job, path: Path) -> Iterator[str]:
    """What else is in the folder of a model of transformers."""
    if job.merged is not job.network:
        yield "adapters merged"
    if copied := copied_files(path):
        yield f"with {', '.join(copied)}"


def _same(theirs: torch.nn.Module, network: torch.nn.Module) -> dict[str, str]:
    """The same modules by name. peft puts its own around a model."""
    before = "base_model.model." if has_adapters(network) else ""
    return {before + name: name for name, _ in theirs.named_modules() if name}


def _outputs(model: torch.nn.Module, names: list[str], call: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """The first tensor that each of these modules returns, in the order in which they end."""
    seen: dict[str, torch.Tensor] = {}

    def tap(name: str) -> Any:
        return lambda _, __, output: seen.update({name: next(iter(tensors(output).values()))})

    hooks = [model.get_submodule(name).register_forward_hook(tap(name)) for name in names]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    return seen
