"""Networks of diffusers, built small: denoisers of images and of latents, transformers, autoencoders, ControlNet."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

diffusers = family("diffusers")


def schedule(noise: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy samples and their times."""
    from diffusers import DDPMScheduler

    times = torch.randint(0, 1000, (len(x),))
    return DDPMScheduler(num_train_timesteps=1000).add_noise(x, noise, times), times


def denoised(model: nn.Module, batch: Any) -> torch.Tensor:
    noise = torch.randn_like(batch[0])
    noisy, times = schedule(noise, batch[0])
    return F.mse_loss(model(noisy, times, *batch[1:]).sample, noise)


@diffusers
def unet() -> Recipe:
    def model() -> nn.Module:
        from diffusers import UNet2DModel

        return UNet2DModel(
            sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
        )  # fmt: skip

    return recipe_of(model, (torch.randn(4, 3, 32, 32),), loss=denoised)


def conditional() -> nn.Module:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=48, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip


@diffusers
def text_to_image() -> Recipe:
    """A conditional network with the text encoder and the average that a training script keeps beside it."""

    class Pipeline(nn.Module):
        def __init__(self) -> None:
            from transformers import CLIPTextConfig, CLIPTextModel

            super().__init__()
            self.unet = conditional()
            config = CLIPTextConfig(vocab_size=500, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
                                    num_attention_heads=4, max_position_embeddings=77)  # fmt: skip
            self.text = CLIPTextModel(config).requires_grad_(False)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        latents, tokens = batch
        with torch.no_grad():
            told = model.text(tokens)[0]
        told = torch.where(torch.rand(len(latents), 1, 1) < 0.1, torch.zeros_like(told), told)
        return denoised(model.unet, (latents, told))

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW([each for each in parameters if each.requires_grad], lr=1e-4)

    return recipe_of(
        Pipeline, (torch.randn(4, 4, 16, 16), torch.randint(0, 400, (4, 77))), loss=loss, optimizer=optimizer, ema=0.999
    )


@diffusers
def dit() -> Recipe:
    def model() -> nn.Module:
        from diffusers import DiTTransformer2DModel

        return DiTTransformer2DModel(
            num_attention_heads=4, attention_head_dim=24, in_channels=4, num_layers=2, sample_size=16, patch_size=2,
            num_embeds_ada_norm=1000,
        )  # fmt: skip

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        noise = torch.randn_like(batch[0])
        noisy, times = schedule(noise, batch[0])
        return F.mse_loss(model(noisy, timestep=times, class_labels=batch[1]).sample, noise)

    return recipe_of(model, (torch.randn(8, 4, 16, 16), torch.randint(0, 1000, (8,))), loss=loss)


@diffusers
def autoencoder() -> Recipe:
    def model() -> nn.Module:
        from diffusers import AutoencoderKL

        return AutoencoderKL(
            in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8,
        )  # fmt: skip

    def loss(model: Any, batch: Any) -> torch.Tensor:
        found = model.encode(batch[0]).latent_dist
        return F.mse_loss(model.decode(found.sample()).sample, batch[0]) + 1e-6 * found.kl().mean()

    return recipe_of(model, (torch.randn(4, 3, 48, 48),), loss=loss)


@diffusers
def codes() -> Recipe:
    def model() -> nn.Module:
        from diffusers import VQModel

        return VQModel(
            in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32), latent_channels=4,
            num_vq_embeddings=64, norm_num_groups=8,
        )  # fmt: skip

    def loss(model: Any, batch: Any) -> torch.Tensor:
        out = model(batch[0])
        return F.l1_loss(out.sample, batch[0]) + out.commit_loss.mean()

    return recipe_of(model, (torch.randn(4, 3, 48, 48),), loss=loss)


@diffusers
def control() -> Recipe:
    """A ControlNet made from a frozen network."""

    class Controlled(nn.Module):
        def __init__(self) -> None:
            from diffusers import ControlNetModel

            super().__init__()
            self.unet = conditional().requires_grad_(False)
            self.control = ControlNetModel.from_unet(self.unet, conditioning_embedding_out_channels=(8, 16))

    def loss(model: Any, batch: Any) -> torch.Tensor:
        latents, told, hint = batch
        noise = torch.randn_like(latents)
        noisy, times = schedule(noise, latents)
        down, middle = model.control(noisy, times, told, controlnet_cond=hint, return_dict=False)
        out = model.unet(noisy, times, told, down_block_additional_residuals=down, mid_block_additional_residual=middle)
        return F.mse_loss(out.sample, noise)

    batch = torch.randn(4, 4, 16, 16), torch.randn(4, 20, 48), torch.randn(4, 3, 32, 32)
    return recipe_of(Controlled, batch, loss=loss)


@diffusers
def rectified_flow() -> Recipe:
    """A transformer of two streams, trained on straight lines with times drawn as SD3 draws them."""

    def model() -> nn.Module:
        from diffusers import SD3Transformer2DModel

        return SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=4,
            joint_attention_dim=48, caption_projection_dim=64, pooled_projection_dim=32, out_channels=4,
            pos_embed_max_size=16,
        )  # fmt: skip

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        x, told, pooled = batch
        noise = torch.randn_like(x)
        share = torch.sigmoid(torch.randn(len(x)))[:, None, None, None]
        made = model(
            hidden_states=(1 - share) * x + share * noise, timestep=1000 * share.flatten(),
            encoder_hidden_states=told, pooled_projections=pooled,
        )  # fmt: skip
        return (made.sample - (noise - x)).square().mean()

    return recipe_of(model, (torch.randn(4, 4, 16, 16), torch.randn(4, 20, 48), torch.randn(4, 32)), loss=loss)


@diffusers
def latents_with_snr_weights() -> Recipe:
    """Latents from a frozen encoder, weights by the noise of each sample, gradients clipped, two micro-batches."""

    class Latent(nn.Module):
        def __init__(self) -> None:
            from diffusers import AutoencoderKL, UNet2DModel

            super().__init__()
            self.coder = AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 2,
                                       up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32),
                                       norm_num_groups=8).requires_grad_(False)  # fmt: skip
            self.unet = UNet2DModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
                                    block_out_channels=(32, 64), norm_num_groups=8,
                                    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                    up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip

    def loss(model: Any, batch: Any) -> torch.Tensor:
        from diffusers import DDPMScheduler
        from diffusers.training_utils import compute_snr

        with torch.no_grad():
            x = model.coder.encode(batch[0]).latent_dist.sample() * 0.18
        plan = DDPMScheduler(num_train_timesteps=1000)
        noise, times = torch.randn_like(x), torch.randint(0, 1000, (len(x),))
        snr = compute_snr(plan, times)
        weights = torch.stack([snr, 5 * torch.ones_like(times)], 1).min(1)[0] / snr
        out = model.unet(plan.add_noise(x, noise, times), times).sample
        return ((out - noise).square().mean((1, 2, 3)) * weights).mean()

    return recipe_of(
        Latent, (torch.randn(8, 3, 32, 32),), loss=loss, micro_batch_size=4, global_batch_tokens=8, max_grad_norm=1.0,
        tokens_per_sample=1,
    )  # fmt: skip
