import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self, noise=8, width=24, features=16):
        super().__init__()
        self.expand = nn.Linear(noise, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, features)

    def forward(self, z):
        h = F.leaky_relu(self.expand(z), 0.2)
        h = torch.tanh(self.mix(h))
        return self.out(h)


class Critic(nn.Module):
    def __init__(self, features=16, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.Tanh())
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.body(x)).squeeze(1)


def real_batch(size):
    angles = torch.rand(size, 1) * 6.28
    return torch.cat([torch.sin(angles * k) for k in range(1, 17)], dim=1)


def train(steps=4, batch=10):
    generator, critic = Generator(), Critic()
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for step in range(steps):
        real = real_batch(batch)
        noise = torch.randn(batch, 8)
        fake = generator(noise)
        ones = torch.ones(batch)
        zeros = torch.zeros(batch)
        loss_real = F.binary_cross_entropy_with_logits(critic(real), ones)
        loss_fake = F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
        critic_loss = loss_real + loss_fake
        for_critic.zero_grad()
        critic_loss.backward()
        for_critic.step()
        judged = critic(fake)
        generator_loss = F.binary_cross_entropy_with_logits(judged, ones)
        for_generator.zero_grad()
        generator_loss.backward()
        for_generator.step()
    return generator


train()
