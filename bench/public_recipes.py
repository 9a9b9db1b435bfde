"""The recipe of each published run that can be rebuilt; of the others, the reason why not."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from public_models import (
    SHAPES,
    Decoder,
    Shape,
    TuneLlama,
    Tuning,
    VisionTransformer,
    chunked_loss,
    chunked_loss_of_like_batches,
    whole_loss,
)
from public_sharded import Llama, LlamaShape, Mpt, Muon, SpeedrunGpt
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from surefoot import Recipe

Row = dict[str, Any]


class CannotRebuild(Exception):
    """A published run whose step cannot be rebuilt, and why."""


def recipe_of(row: Row, *, timed: bool = False) -> Recipe:
    """The recipe of a row, or `CannotRebuild`. `timed`: to predict its time, not its memory."""
    if row.get("compile") and not timed:
        raise CannotRebuild("compiled: a plan of an eager step would only bound it from above")
    if "multi-GPU" in row.get("parallelism", ""):
        raise CannotRebuild(f"{row['n_gpus']} GPUs: how they share the work is not stated")
    if timed:
        _refuse_untimed(row)
    for pattern, build in (*(TIMED.items() if timed else ()), *BUILDERS.items()):
        if re.fullmatch(pattern, row["id"]):
            return build(row)
    raise CannotRebuild(f"no recipe for it: {row.get('n_gpus')} GPUs, {row.get('parallelism', 'not stated how')}")


def _refuse_untimed(row: Row) -> None:
    """Refuses a row whose time says nothing about a step that a plan can describe."""
    low = ("float8", "fp8", "mxfp8", "nvfp4", "int8", "quantized")
    if any(word in row.get("precision", "").lower() for word in low):
        raise CannotRebuild("products in 8 or 4 bits")
    if row.get("moe"):
        raise CannotRebuild("a mixture of experts: how tokens spread over experts is not stated")
    extra = row.get("extra", "")
    for word in ("deterministic", "gc.collect", "reference cycle", "offload", "optimizer step in backward"):
        if word in extra and "none" not in extra:
            raise CannotRebuild(f"not an ordinary step: {extra}")
    if "power limited" in row.get("gpu", ""):
        raise CannotRebuild("the power limit is not stated")


def device_of(row: Row) -> str:
    """The datasheet that a row's GPU stands for, and how many there are."""
    for word, name in DEVICES.items():
        if word in row.get("gpu", ""):
            return name if row["n_gpus"] == 1 else f"{row['n_gpus']}x{name}"
    raise CannotRebuild(f"the GPU is not stated, or has no datasheet: {row.get('gpu')!r}")


DEVICES = {
    "A100 SXM4 40GB": "a100-sxm-40gb",
    "A100 40GB": "a100-sxm-40gb",
    "A100": "a100-sxm-80gb",
    "A10G": "a10g",
    "V100 SXM2 16GB": "v100-sxm-16gb",
    "RTX 4070 Ti SUPER": "rtx-4070-ti-super",
    "RTX 4090": "rtx-4090",
    "RTX A6000": "rtx-a6000",
    "H100 (95 GiB": "h100-hbm2e-96gb",
    "Grand Teton": "h100-hbm2e-96gb",
    "H100": "h100-sxm",
}


# ------------------------------------------------------------------------------------------- data


