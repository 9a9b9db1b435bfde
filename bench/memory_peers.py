"""What other tools say about the memory of the same cases, each by its own functions.

| tool         | what it looks at                                             | where it applies               |
|--------------|--------------------------------------------------------------|--------------------------------|
| MemTracker   | the step, on fake tensors (`torch.distributed._tools`)       | everywhere                     |
| accelerate   | the model's size; `accelerate estimate-memory`               | Adam                           |
| DeepSpeed    | the number of parameters; ZeRO-2, one GPU, nothing offloaded | Adam, 16-bit                   |
| llm-analysis | a decoder's shape, batch and context                         | Adam, 16-bit, usual decoders   |

accelerate and DeepSpeed leave activations out by design. All but MemTracker are optional. llm-analysis asks for
an older transformers than these models need, so install without dependencies, then the few that are missing:

    pip install --no-deps accelerate llm-analysis && pip install --no-deps --no-build-isolation deepspeed
    pip install psutil fire hjson einops msgpack ninja py-cpuinfo
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from memory_cases import case_recipe, model_of, setting_of
from torch import nn

from surefoot.data.batches import batches_of
from surefoot.recipe.recipe import Recipe
from surefoot.step import Step
from surefoot.world.world import World

PEERS = ("MemTracker", "accelerate", "DeepSpeed", "llm-analysis")
NOT_RUN = {name: {"reason": "not run"} for name in PEERS}

GPT = {"num_layers": 4, "n_head": 4, "hidden_dim": 256, "vocab_size": 2048, "max_seq_len": 128}
LLAMA = {**GPT, "num_key_value_heads": 2, "ffn_embed_dim": 704, "expansion_ratio": 704 / 256}
DECODER = {**GPT, "n_head": 8, "num_key_value_heads": 2, "ffn_embed_dim": 768}
MOE = {**GPT, "num_layers": 3, "expansion_ratio": 2, "moe_num_experts": 8, "moe_top_k": 2}
GPT2 = {"num_layers": 12, "n_head": 12, "hidden_dim": 768, "vocab_size": 50257, "max_seq_len": 512}
# The models that llm-analysis can describe: their shape, and what else it asks about them.
DECODERS: dict[str, tuple[dict[str, Any], dict[str, bool]]] = {
    "gpt_sdpa": (GPT, {}),
    "gpt_softmax": (GPT, {"flash_attn": False}),
    "decoder": (DECODER, {"mlp_gated_linear_units": True}),
    "hf_llama": (LLAMA, {"mlp_gated_linear_units": True}),
    "hf_gpt2": (GPT, {"flash_attn": False, "softmax_dropout": True}),
    "routed_moe": (MOE, {}),
    "gpt2_124m": (GPT2, {}),
}


class DoesNotApply(Exception):
    """Why a tool has no figure for a case."""


# ------------------------------------------------------------------------------------------- torch's MemTracker


def memtracker(recipe: Recipe) -> dict[str, Any]:
    """MemTracker's peak of two steps; it wants to be told of each micro-batch."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    batches = batches_of(recipe)
    loaded = [[next(batches) for _ in range(recipe.micro_batches())] for _ in range(2)]
    with FakeTensorMode() as fake:
        step, tracker = Step(recipe, World()), MemTracker()
        tracker.track_external(step.model, step.optimizer)

        def tracked(batch: list[Any]) -> Iterator[Any]:
            for micro_batch in batch:
                tracker.reset_mod_stats()
                placed = [fake.from_tensor(tensor) for tensor in micro_batch]
                tracker.track_external(*placed)
                yield placed

        with tracker:
            for batch in loaded:
                step(tracked(batch))
    return {"step": sum(device["Total"] for device in tracker.get_tracker_snapshot("peak").values())}


# ------------------------------------------------------------------------------------------- formulas


def by_accelerate(case: str) -> int:
    """The column "Training using Adam" of `accelerate estimate-memory`."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    wants_adam(case)
    size, _ = calculate_maximum_sizes(built(model_of(case)))
    formats = {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"}
    return max(estimate_training_usage(size, formats[setting_of(case).precision]).values())


def by_deepspeed(case: str) -> int:
    """The model's states under ZeRO-2 on one GPU."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs, model_to_params

    wants_adam(case)
    wants_16_bits(case)
    parameters = model_to_params(built(model_of(case)))
    _, on_gpu = estimate_zero2_model_states_mem_needs(parameters, cpu_offload=False)
    return on_gpu


def by_llm_analysis(case: str) -> int:
    """Weights, optimizer state, gradients and activations of a decoder."""
    from llm_analysis.analysis import ActivationRecomputation, LLMAnalysis
    from llm_analysis.config import DtypeConfig, ModelConfig, get_gpu_config_by_name
    from llm_analysis.logger import logger

    logger.setLevel("ERROR")
    if model_of(case) not in DECODERS:
        raise DoesNotApply("no decoder that it can describe")
    wants_adam(case)
    wants_16_bits(case)
    shape, said = DECODERS[model_of(case)]
    recipe, how = case_recipe(case), setting_of(case)
    gpu = get_gpu_config_by_name("h100-sxm-80gb")  # it must have one; the memory needed does not depend on it
    analysis = LLMAnalysis(ModelConfig(name=case, **shape), gpu, DtypeConfig()).training(
        batch_size_per_gpu=recipe.micro_batch_size,
        gradient_accumulation_steps=how.micro_batches,
        seq_len=recipe.tokens_per_sample,
        activation_recomputation=ActivationRecomputation[how.recompute.upper()],
        **said,
    )
    return round(analysis["(weight+op_state+grad+act)_memory_per_gpu"])


def wants_adam(case: str) -> None:
    if not setting_of(case).optimizer.startswith("adamw"):
        raise DoesNotApply("its formula is Adam's")


def wants_16_bits(case: str) -> None:
    if setting_of(case).precision == "32-true":
        raise DoesNotApply("its formula is for 16-bit training")


@functools.lru_cache(maxsize=1)
def built(model: str) -> nn.Module:
    return case_recipe(f"{model}/fp32").model()


FORMULAS: dict[str, Callable[[str], int]] = {
    "accelerate": by_accelerate,
    "DeepSpeed": by_deepspeed,
    "llm-analysis": by_llm_analysis,
}


def figures(cases: list[str]) -> dict[str, dict[str, Any]]:
    """What the formulas say of each case."""
    return {case: {name: figure(formula, case) for name, formula in FORMULAS.items()} for case in cases}


def figure(formula: Callable[[str], int], case: str) -> dict[str, Any]:
    """Bytes, or the reason why there are none."""
    try:
        return {"step": formula(case)}
    except ModuleNotFoundError as error:
        return {"reason": f"not installed: {error}"}
    except DoesNotApply as why:
        return {"reason": str(why)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def versions() -> dict[str, str | None]:
    """Of the peers that are packages; None for one that is not installed."""
    return {name: version(name.lower()) for name in FORMULAS}


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
