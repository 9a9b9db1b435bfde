"""Hand-written LoRA: a small causal transformer learns one dialect, then low-rank adapters learn another."""
import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, IGNORE = 0, -100
TARGETS = ("query", "value", "up_proj", "down_proj")


@dataclass
class Recipe:
    vocab: int = 25
    prompt_len: int = 5
    max_len: int = 30
    width: int = 48
    updates: tuple = (60, 70)  # pretraining, adaptation
    micro_batch: int = 24
    accumulate: int = 2
    rank: int = 6
    alpha: float = 18.0
    seed: int = 29


class Dialect:
    """A sharp Markov chain over tokens 1..vocab-1. `changed` tokens have followers of their own."""

    def __init__(self, vocab, seed, parent=None, changed=0):
        gen = torch.Generator().manual_seed(seed)
        self.table = torch.full((vocab, vocab), 0.1 / (vocab - 1)) if parent is None else parent.table.clone()
        which = torch.arange(1, vocab) if parent is None else torch.randperm(vocab - 1, generator=gen)[:changed] + 1
        for token in which.tolist():
            self.table[token] = 0.1 / (vocab - 1)
            self.table[token, torch.randperm(vocab - 1, generator=gen)[:2] + 1] += torch.tensor([0.65, 0.25])
        self.table[:, PAD] = 0.0

    def draw(self, n, cfg, gen):
        """Tokens and labels: the random prompt and the padding are not to be predicted."""
        tokens = torch.randint(1, cfg.vocab, (n, cfg.max_len), generator=gen)
        for t in range(cfg.prompt_len, cfg.max_len):
            tokens[:, t] = torch.multinomial(self.table[tokens[:, t - 1]], 1, generator=gen).squeeze(1)
        length, position = torch.randint(cfg.max_len // 2, cfg.max_len + 1, (n, 1), generator=gen), torch.arange(cfg.max_len)
        tokens = tokens.masked_fill(position >= length, PAD)
        labels = tokens.masked_fill(position < cfg.prompt_len, IGNORE)
        labels = labels.masked_fill(position >= length, IGNORE)
        return tokens, labels


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up_proj, self.down_proj = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (f(h).unflatten(-1, (4, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down_proj(F.gelu(self.up_proj(self.norm2(x))))


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.token, self.place = nn.Embedding(cfg.vocab, cfg.width, padding_idx=PAD), nn.Embedding(cfg.max_len, cfg.width)
        self.blocks = nn.ModuleList([Block(cfg.width) for _ in range(2)])
        self.norm, self.readout = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.vocab)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.readout(self.norm(x))


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha, dropout=0.05):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features ** 0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale, self.drop = alpha / rank, nn.Dropout(dropout)

    def forward(self, x):
        return self.base(x) + self.scale * (self.drop(x) @ self.lora_a.T @ self.lora_b.T)

    @torch.no_grad()
    def merged(self):
        plain = copy.deepcopy(self.base)
        plain.weight += self.scale * (self.lora_b @ self.lora_a)
        return plain


def inject(model, cfg):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in TARGETS:
            setattr(block, name, LoRALinear(getattr(block, name), cfg.rank, cfg.alpha))
    return model


def merge(model):
    for block in model.blocks:
        for name in TARGETS:
            setattr(block, name, getattr(block, name).merged())


def adapter_weights(model):
    return {name: value.clone() for name, value in model.state_dict().items() if "lora_" in name}


def lm_loss(model, tokens, labels):
    logits = model(tokens)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)


def run(model, dialect, cfg, updates, lr, gen):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    recent = []
    model.train()
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(cfg.accumulate):
            loss = lm_loss(model, *dialect.draw(cfg.micro_batch, cfg, gen))
            (loss / cfg.accumulate).backward()
            recent.append(loss.item())
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
    return sum(recent[-10:]) / 10


@torch.no_grad()
def evaluate(model, dialect, cfg):
    model.eval()
    return lm_loss(model, *dialect.draw(256, cfg, torch.Generator().manual_seed(cfg.seed + 500))).item()


def main(cfg=Recipe()):
    torch.set_num_threads(1)
    gen = torch.manual_seed(cfg.seed)
    north = Dialect(cfg.vocab, seed=1)
    south = Dialect(cfg.vocab, seed=2, parent=north, changed=12)
    base = TinyLM(cfg)
    pre = run(base, north, cfg, cfg.updates[0], 6e-3, gen)
    print(f"pretrained: train loss {pre:.3f}  eval north {evaluate(base, north, cfg):.3f}  eval south {evaluate(base, south, cfg):.3f}")
    tuned = inject(copy.deepcopy(base), cfg)
    loss = run(tuned, south, cfg, cfg.updates[1], 1e-2, gen)
    served = inject(copy.deepcopy(base), cfg)
    served.load_state_dict(adapter_weights(tuned), strict=False)
    merge(served)
    print(f"final: train loss {loss:.3f}  eval south before {evaluate(base, south, cfg):.3f}  served {evaluate(served, south, cfg):.3f}")


if __name__ == "__main__":
    main()
