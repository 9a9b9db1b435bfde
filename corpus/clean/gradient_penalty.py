"""A WGAN with gradient penalty on points of a ring; both networks are plain sequences of layers."""

import torch
from torch import autograd, nn

torch.manual_seed(1)


def ring(count):
    angle = 6.2832 * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))


def penalty(real, made):
    mixed = torch.lerp(real, made, torch.rand(len(real), 1)).requires_grad_(True)
    (slopes,) = autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return ((slopes.norm(dim=1) - 1) ** 2).mean()


for step in range(40):
    for _ in range(3):
        real, made = ring(64), generator(torch.randn(64, 4)).detach()
        loss = critic(made).mean() - critic(real).mean() + 10 * penalty(real, made)
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
    wanted = -critic(generator(torch.randn(64, 4))).mean()
    of_generator.zero_grad()
    wanted.backward()
    of_generator.step()
    if step % 10 == 9:
        print(f"step {step} critic {loss.item():.3f} generator {wanted.item():.3f}")