class Tokens(Dataset[tuple[Tensor, Tensor]]):
    """Sequences of one length and their targets; always the same."""

    def __init__(self, length: int, vocabulary: int) -> None:
        self.sample = torch.randint(vocabulary, (2, length), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.sample[0], self.sample[1]


def adamw(parameters: Iterable[nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, **options)


# ------------------------------------------------------------------------------------------- litgpt

_LITGPT = {
    "phi-1.5 1.3 B": "phi-1.5",
    "StableLM Alpha 3 B": "stablelm-3b",
    "stablelm-base-alpha-3b": "stablelm-3b",
    "Llama 2 7B": "llama-2-7b",
    "Llama 2 13B": "llama-2-13b",
    "Falcon 40 B": "falcon-40b",
    "falcon-7b": "falcon-7b",
    "gemma-2b": "gemma-2b",
    "gemma-7b": "gemma-7b",
    "gemma-2-9b": "gemma-2-9b",
    "Llama 3 / 3.1 8B": "llama-3-8b",
    "Llama 3.2 1B": "llama-3.2-1b",
    "Llama 3.2 3B": "llama-3.2-3b",
    "mistral-7b": "mistral-7b",
    "mistral-7b-v0.2": "mistral-7b",
    "phi-2": "phi-2",
    "Phi-3-mini-4k-instruct": "phi-3",
    "TinyLlama 1.1B": "tinyllama-1.1b",
}
_EVERYWHERE = {"qkv": (True, True, True), "everywhere": True}
_HUB_LORA = {
    "gemma-2b": Tuning(rank=8, dropout=0.1, **_EVERYWHERE),
    "gemma-2-2b": Tuning(rank=8, dropout=0.1, **_EVERYWHERE),
    "gemma-7b": Tuning(rank=16, dropout=0.1, **_EVERYWHERE),
    "gemma-2-9b": Tuning(rank=16, dropout=0.1, **_EVERYWHERE),
    "phi-2": Tuning(rank=8, **_EVERYWHERE),
    "phi-3": Tuning(rank=8, **_EVERYWHERE),
    "tinyllama-1.1b": Tuning(rank=32, **_EVERYWHERE),
}
"""By config_hub/finetune/MODEL/lora.yaml; the others adapt queries and values alone, with rank 32."""


def _litgpt(row: Row, shape: Shape, how: Tuning, loss: Callable[..., Tensor] = chunked_loss) -> Recipe:
    """One step of two micro-batches; of one where neither gradients nor the micro-batch before take much."""
    length, size = row["seq_len"], row["micro_batch"]
    accumulate = 2 if how.full or loss is chunked_loss_of_like_batches else 1
    return Recipe(
        model=lambda: Decoder(shape, how, length),
        data=lambda: Tokens(length, shape.vocabulary),
        loss=loss,
        optimizer=adamw,
        micro_batch_size=size,
        tokens_per_sample=length,
        global_batch_tokens=accumulate * size * length,
        precision="bf16-true",
        name=row["id"],
    )


def _litgpt_tables(row: Row) -> Recipe:
    """tutorials/resource-tables.md: LoRA of rank 8 on queries and values, and LLaMA-Adapter."""
    name = _LITGPT[row["model"]]
    weights = "nf4-dq" if "nf4-dq" in row["precision"] else "nf4" if "nf4" in row["precision"] else "bf16"
    if row["task"] == "lora":
        return _litgpt(row, SHAPES[name], Tuning(rank=8, weights=weights))
    number = int(row["id"].removeprefix("litgpt-res-"))
    return _litgpt(row, SHAPES[name], Tuning(weights=weights, adapter=1 if number < 30 else 2))


def _litgpt_hub(row: Row) -> Recipe:
    """config_hub/finetune: batches padded to 512 tokens, to which the longest samples are cut.

    With 4-bit weights, the graph of one micro-batch keeps inputs while the next goes forward.
    """
    name = _LITGPT[row["model"]]
    if "gemma2" in row["config_ref"]:
        name = "gemma-2-9b" if "9b" in row["config_ref"] else "gemma-2-2b"
    if row["task"] in ("lora", "qlora"):
        how = _HUB_LORA.get(name, Tuning(rank=32))
        if row["task"] == "qlora":
            return _litgpt(row, SHAPES[name], replace(how, weights="nf4"), chunked_loss_of_like_batches)
        return _litgpt(row, SHAPES[name], how)
    if name != "tinyllama-1.1b" and row["outcome"] == "ok":
        raise CannotRebuild("published below parameters + gradients + AdamW state of the config it names")
    return _litgpt(row, SHAPES[name], Tuning())


def _litgpt_thunder(row: Row) -> Recipe:
    """extensions/thunder: one micro-batch an iteration, on one GPU, sharded (ZeRO 3) or replicated."""
    recipe = _litgpt(row, SHAPES["tinyllama-1.1b"], Tuning(), whole_loss)
    ranks = row["n_gpus"]
    if ranks == 1:
        return recipe
    sizes = (1, ranks) if row["parallelism"].startswith("FSDP") else (ranks, 1)
    return replace(recipe, dp_replicate=sizes[0], dp_shard=sizes[1], global_batch_tokens=None)


# ------------------------------------------------------------------------------------------- transformers


def _bert(row: Row) -> Recipe:
    """transformers' Trainer of January 2022: attention by plain operators, an optimizer that goes one by one.

    Before torch 2.0 `zero_grad` kept the gradients, filled with zeros. So there are always two micro-batches here: the
    second finds the gradients of the first.
    """
    if "8-bit" in row["optimizer"]:
        raise CannotRebuild("bitsandbytes' 8-bit Adam")
    length, recompute = row["seq_len"], row["activation_checkpointing"] == "full"
    return Recipe(
        model=functools.partial(_bert_model, recompute),
        data=lambda: TensorDataset(torch.zeros(64, length, dtype=torch.long), torch.zeros(64, dtype=torch.long)),
        loss=lambda model, batch: model(input_ids=batch[0], labels=batch[1]).loss,
        optimizer=_adafactor if row["optimizer"] == "Adafactor" else functools.partial(adamw, foreach=False),
        micro_batch_size=row["micro_batch"],
        tokens_per_sample=length,
        global_batch_tokens=max(2, row["grad_accum"]) * row["micro_batch"] * length,
        precision="16-mixed" if "fp16" in row["precision"] else "32-true",
        max_grad_norm=1.0,
        name=row["id"],
    )


def _bert_model(recompute: bool) -> nn.Module:
    import transformers

    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=30522,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _adafactor(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(parameters, lr=1e-3, foreach=False)


# ------------------------------------------------------------------------------------------- torchtune, torchao


def _torchtune(row: Row) -> Recipe:
    """It compiles each block. Each row of its table adds to the one before."""
    if "8-bit" in row.get("extra", "") or "LoRA" in row.get("extra", ""):
        raise CannotRebuild(f"not stated enough: {row['extra']}")
    shape, length, size = SHAPES["llama-3.2-3b"], row["seq_len"], row["micro_batch"]
    return Recipe(
        compile="blocks" if row.get("compile") else "off",
        recompute=_RECOMPUTE[row["activation_checkpointing"]],
        model=lambda: TuneLlama(shape, length),
        data=lambda: Tokens(length, shape.vocabulary),
        loss=whole_loss,
        optimizer=adamw,
        micro_batch_size=size,
        tokens_per_sample=length,
        precision="bf16-true",
        name=row["id"],
    )


def _vit_giant(row: Row) -> Recipe:
    """benchmarks/benchmark_low_bit_adam.py: images of 224 x 224, 45 classes."""
    if row["id"] not in ("ao-vitg-eager-none", "ao-vitg-amp-oom"):
        raise CannotRebuild("the optimizer's state is kept in host memory")
    options = {"layers": 40, "width": 1536, "heads": 24, "ffn": 8192, "patch": 14, "side": 224, "classes": 45}
    return Recipe(
        model=lambda: VisionTransformer(**options),
        data=lambda: TensorDataset(torch.zeros(64, 3, 224, 224), torch.zeros(64, dtype=torch.long)),
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        optimizer=functools.partial(adamw, fused=True),
        micro_batch_size=row["micro_batch"],
        precision="bf16-mixed" if "AMP" in row["precision"] else "bf16-true",
        name=row["id"],
    )


# ------------------------------------------------------------------------------------------- torchtitan

_LLAMA = {
    "Llama 3 / 3.1 8B": LlamaShape(32, 4096, 32, 8, 14336, 128256),
    "Llama 7B (torchtrain)": LlamaShape(32, 4096, 32, 32, 11008, 32000, holds_logits=True),
    "Llama 2 7B": LlamaShape(32, 4096, 32, 32, 11008, 32000),
    "Llama 2 34B (fms-fsdp variant)": LlamaShape(48, 8192, 64, 8, 22016, 32000),
    "Llama 2 70B": LlamaShape(80, 8192, 64, 8, 28672, 32000),
    "Qwen3 32B": LlamaShape(64, 5120, 64, 8, 25600, 151936, head_norms=True),
}
_RECOMPUTE = {"none": "none", "full": "full", "selective-op": "selective"}


def _titan(row: Row) -> Recipe:
    """FSDP2 over all ranks: gathered in bfloat16, reduced in float32; clipping; AdamW on lists of tensors.

    Unless told otherwise, its `apply_fsdp` leaves the last block gathered after forward. Until August 2024 its loop let
    go of the logits only after backward.
    """
    if row.get("parallelism") != "FSDP2":
        raise CannotRebuild(f"{row.get('parallelism')}: only FSDP2 over all ranks is rebuilt")
    if "float8" in row.get("precision", ""):
        raise CannotRebuild("products in float8")
    if row.get("compile") is None and row["outcome"] == "ok":
        raise CannotRebuild("whether it was compiled is not stated")
    if row.get("extra") == "chunked cross entropy":
        raise CannotRebuild("into how many chunks the loss is cut is not stated")
    if row.get("activation_checkpointing") not in _RECOMPUTE:
        raise CannotRebuild("which blocks are recomputed is not stated")
    if row["model"] not in _LLAMA or "micro_batch" not in row or row.get("compile") == "loss only":
        raise CannotRebuild("the model, its batch, or what is compiled is not stated or not rebuilt")
    extra = row.get("extra", "")
    reshard = False if "=never" in extra else True if "=always" in extra else "but-last"
    compiled = "blocks" if row.get("compile") else "off"
    return _sharded(row, _LLAMA[row["model"]], reshard_after_forward=reshard, compile=compiled)


def _sharded(row: Row, shape: LlamaShape, **options: Any) -> Recipe:
    length = row["seq_len"]
    return Recipe(
        model=lambda: Llama(shape, length),
        data=lambda: Tokens(length, shape.vocabulary),
        loss=lambda model, batch: model(*batch),
        optimizer=adamw,
        micro_batch_size=row["micro_batch"],
        tokens_per_sample=length,
        precision="bf16-mixed",
        recompute=_RECOMPUTE[row["activation_checkpointing"]],
        max_grad_norm=1.0,
        name=row["id"],
        **options,
    )


# ------------------------------------------------------------------------------------------- fms-fsdp, llm-foundry


def _fms(row: Row) -> Recipe:
    """Hybrid sharding is over the 8 GPUs of a node. Where it is compiled, FSDP cuts the graph into blocks."""
    if row["activation_checkpointing"] == "selective":
        raise CannotRebuild("which share of the blocks is recomputed is not stated")
    replicas = row["n_gpus"] // 8 if row["parallelism"].startswith("HSDP") else 1
    compiled = "blocks" if row.get("compile") else "off"
    return _sharded(row, _LLAMA[row["model"]], dp_replicate=replicas, compile=compiled)


def _mpt(row: Row) -> Recipe:
    """One micro-batch. Composer's AdamW goes parameter by parameter."""
    if "fp8" in row["precision"]:
        raise CannotRebuild("products in float8")
    shape = {"layers": row["n_layers"], "width": row["d_model"], "heads": row["n_heads"], "ffn": row["ffn_dim"]}
    length, vocabulary = row["seq_len"], row["vocab_size"]
    return Recipe(
        model=lambda: Mpt(**shape, vocabulary=vocabulary, context=length),
        data=lambda: Tokens(length, vocabulary),
        loss=lambda model, batch: model(*batch),
        optimizer=functools.partial(adamw, foreach=False),
        micro_batch_size=row["micro_batch"],
        tokens_per_sample=length,
        precision="bf16-mixed",
        recompute=row["activation_checkpointing"],
        reshard_after_forward=row["zero_stage"] == 3,
        max_grad_norm=1.0,
        name=row["id"],
    )


# ------------------------------------------------------------------------------------------- only for their time


def _internlm(row: Row) -> Recipe:
    """InternLM 7B in bfloat16, of the shape in InternLM's configs/7B_sft.py.

    Its doc/en/install.md builds fused kernels for norms, rotary embeddings and the loss: here, compiled blocks.
    """
    if row["tp"] != 1:
        raise CannotRebuild("tensor parallel in InternEvo's own way")
    if 44 <= int(row["id"].removeprefix("internevo-")) <= 51:
        raise CannotRebuild("the same configurations as internevo-09 to 16, in another table")
    replicas = row["n_gpus"] // 8 if "8 GPUs" in row["parallelism"] else 1
    shape = LlamaShape(32, 4096, 32, 32, 11008, 103168)
    recipe = _sharded(row, shape, dp_replicate=replicas, reshard_after_forward=False, compile="blocks")
    return replace(recipe, precision="bf16-true")


def _tinyllama(row: Row) -> Recipe:
    """The README states 16k tokens for each GPU, and fused norms, SwiGLU, rotary embeddings and loss."""
    stated = {"micro_batch": 8, "activation_checkpointing": "none"}
    return _sharded({**row, **stated}, LlamaShape(22, 2048, 32, 4, 5632, 32000, head=64), compile="blocks")


def _speedrun(row: Row) -> Recipe:
    """Four records of autumn 2024, from the script in each log: the model is compiled as a whole."""
    each = 1 if "ModernArch" in row["id"] else 8
    length = row["seq_len"]
    return Recipe(
        model=lambda: SpeedrunGpt(tied="Untie" not in row["id"]),
        data=lambda: Tokens(length, 50304),
        loss=lambda model, batch: model(*batch),
        optimizer=lambda parameters: Muon(parameters, each=each),
        micro_batch_size=row["micro_batch"],
        tokens_per_sample=length,
        precision="bf16-mixed",
        compile="whole",
        dp_replicate=row["n_gpus"],
        dp_shard=1,
        name=row["id"],
    )


def _because(reason: str) -> Callable[[Row], Recipe]:
    def refuse(row: Row) -> Recipe:
        raise CannotRebuild(reason)

    return refuse


BUILDERS: dict[str, Callable[[Row], Recipe]] = {
    r"litgpt-res-\d+": _litgpt_tables,
    r"litgpt-hub-\d+": _litgpt_hub,
    r"litgpt-thunder-[025]": _litgpt_thunder,
    r"hf-bert-\d": _bert,
    r"tune-32-3b-0": _because("ragged batches: no length is stated"),
    r"tune-32-3b-1": _torchtune,
    r"tune-qlora7b": _because("neither batch nor length is stated"),
    r"ao-vitg-.*": _vit_giant,
    r"ao-l21b-.*": _because("the page does not state the model's shape"),
    r"ao-l27b-.*": _because("ragged batches: neither batch nor length is stated"),
    r"tt-ds671-fake.*": _because("expert parallel over 256 simulated ranks"),
    r"tt-flux.*": _because("no length is stated"),
    r"tt-.*": _titan,
    r"fms-.*": _fms,
    r"mpt-.*": _mpt,
}

_RAGGED = "ragged batches: the time is an average over lengths that are not stated"
_MEGATRON = "Megatron's pipeline, tensor and expert parallelism with Transformer Engine's kernels"
_NOT_CUDA = "not a CUDA GPU"
TIMED: dict[str, Callable[[Row], Recipe]] = {
    r"litgpt-thunder-[025]": _litgpt_thunder,
    r"litgpt-thunder-.*": _because("compiled by Thunder"),
    r"litgpt-res-.*": _because(_RAGGED),
    r"tune-32-3b-[1-9]": _torchtune,
    r"tune-.*": _because("neither batch nor length is stated"),
    r"internevo-.*": _internlm,
    r"tinyllama": _tinyllama,
    r"modded-1-2024-(10-14_ModernArch|10-17_DistributedMuon|10-18_PyTorch25|11-03_UntieEmbed)": _speedrun,
    r"modded-.*": _because("a script of its own with other blocks or optimizers, not rebuilt"),
    r"ao-h100-bf16-base": _titan,
    r"ao-mi300x.*|maxtext-.*-v[0-9].*|levanter.*|palm.*|primus.*": _because(_NOT_CUDA),
    r"ao-vitg-.*": _because("no datasheet states the peak of its GPU"),
    r"ao-.*": _because("the model, the batch or the parallelism is not stated"),
    r"mbridge.*|nemo.*|mgold.*|megatron.*|korthikanti.*|bloom.*|sc21.*|mlm.*": _because(_MEGATRON),
    r"qwen-.*|swift.*|msswift.*|ms-swift.*": _because("what is recomputed, or the length, is not stated"),
    r"fa-gpt3.*|nanochat.*|maxtext.*": _because("neither batch nor recomputation is stated"),
    r"ibm-7b-a100-blog": _because("the same run as fms-v1-7b-A100"),
}
"""Of rows that are held against the time of a plan alone."""
