"""Two-voice music as tokens: a decoder recipe with packed pieces, positions that begin anew, and a tied vocabulary."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

NOTES, LENGTH, BLANK = 48, 32, -100


class Pieces(Dataset):
    """Rows of short pieces, one after the other; `piece` numbers them, `place` counts within each."""

    def __init__(self, rows: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(rows):
            notes, piece, place = [], [], []
            while len(notes) <= LENGTH:
                size, start, jump = (int(torch.randint(*span, (), generator=g)) for span in ((6, 14), (0, 40), (1, 6)))
                tune = [start]
                for _ in range(size - 1):
                    tune.append((tune[-1] + jump * int(torch.randint(1, 3, (), generator=g))) % NOTES)
                notes += tune
                piece += [len(set(piece))] * size
                place += range(size)
            self.rows.append([torch.tensor(part[: LENGTH + 1]) for part in (notes, piece, place)])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        notes, piece, place = self.rows[index]
        following = notes[1:].where(piece[1:] == piece[:-1], BLANK)
        return {"notes": notes[:-1], "piece": piece[:-1], "place": place[:-1], "following": following}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.05)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        rows, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(rows, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])
        x = x + self.merge(mixed.transpose(1, 2).reshape(rows, length, width))
        y = self.norms[1](x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class Composer(nn.Module):
    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.notes = nn.Embedding(NOTES, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        self.score = nn.Linear(width, NOTES, bias=False)
        nn.init.normal_(self.notes.weight, std=0.05)
        self.score.weight = self.notes.weight

    def forward(self, notes: Tensor, piece: Tensor, place: Tensor) -> Tensor:
        x = self.notes(notes) + self.places(place)
        past = torch.ones(notes.shape[1], notes.shape[1], dtype=torch.bool, device=notes.device).tril()
        visible = past & (piece[:, :, None] == piece[:, None, :])
        for block in self.blocks:
            x = block(x, visible)
        return self.score(self.norm(x))


def note_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits = model(batch["notes"], batch["piece"], batch["place"])
    targets = batch["following"]
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=BLANK, reduction="sum")
    return total, (targets != BLANK).sum()


def music(width: int = 32, heads: int = 4, depth: int = 2, lr: float = 4e-3) -> Recipe:
    return Recipe(
        model=lambda: Composer(width, heads, depth),
        data=lambda: Pieces(256, seed=1),
        evaluation=lambda: Pieces(24, seed=2),
        loss=note_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05),
        schedule=lambda step, steps: min(1.0, (step + 1) / 4),
        micro_batch_size=8,
        tokens_per_sample=LENGTH,
        global_batch_tokens=2 * 8 * LENGTH,
        max_steps=30,
        max_grad_norm=1.0,
        evaluate_every=15,
    )
