"""Trains a class-conditional diffusion model by v-prediction with diffusers and Accelerate, with guidance dropout.

Needs diffusers, accelerate, numpy.
"""

import argparse
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--resolution", type=int, default=32)
    parser.add_argument("--train_batch_size", type=int, default=8)
    parser.add_argument("--num_epochs", type=int, default=2)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--lr_warmup_steps", type=int, default=3)
    parser.add_argument("--snr_gamma", type=float, default=5.0)
    parser.add_argument("--mixed_precision", default="no", choices=["no", "fp16", "bf16"])
    parser.add_argument("--output_dir", default="ddpm-model")
    return parser.parse_args()


def main(args):
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision=args.mixed_precision
    )
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=args.resolution,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(32, 64, 96),
        norm_num_groups=16,
        num_class_embeds=args.classes + 1,
        attention_head_dim=16,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )
    noise_scheduler = DDPMScheduler(
        num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.95, 0.999), weight_decay=1e-6)
    data = TensorDataset(
        torch.randn(40, 1, args.resolution, args.resolution).clamp(-1, 1), torch.randint(0, args.classes, (40,))
    )
    loader = DataLoader(data, batch_size=args.train_batch_size, shuffle=True)
    lr_scheduler = get_cosine_schedule_with_warmup(optimizer, args.lr_warmup_steps, len(loader) * args.num_epochs)
    model, optimizer, loader, lr_scheduler = accelerator.prepare(model, optimizer, loader, lr_scheduler)

    global_step = 0
    for _epoch in range(args.num_epochs):
        model.train()
        for clean_images, labels in loader:
            noise = torch.randn(clean_images.shape, device=clean_images.device)
            bsz = clean_images.shape[0]
            steps = noise_scheduler.config.num_train_timesteps
            timesteps = torch.randint(0, steps, (bsz,), device=clean_images.device).long()
            noisy = noise_scheduler.add_noise(clean_images, noise, timesteps)
            dropped = torch.rand(bsz, device=labels.device) < 0.1
            labels = torch.where(dropped, args.classes, labels)
            with accelerator.accumulate(model):
                output = model(noisy, timesteps, class_labels=labels).sample
                target = noise_scheduler.get_velocity(clean_images, noise, timesteps)
                alphas = noise_scheduler.alphas_cumprod.to(timesteps.device)[timesteps]
                snr = alphas / (1 - alphas)
                weight = torch.clamp(snr, max=args.snr_gamma) / (snr + 1)
                loss = (F.mse_loss(output.float(), target.float(), reduction="none").mean([1, 2, 3]) * weight).mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            global_step += 1
            logs = {"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0], "step": global_step}
            if not math.isfinite(logs["loss"]):
                raise RuntimeError("diverged")
            accelerator.print(logs)

    if accelerator.is_main_process:
        unet = accelerator.unwrap_model(model).eval()
        sampler = DDIMScheduler.from_config(noise_scheduler.config)
        sampler.set_timesteps(3)
        sample = torch.randn(args.classes, 1, args.resolution, args.resolution, device=accelerator.device)
        classes = torch.arange(args.classes, device=accelerator.device)
        with torch.no_grad():
            for t in sampler.timesteps:
                guided = unet(sample, t, class_labels=classes).sample
                free = unet(sample, t, class_labels=torch.full_like(classes, args.classes)).sample
                sample = sampler.step(free + 2.0 * (guided - free), t, sample).prev_sample
        os.makedirs(args.output_dir, exist_ok=True)
        np.save(os.path.join(args.output_dir, "samples.npy"), (sample / 2 + 0.5).clamp(0, 1).cpu().numpy())
        unet.save_pretrained(os.path.join(args.output_dir, "unet"))


if __name__ == "__main__":
    main(parse_args())
