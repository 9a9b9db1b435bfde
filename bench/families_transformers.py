"""Families of transformers: each model class with a loss, built small from its config class, and a batch for it.

A config is made small by the names of its attributes, sub-configs included: `hidden_size` is 64 in every family. What a
family needs beyond that is in `NEEDS`. Of each family the first task of `TASKS` that it has is one case. Its other
tasks are the held-out cases.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from surefoot import Recipe, recipe_of

VOCABULARY, WIDTH, IMAGE, SAMPLES, LENGTH = 384, 64, 64, 4, 48


def _each(names: str, value: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), value)


SMALL: dict[str, int] = {
    **_each(
        """hidden_size d_model n_embd dim emb_dim embed_dim embedding_size encoder_hidden_size decoder_hidden_size
        text_hidden_size hidden_dim word_embed_proj_dim input_dim projection_dim out_hidden_size fusion_hidden_size
        d_embed output_hidden_size decoder_d_model encoder_d_model encoder_hidden_dim embedding_dim
        attention_hidden_size
        lru_width mm_hidden_size classifier_proj_size codevector_dim proj_codevector_dim""",
        WIDTH,
    ),
    **_each(
        """intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim mlp_dim feed_forward_size
        ffn_hidden_size encoder_intermediate_size decoder_intermediate_size intermediate_size_mlp ffn_size
        dense_intermediate_size dim_feedforward fc_dim block_ff_dim""",
        2 * WIDTH,
    ),
    **_each(
        """moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size
        moe_shared_expert_intermediate_size expert_intermediate_size moe_shared_intermediate_size""",
        WIDTH,
    ),
    **_each(
        """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers
        num_encoder_layers decoder_num_hidden_layers encoder_num_hidden_layers num_blocks num_hidden_groups
        vision_layers text_layers""",
        2,
    ),
    **_each(
        """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads
        decoder_num_attention_heads num_decoder_attention_heads encoder_num_attention_heads
        num_encoder_attention_heads""",
        4,
    ),
    **_each("num_key_value_heads n_head_kv num_kv_heads decoder_num_key_value_heads", 2),
    **_each(
        """head_dim v_head_dim qk_nope_head_dim d_kv attention_head_size kv_channels global_head_dim swa_head_dim
        linear_key_head_dim linear_value_head_dim index_head_dim d_head""",
        WIDTH // 4,
    ),
    **_each("qk_rope_head_dim rotary_dim linear_num_value_heads", 8),
    **_each("q_lora_rank kv_lora_rank o_lora_rank embedding_rank", 16),
    **_each("linear_num_key_heads index_n_heads", 4),
    **_each(
        """num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts
        num_experts_per_layer""",
        4,
    ),
    **_each("num_experts_per_tok moe_topk moe_k top_k_experts moe_top_k num_experts_per_token", 2),
    **_each("n_group topk_group n_shared_experts first_k_dense_replace", 1),
    **_each("vocab_size text_vocab_size vocab_size_per_layer_input speech_vocab_size", VOCABULARY),
    **_each("max_position_embeddings n_positions n_ctx max_source_positions max_target_positions", 128),
    **_each("state_size mamba_d_state ssm_state_size", 8),
    **_each("chunk_size mamba_chunk_size local_window_size", 16),
    **_each("image_size img_size pretrain_image_size crop_size", IMAGE),
    **_each("num_queries num_query_tokens num_latents", 16),
    **_each("mamba_n_heads mamba_num_heads", 8),
    **_each("mamba_head_dim mamba_d_head", 2 * WIDTH // 8),
    **_each("n_groups mamba_n_groups mamba_ngroups", 1),
    **_each("conv_channels aspp_out_channels auxiliary_channels pool_dim", 32),
    **_each(
        """speech_encoder_layers t2u_encoder_layers t2u_decoder_layers num_self_attends_per_block
        self_attention_layers""",
        2,
    ),
    **_each(
        """speech_encoder_attention_heads t2u_encoder_attention_heads t2u_decoder_attention_heads
        num_self_attention_heads num_cross_attention_heads""",
        4,
    ),
    **_each(
        """speech_encoder_intermediate_size t2u_encoder_ffn_dim t2u_decoder_ffn_dim d_latents
        speech_decoder_postnet_units speech_decoder_prenet_units""",
        2 * WIDTH,
    ),
    **_each("attention_window attention_window_size sliding_window", 16),
    "max_length": 128,
    "t2u_vocab_size": VOCABULARY,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "num_denoising": 4,
    "hidden_size_per_layer_input": 16,
    "num_frames": 4,
}
"""The largest value of an attribute that is a whole number."""

FIXED: dict[str, Any] = {"layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "num_labels": 5}
"""Layers that are skipped at random make every step another one. The plan's is the one that skips none."""

