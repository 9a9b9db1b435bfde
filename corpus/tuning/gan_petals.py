"""Points on the petals of a flower by two networks that play against each other; the judge is trained more often."""

import argparse
import itertools
import math

import torch
from torch import nn


def petals(count, generator=None):
    t = 2 * math.pi * torch.rand(count, generator=generator)
    r = 1 + 0.6 * torch.cos(5 * t)
    points = torch.stack([r * t.cos(), r * t.sin()], dim=1)
    return points + 0.02 * torch.randn(count, 2, generator=generator)


def mlp(sizes, slope):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[:-1])


def judge_loss(judge, real, forged):
    scores = torch.cat([judge(real), judge(forged.detach())])
    wanted = torch.cat([torch.full((len(real), 1), 0.9), torch.zeros(len(forged), 1)])
    return nn.functional.binary_cross_entropy_with_logits(scores, wanted)


def forger_loss(judge, forged):
    return nn.functional.softplus(-judge(forged)).mean()


def spread(points):
    """How far points are from the flower, on average."""
    with torch.no_grad():
        flower = petals(400, torch.Generator().manual_seed(9))
        return torch.cdist(points, flower).amin(dim=1).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--judgements", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(33)
    forger, judge = mlp([4, 48, 48, 2], 0.2), mlp([2, 48, 48, 1], 0.2)
    forge_opt = torch.optim.Adam(forger.parameters(), lr=1e-3, betas=(0.5, 0.99))
    judge_opt = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.99))
    fixed = torch.randn(200, 4)
    for step in range(args.steps):
        for _ in range(args.judgements):
            loss_j = judge_loss(judge, petals(64), forger(torch.randn(64, 4)))
            judge_opt.zero_grad()
            loss_j.backward()
            judge_opt.step()
        loss_f = forger_loss(judge, forger(torch.randn(64, 4)))
        forge_opt.zero_grad()
        loss_f.backward()
        forge_opt.step()
        if step % 40 == 39:
            with torch.no_grad():
                points = forger(fixed)
            print(f"{step + 1} judge {loss_j.item():.3f} forger {loss_f.item():.3f} off by {spread(points):.3f}")
    torch.save({"forger": forger.state_dict(), "judge": judge.state_dict()}, "petals.pt")


if __name__ == "__main__":
    main()
