"""A UNet of diffusers with an average of its weights, noise from a generator of the card, and samples at the end."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
unet = UNet2DModel(
    sample_size=24, layers_per_block=1, block_out_channels=(32, 48, 64), norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
average = EMAModel(unet.parameters(), decay=0.999, model_cls=UNet2DModel, model_config=unet.config)
unet.to(device)
average.to(device)
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
generator = torch.Generator(device=device).manual_seed(0)
for step in range(5):
    clean = torch.rand(6, 3, 24, 24).to(device)
    noise = torch.randn(clean.shape, device=device, generator=generator)
    times = torch.randint(0, scheduler.config.num_train_timesteps, (len(clean),), device=device).long()
    noisy = scheduler.add_noise(clean, noise, times)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        predicted = unet(noisy, times, return_dict=False)[0]
    loss = torch.nn.functional.mse_loss(predicted.float(), noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    average.step(unet.parameters())
    print(step, loss.detach().item(), average.cur_decay_value)
average.copy_to(unet.parameters())
with torch.inference_mode():
    image = torch.randn(2, 3, 24, 24, device=device)
    scheduler.set_timesteps(3)
    for time in scheduler.timesteps:
        image = scheduler.step(unet(image, time).sample, time, image).prev_sample
print(image.clamp(-1, 1).cpu().numpy().shape)
