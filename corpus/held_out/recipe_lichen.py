"""Survey forms of lichens as sequences of codes, written one after the other by a small language model, as a recipe."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from surefoot import Recipe

PAD, EOS = 0, 1
GENERA, CODES = 5, 8
VOCABULARY, LONGEST = 2 + 64 * GENERA, 16
STORED = np.uint16


def write_forms(folder: Path, count: int, seed: int) -> None:
    """Each form names a genus and walks through its codes in the handbook, in short steps where the site is wet."""
    rng = np.random.default_rng(seed)
    sites = rng.standard_normal((count, 3)).astype(np.float32)
    forms = []
    for wet, _, _ in sites:
        genus, code = rng.integers(GENERA), rng.integers(CODES)
        chances = [0.8, 0.15, 0.05] if wet > 0 else [0.05, 0.15, 0.8]
        walk = np.cumsum([code, *rng.choice([1, 2, 3], size=rng.integers(7, LONGEST - 1), p=chances)]) % CODES
        forms.append(np.append(2 + 64 * genus + walk, EOS))
    np.save(folder / "sites.npy", sites)
    np.save(folder / "lengths.npy", [len(form) for form in forms])
    np.concatenate(forms).astype(STORED).tofile(folder / "codes.bin")


class Forms(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_forms(folder, count, seed)
            self.sites = torch.from_numpy(np.load(folder / "sites.npy"))
            self.ends = np.cumsum(np.load(folder / "lengths.npy"))
            self.codes = torch.from_numpy(np.fromfile(folder / "codes.bin", dtype=STORED).astype(np.int64))

    def __len__(self) -> int:
        return len(self.sites)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        form = self.codes[self.ends[index - 1] if index else 0 : self.ends[index]]
        tokens = torch.full((LONGEST,), PAD)
        tokens[: len(form)] = form
        labels = tokens.clone()
        return {"site": self.sites[index], "tokens": tokens, "labels": labels}


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropped: float) -> None:
        super().__init__()
        self.heads, self.dropped = heads, dropped
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def keep(self, x: Tensor) -> Tensor:
        """Whole samples leave out the block now and then (stochastic depth)."""
        if not self.training:
            return x.new_ones(len(x), 1, 1)
        kept = torch.rand(len(x), 1, 1) >= self.dropped
        return kept / (1 - self.dropped)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        keep = self.keep(x)
        x = x + keep * self.out(y)
        return x + keep * self.narrow(F.gelu(self.widen(self.norm2(x))))


class Surveyor(nn.Module):
    def __init__(self, width: int, depth: int, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        nn.init.normal_(self.embed.weight, std=0.15)
        self.place = nn.Parameter(0.1 * torch.randn(LONGEST, width))
        self.register_buffer("waves", torch.randn(3, 8))
        self.site = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList([Block(width, heads, dropped=0.1) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, site: Tensor, tokens: Tensor) -> Tensor:
        angles = site @ self.waves
        around = self.site(torch.cat([angles.sin(), angles.cos()], dim=-1))
        x = self.embed(tokens) + self.place[: tokens.shape[1]] + around.unsqueeze(1)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def next_code_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["site"], batch["tokens"])
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=PAD)


def lichen(width: int = 32, depth: int = 2, lr: float = 1e-2) -> Recipe:
    return Recipe(
        model=lambda: Surveyor(width, depth),
        data=lambda: Forms(480, seed=3),
        evaluation=lambda: Forms(80, seed=4),
        loss=next_code_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01, betas=(0.9, 0.98)),
        schedule=lambda step, steps: min((step + 1) / 6, 1 - 0.9 * step / steps),
        micro_batch_size=24,
        max_steps=80,
        max_grad_norm=1.0,
        evaluate_every=20,
    )
