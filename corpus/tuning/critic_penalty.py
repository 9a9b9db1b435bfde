"""A critic with a gradient penalty: gradients of its outputs to mixed samples are themselves differentiated."""

import torch
from torch import autograd, nn, optim


def petals(count):
    angle = 6.2832 * torch.rand(count)
    radius = 1 + 0.5 * torch.cos(5 * angle)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def net(inside, outside):
    return nn.Sequential(nn.Linear(inside, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, outside))


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (slope,) = autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(2, dim=1) - 1).square().mean()


def main():
    torch.manual_seed(310)
    critic, maker = net(2, 1), net(3, 2)
    critic_opt = optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    maker_opt = optim.Adam(maker.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for round_ in range(12):
        for _ in range(3):
            real = petals(32)
            with torch.no_grad():
                fake = maker(torch.randn(32, 3))
            distance = critic(fake).mean() - critic(real).mean()
            critic_loss = distance + 10 * penalty(critic, real, fake)
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()
        critic.requires_grad_(False)
        maker_loss = -critic(maker(torch.randn(32, 3))).mean()
        maker_opt.zero_grad()
        maker_loss.backward()
        maker_opt.step()
        critic.requires_grad_(True)
    print(f"distance {-distance.item():.3f}")


if __name__ == "__main__":
    main()
