"""A GAN of small bars whose discriminator is punished for steep gradients at real pictures, every fourth step."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def bars(n, g):
    picture = torch.zeros(n, 1, 8, 8)
    column = torch.randint(0, 7, (n,), generator=g)
    for i, c in enumerate(column.tolist()):
        picture[i, :, :, c : c + 2] = 1.0
    return picture + 0.05 * torch.randn(n, 1, 8, 8, generator=g)


class Draw(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(10, 16 * 4)
        self.grow = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.last = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, z):
        x = F.leaky_relu(self.start(z), 0.2).view(-1, 16, 2, 2)
        return torch.sigmoid(self.last(F.leaky_relu(self.grow(x), 0.2)))


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.Softplus(), nn.Conv2d(8, 16, 3, 2, 1), nn.Softplus())
        self.verdict = nn.Linear(64, 1)

    def forward(self, x):
        return self.verdict(self.net(x).flatten(1)).squeeze(1)


def judge_step(draw, judge, opt, real, penalise):
    fake = draw(torch.randn(len(real), 10)).detach()
    loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()
    if penalise:
        real = real.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(judge(real).sum(), real, create_graph=True)
        loss = loss + 0.5 * slope.square().flatten(1).sum(1).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


def draw_step(draw, judge, opt, n):
    loss = F.softplus(-judge(draw(torch.randn(n, 10)))).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(62)
    g = torch.Generator().manual_seed(63)
    draw, judge = Draw(), Judge()
    opt_draw = torch.optim.Adam(draw.parameters(), 2e-3, betas=(0.5, 0.99))
    opt_judge = torch.optim.Adam(judge.parameters(), 2e-3, betas=(0.5, 0.99))
    for step in range(32):
        j = judge_step(draw, judge, opt_judge, bars(32, g), penalise=step % 4 == 0)
        d = draw_step(draw, judge, opt_draw, 32)
        if step % 8 == 7:
            print(f"{step + 1}: judge {j:.3f} draw {d:.3f}")
