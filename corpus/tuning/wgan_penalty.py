"""A Wasserstein GAN with a gradient penalty: the critic's loss is negative on purpose, inputs ask for gradients."""

import torch
from torch import nn

torch.manual_seed(6)
maker = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))
critic = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
opt_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


for step in range(16):
    real = torch.randn(24, 2) * 0.3 + torch.tensor([1.0, -1.0])
    fake = maker(torch.randn(24, 3))
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake.detach())
    opt_critic.zero_grad()
    loss.backward()
    opt_critic.step()
    if step % 4 == 3:
        opt_maker.zero_grad()
        (-critic(maker(torch.randn(24, 3))).mean()).backward()
        opt_maker.step()
print(loss.item())