NEEDS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "dpt": {
        "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [16, 32, 64, 64],
        "is_hybrid": False,
    },
    "funnel": {"block_sizes": [1, 1, 1]},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "mamba2": {"num_heads": 8},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "attn_layers": ["local", "lsh"], "axial_pos_shape": [8, 8], "axial_pos_embds_dim": [32, 32],
        "max_position_embeddings": 64, "is_decoder": True, "lsh_attn_chunk_length": 16, "local_attn_chunk_length": 16,
        "num_buckets": 4,
    },
    "yolos": {"image_size": [64, 64], "num_detection_tokens": 16},
    "zamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
}  # fmt: skip
"""What a family needs beyond `SMALL` to be built, by its model type."""

Batch = dict[str, torch.Tensor]


# ------------------------------------------------------------------------------------------- configs


def shrunk(kind: type, needs: dict[str, Any]) -> Any:
    """A small config of a class."""
    default = kind()
    wanted: dict[str, Any] = {}
    for name in kind.sub_configs:
        part = getattr(default, name, None)
        if part is not None and not isinstance(part, dict):
            wanted[name] = shrunk(type(part), needs.get(name, {})).to_dict()
    for name, value in list(vars(default).items()):
        if name in FIXED:
            wanted[name] = FIXED[name]
        elif name in SMALL and type(value) is int:
            wanted[name] = min(value, SMALL[name])
        elif name in ("depths", "layer_depths") and isinstance(value, list | tuple):
            wanted[name] = [1] * len(value)
        elif name == "conv_dim" and isinstance(value, list | tuple):
            wanted[name] = [32] * len(value)
        elif name == "rope_parameters":
            continue
        elif name.endswith(("token_id", "token_index")) and type(value) is int and value >= VOCABULARY:
            wanted[name] = VOCABULARY - 1 - sum(map(ord, name)) % 40
    kinds = getattr(default, "layer_types", None) or []
    if "num_hidden_layers" in wanted and "full_attention" in kinds:
        wanted["num_hidden_layers"] = min(6, max(2, kinds.index("full_attention") + 1))  # one layer of each kind
    if "qk_rope_head_dim" in wanted and "head_dim" in wanted:
        wanted["head_dim"] = wanted["qk_rope_head_dim"]  # what the rotary embedding takes for its size
    if "kv_lora_rank" in wanted and "num_key_value_heads" in wanted:
        wanted["num_key_value_heads"] = wanted["num_attention_heads"]  # latent attention has no groups
    if getattr(default, "is_encoder_decoder", False) and getattr(default, "decoder_start_token_id", None) is None:
        wanted["decoder_start_token_id"] = 2
    wanted |= {name: value for name, value in needs.items() if name not in kind.sub_configs}
    return kind(**wanted)


