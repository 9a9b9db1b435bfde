"""Tone of short messages by a transformer: lower layers learn more slowly, norms and biases are not decayed."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORDS, LONGEST, PAD = 60, 12, 0


class Messages(Dataset):
    """Words 1 to 59; some are kind, some rude, and a word below 6 turns the word after it round."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        tone = torch.randn(WORDS, generator=torch.Generator().manual_seed(50))
        self.rows = []
        while len(self.rows) < count:
            length = int(torch.randint(5, LONGEST + 1, (), generator=g))
            words = torch.randint(1, WORDS, (length,), generator=g)
            turned = torch.cat([torch.ones(1), torch.where(words[:-1] < 6, -1.0, 1.0)])
            score = (tone[words] * turned).sum()
            if score.abs() > 0.5:
                self.rows.append((words, int(score > 0)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    words, tone = zip(*rows, strict=True)
    return nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=PAD), torch.tensor(tone)


class ToneModel(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.places = nn.Embedding(LONGEST, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, words):
        padding = words == PAD
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        x = self.norm(x).masked_fill(padding.unsqueeze(2), 0.0)
        return self.head(x.sum(dim=1) / (~padding).sum(dim=1, keepdim=True))


def parameter_groups(model, lr, decay, layer_decay):
    """One group for each depth, with and without weight decay."""
    depth = len(model.layers)
    groups = {}
    for name, parameter in model.named_parameters():
        if name.startswith(("words", "places")):
            level = 0
        elif name.startswith("layers."):
            level = 1 + int(name.split(".")[1])
        else:
            level = depth + 1
        decayed = parameter.ndim > 1 and level > 0
        scale = layer_decay ** (depth + 1 - level)
        group = groups.setdefault(
            (level, decayed), {"params": [], "lr": lr * scale, "weight_decay": decay if decayed else 0.0}
        )
        group["params"].append(parameter)
    return list(groups.values())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, right, count = 0.0, 0, 0
    for words, tone in loader:
        logits = model(words)
        loss += F.cross_entropy(logits, tone, reduction="sum").item()
        right += (logits.argmax(dim=1) == tone).sum().item()
        count += len(tone)
    return loss / count, right / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--layer-decay", type=float, default=0.8)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(46)
    train = DataLoader(Messages(800, seed=1), batch_size=32, shuffle=True, collate_fn=collate)
    valid = DataLoader(Messages(150, seed=2), batch_size=64, collate_fn=collate)
    model = ToneModel()
    optimizer = torch.optim.AdamW(parameter_groups(model, args.lr, args.decay, args.layer_decay))
    total, warm = args.epochs * len(train), 10
    factor = lambda s: min((s + 1) / warm, 0.5 * (1 + math.cos(math.pi * s / total)))  # noqa: E731
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for words, tone in train:
            loss = F.cross_entropy(model(words), tone)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item() * len(tone)
        loss, right = evaluate(model, valid)
        print(f"epoch {epoch}: train {running / len(train.dataset):.4f}, valid {loss:.4f}, right {right:.3f}")


if __name__ == "__main__":
    main()
