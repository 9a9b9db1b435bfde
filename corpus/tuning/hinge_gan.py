"""A hinge GAN with spectral normalisation draws spirals; two critic steps for one of the generator."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(51)


def spiral(n):
    t = torch.rand(n, 1) * 6
    return torch.cat([t * torch.cos(t), t * torch.sin(t)], 1) / 6 + 0.02 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self, noise=8):
        super().__init__()
        self.noise = noise
        self.body = nn.Sequential(nn.Linear(noise, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, n):
        return self.body(torch.randn(n, self.noise))


def critic_net():
    layers = [nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)]
    first, second, last = (spectral_norm(layer) for layer in layers)
    return nn.Sequential(first, nn.LeakyReLU(0.2), second, nn.LeakyReLU(0.2), last)


gen, critic = Generator(), critic_net()
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.0, 0.9))
for it in range(25):
    for _ in range(2):
        with torch.no_grad():
            fake = gen(64)
        c_loss = torch.relu(1 - critic(spiral(64))).mean() + torch.relu(1 + critic(fake)).mean()
        opt_c.zero_grad()
        c_loss.backward()
        opt_c.step()
    critic.requires_grad_(False)
    g_loss = -critic(gen(64)).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    critic.requires_grad_(True)
    if it % 8 == 0:
        print(it, round(c_loss.item(), 3), round(g_loss.item(), 3))
gen.eval()
with torch.no_grad():
    print("mean radius", gen(200).norm(dim=1).mean().item())
