"""Satisfaction from 1 to 5 stars as an ordinal target: shared score, ordered cut points, a weighted sampler."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


@dataclass
class Config:
    rows: int = 900
    levels: int = 5
    batch: int = 32
    epochs: int = 5
    lr: float = 8e-3
    seed: int = 17


def make_survey(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    region = torch.randint(0, 6, (cfg.rows,), generator=g)
    answers = torch.randn(cfg.rows, 5, generator=g)
    effect = torch.tensor([-1.0, -0.5, 0.0, 0.3, 0.6, 1.1])[region]
    latent = answers[:, 0] + 0.8 * answers[:, 1].tanh() - 0.6 * answers[:, 2] * answers[:, 3] + effect
    latent = latent + 0.3 * torch.randn(cfg.rows, generator=g)
    stars = torch.bucketize(latent, torch.tensor([-2.0, -1.0, 0.8, 2.0]))
    return answers, region, stars


class Ordinal(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.region = nn.Embedding(6, 3)
        self.hidden = nn.Linear(5 + 3, 40)
        self.mix = nn.Linear(40, 40)
        self.score = nn.Linear(40, 1, bias=False)
        self.first_cut = nn.Parameter(torch.tensor(-1.5))
        self.gaps = nn.Parameter(torch.full((levels - 2,), 0.5))

    def forward(self, answers, region):
        h = F.relu(self.hidden(torch.cat([answers, self.region(region)], dim=-1)))
        h = F.relu(self.mix(h))
        cuts = torch.cat([self.first_cut[None], self.first_cut + F.softplus(self.gaps).cumsum(0)])
        return self.score(h) - cuts  # logits of "more than k stars", one column each


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        answers, region, stars = make_survey(cfg)
        held = cfg.rows // 5
        self.test = (answers[:held], region[:held], stars[:held])
        train = TensorDataset(answers[held:], region[held:], stars[held:])
        counts = torch.bincount(stars[held:], minlength=cfg.levels).float()
        weights = counts.rsqrt()[stars[held:]]
        sampler = WeightedRandomSampler(weights, num_samples=len(train), replacement=True)
        self.loader = DataLoader(train, batch_size=cfg.batch, sampler=sampler)
        self.model = Ordinal(cfg.levels)
        self.optim = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.StepLR(self.optim, step_size=2, gamma=0.5)

    def targets(self, stars):
        return (stars[:, None] > torch.arange(self.cfg.levels - 1)).float()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            total = rows = 0
            for answers, region, stars in self.loader:
                logits = self.model(answers, region)
                loss = F.binary_cross_entropy_with_logits(logits, self.targets(stars))
                self.optim.zero_grad(set_to_none=True)
                loss.backward()
                self.optim.step()
                total += loss.item() * len(stars)
                rows += len(stars)
            self.sched.step()
            error, exact = self.evaluate()
            print(f"epoch {epoch} loss {total / rows:.3f} | off by {error:.2f} stars, exact {exact:.2f}")

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        answers, region, stars = self.test
        guess = (self.model(answers, region) > 0).sum(dim=1)
        return (guess - stars).abs().float().mean().item(), (guess == stars).float().mean().item()


if __name__ == "__main__":
    Trainer(Config()).fit()