def text_of(config: Any) -> Any:
    """The config that has the vocabulary."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


# ------------------------------------------------------------------------------------------- batches


def tokens_for(config: Any, samples: int = SAMPLES, length: int = LENGTH) -> torch.Tensor:
    """Random tokens, none of which has a meaning."""
    named = [*vars(text_of(config)).items(), *vars(config).items()]
    special = [value for name, value in named if name.endswith(("token_id", "token_index"))]
    most = getattr(text_of(config), "vocab_size", None) or VOCABULARY
    plain = [each for each in range(3, min(most, VOCABULARY)) if each not in special]
    return torch.tensor(plain)[torch.randint(len(plain), (samples, length))]


def text(config: Any, model: type) -> Batch:
    tokens = tokens_for(config)
    mask = torch.ones_like(tokens)
    mask[-1, -LENGTH // 4 :] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


def sentences(config: Any, model: type) -> Batch:
    return {**text(config, model), "labels": torch.arange(SAMPLES) % 2}


def tagged(config: Any, model: type) -> Batch:
    return {**text(config, model), "labels": torch.randint(0, 2, (SAMPLES, LENGTH))}


def answers(config: Any, model: type) -> Batch:
    batch = text(config, model)
    del batch["labels"]
    return {**batch, "start_positions": torch.full((SAMPLES,), 3), "end_positions": torch.full((SAMPLES,), 7)}


def choices(config: Any, model: type) -> Batch:
    tokens = torch.stack([tokens_for(config), tokens_for(config)], 1)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.arange(SAMPLES) % 2}


def image_size(config: Any) -> tuple[int, int]:
    """Height and width."""
    for each in (config, getattr(config, "vision_config", None), getattr(config, "backbone_config", None)):
        size = getattr(each, "image_size", None)
        if isinstance(size, int):
            return size, size
        if isinstance(size, list | tuple) and size:
            return size[0], size[1]
    return IMAGE, IMAGE


def images(config: Any, model: type) -> Batch:
    channels = getattr(config, "num_channels", None) or 3
    pixels = torch.randn(SAMPLES, channels if isinstance(channels, int) else 3, *image_size(config))
    return {"pixel_values": pixels, "labels": torch.arange(SAMPLES) % 2}


def maps(config: Any, model: type) -> Batch:
    batch = images(config, model)
    return {**batch, "labels": torch.randint(0, 2, (SAMPLES, *image_size(config)))}


def videos(config: Any, model: type) -> Batch:
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None) or 4
    name = model.main_input_name
    return {name: torch.randn(2, frames, 3, *image_size(config)), "labels": torch.arange(2)}


def boxes(config: Any, model: type) -> Batch:
    """Three boxes in each image; `loss_of_boxes` makes the list of dicts that detectors take."""
    batch = images(config, model)
    del batch["labels"]
    return {**batch, "classes": torch.randint(0, 2, (SAMPLES, 3)), "boxes": 0.2 + 0.3 * torch.rand(SAMPLES, 3, 4)}


def loss_of_boxes(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    rows = zip(batch["classes"], batch["boxes"], strict=True)
    return model(pixel_values=batch["pixel_values"], labels=[{"class_labels": c, "boxes": b} for c, b in rows]).loss


def sounds(config: Any, model: type) -> Batch:
    """Samples of a wave, or frames of a spectrogram."""
    if (model.main_input_name == "input_values" and not hasattr(config, "num_mel_bins")) or hasattr(config, "conv_dim"):
        return {"input_values": torch.randn(SAMPLES, 4000)}
    bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_projection_input_dim", None) or 80
    if model.main_input_name == "input_values":
        return {"input_values": torch.randn(SAMPLES, getattr(config, "max_length", 128), bins)}
    if hasattr(config, "max_source_positions"):
        return {"input_features": torch.randn(SAMPLES, bins, 2 * config.max_source_positions)}
    return {"input_features": torch.randn(SAMPLES, 128, bins)}


def heard(config: Any, model: type) -> Batch:
    return {**sounds(config, model), "labels": torch.arange(SAMPLES) % 2}


def spoken(config: Any, model: type) -> Batch:
    return {**sounds(config, model), "labels": torch.randint(3, 20, (SAMPLES, 5))}


def translated(config: Any, model: type) -> Batch:
    return {**sounds(config, model), "labels": tokens_for(config, length=12)}


TASKS: dict[str, Callable[[Any, type], Batch]] = {
    "CAUSAL_LM": text,
    "MASKED_LM": text,
    "SEQ_TO_SEQ_CAUSAL_LM": text,
    "IMAGE_CLASSIFICATION": images,
    "CTC": spoken,
    "AUDIO_CLASSIFICATION": heard,
    "SPEECH_SEQ_2_SEQ": translated,
    "VIDEO_CLASSIFICATION": videos,
    "SEMANTIC_SEGMENTATION": maps,
    "OBJECT_DETECTION": boxes,
    "SEQUENCE_CLASSIFICATION": sentences,
    "TOKEN_CLASSIFICATION": tagged,
    "QUESTION_ANSWERING": answers,
    "MULTIPLE_CHOICE": choices,
    "IMAGE_TEXT_TO_TEXT": text,
}


# ------------------------------------------------------------------------------------------- cases


def families() -> Iterator[tuple[str, str, str]]:
    """Model type, task and model class of every entry; a class that stands for several types only once."""
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    seen: set[str] = set()
    for task in TASKS:
        for family, name in getattr(tables, f"MODEL_FOR_{task}_MAPPING_NAMES").items():
            name = name if isinstance(name, str) else name[0]
            if name not in seen:
                seen.add(name)
                yield family, task, name


def case_names(*, held_out: bool = False) -> list[str]:
    """The first task of each family, or all others."""
    first: dict[str, str] = {}
    others: list[str] = []
    for family, task, _ in families():
        case = f"{family}/{task.lower()}"
        if first.setdefault(family, case) != case:
            others.append(case)
    return others if held_out else list(first.values())


def case_recipe(case: str) -> Recipe:
    """The recipe of `family/task`."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    family, _, task = case.partition("/")
    name = next(n for f, t, n in families() if (f, t.lower()) == (family, task))
    model = getattr(transformers, name)
    torch.manual_seed(0)
    kind = CONFIG_MAPPING[family]
    config = shrunk(model.config_class if model.config_class is not None else kind, NEEDS.get(family, {}))
    batch = TASKS[task.upper()](config, model)
    taken = inspect.signature(model.forward).parameters
    if task != "object_detection":
        batch = {key: value for key, value in batch.items() if key in taken or "kwargs" in taken}
    tokens = math.prod(next(iter(batch.values())).shape[1:]) if "input_ids" in batch else 1
    loss = loss_of_boxes if task == "object_detection" else lambda model, batch: model(**batch).loss
    return recipe_of(lambda: model(config), batch, loss=loss, tokens_per_sample=tokens, name=case)
