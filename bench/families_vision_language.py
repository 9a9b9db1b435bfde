"""Models of images and text of transformers, built small, with images in the places that the text keeps for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from families import family

from surefoot import Recipe, recipe_of

both = family("vision_language", steps=3)
WORDS, MARK, PAD = 300, 299, 0
TEXT = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
VISION = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip


def text(images: int, samples: int = 4, length: int = 48) -> dict[str, torch.Tensor]:
    """Tokens of which so many stand for the image; the last sample is padded."""
    tokens = torch.randint(3, MARK - 5, (samples, length))
    tokens[:, 2 : 2 + images] = MARK
    mask = torch.ones_like(tokens)
    mask[-1, -6:] = 0
    labels = tokens.masked_fill((tokens == MARK) | (mask == 0), -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def of(model: Callable[[], Any], batch: dict[str, torch.Tensor], **settings: Any) -> Recipe:
    tokens = batch["input_ids"].shape[-1]
    return recipe_of(model, batch, loss=lambda model, batch: model(**batch).loss, tokens_per_sample=tokens, **settings)


def pixels(samples: int = 4, size: int = 32) -> torch.Tensor:
    return torch.randn(samples, 3, size, size)


@both
def llava() -> Recipe:
    def model() -> Any:
        from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

        made = LlavaForConditionalGeneration(
            LlavaConfig(vision_config=CLIPVisionConfig(**VISION), text_config=LlamaConfig(**TEXT),
                        image_token_index=MARK, image_seq_length=16)
        )  # fmt: skip
        made.model.vision_tower.requires_grad_(False)
        return made

    return of(model, {**text(16), "pixel_values": pixels()})


@both
def paligemma() -> Recipe:
    def model() -> Any:
        from transformers import (
            GemmaConfig,
            PaliGemmaConfig,
            PaliGemmaForConditionalGeneration,
            SiglipVisionConfig,
        )  # fmt: skip

        return PaliGemmaForConditionalGeneration(
            PaliGemmaConfig(vision_config=SiglipVisionConfig(**VISION, vision_use_head=False),
                            text_config=GemmaConfig(**TEXT, head_dim=16), image_token_index=MARK, projection_dim=64)
        )  # fmt: skip

    batch = text(16)
    kinds = torch.zeros_like(batch["input_ids"])
    kinds[:, 24:] = 1
    return of(model, {**batch, "token_type_ids": kinds, "pixel_values": pixels()})


@both
def qwen2_vl() -> Recipe:
    def model() -> Any:
        from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

        rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
        return Qwen2VLForConditionalGeneration(
            Qwen2VLConfig(
                text_config={**TEXT, "rope_parameters": rope},
                vision_config={"depth": 2, "embed_dim": 48, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2,
                               "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2},
                image_token_id=MARK, video_token_id=MARK - 1, vision_start_token_id=MARK - 2,
                vision_end_token_id=MARK - 3,
            )
        )  # fmt: skip

    def loss(model: Any, batch: Any) -> torch.Tensor:
        patches = batch["patches"].flatten(0, 1)
        rest = {name: value for name, value in batch.items() if name not in ("patches", "grid")}
        kinds = (batch["input_ids"] == MARK).int()
        return model(**rest, pixel_values=patches, image_grid_thw=batch["grid"], mm_token_type_ids=kinds).loss

    batch = text(16)
    batch["input_ids"][:, 1] = MARK - 2
    batch |= {"patches": torch.randn(4, 64, 3 * 2 * 8 * 8), "grid": torch.tensor([[1, 8, 8]] * 4)}
    return recipe_of(model, batch, loss=loss, tokens_per_sample=48)


@both
def idefics3() -> Recipe:
    """Several images in each sample, some of which are padding."""

    def model() -> Any:
        from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig

        return Idefics3ForConditionalGeneration(
            Idefics3Config(vision_config=VISION, text_config=LlamaConfig(**TEXT), image_token_id=MARK, scale_factor=2)
        )

    images = torch.randn(4, 2, 3, 32, 32)
    images[1, 1] = 0
    batch = text(8)
    batch["input_ids"][1, 2:6] = 7
    return of(model, {**batch, "pixel_values": images})


@both
def blip2() -> Recipe:
    def model() -> Any:
        from transformers import Blip2Config, Blip2ForConditionalGeneration, OPTConfig

        text_config = OPTConfig(vocab_size=WORDS, hidden_size=64, ffn_dim=128, num_hidden_layers=2,
                                num_attention_heads=4, word_embed_proj_dim=64, max_position_embeddings=128)  # fmt: skip
        return Blip2ForConditionalGeneration(
            Blip2Config(
                vision_config=VISION,
                qformer_config={"vocab_size": WORDS, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
                                "num_attention_heads": 4, "encoder_hidden_size": 48, "cross_attention_frequency": 1},
                text_config=text_config.to_dict(), num_query_tokens=8, image_token_index=MARK,
            )
        )  # fmt: skip

    return of(model, {**text(8), "pixel_values": pixels()})


@both
def clip_contrast() -> Recipe:
    def model() -> Any:
        from transformers import CLIPConfig, CLIPModel

        words = {name: value for name, value in TEXT.items() if name != "num_key_value_heads"}
        return CLIPModel(CLIPConfig(text_config=words, vision_config=VISION, projection_dim=32))

    batch = text(0, samples=32)
    batch["input_ids"][:, -1] = 2
    del batch["labels"]

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return model(**batch, return_loss=True).loss

    return recipe_of(model, {**batch, "pixel_values": pixels(32)}, loss=loss, tokens_per_sample=48)


@both
def captions() -> Recipe:
    """An encoder of images and a decoder of words, joined by cross-attention."""

    def model() -> Any:
        from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

        decoder = GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=48, n_layer=2, n_head=4)
        config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**VISION), decoder)
        config.decoder_start_token_id, config.pad_token_id = 1, PAD
        return VisionEncoderDecoderModel(config=config)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return model(**batch).loss

    batch = {"pixel_values": pixels(8), "labels": torch.randint(3, WORDS, (8, 30))}
    return recipe_of(model, batch, loss=loss)


@both
def llava_tiles() -> Recipe:
    """Images in tiles, as many as their shape asks for, and features that are cut to it."""

    def model() -> Any:
        from transformers import CLIPVisionConfig, LlamaConfig, LlavaNextConfig, LlavaNextForConditionalGeneration

        return LlavaNextForConditionalGeneration(
            LlavaNextConfig(vision_config=CLIPVisionConfig(**VISION), text_config=LlamaConfig(**TEXT),
                            image_token_index=MARK, image_grid_pinpoints=[[32, 64], [64, 32], [64, 64]])
        )  # fmt: skip

    batch = text(16 + 4 * 8 + 4, length=72)
    sizes = torch.tensor([[32, 64]] * 4)
    return of(model, {**batch, "pixel_values": torch.randn(4, 3, 3, 32, 32), "image_sizes": sizes})
