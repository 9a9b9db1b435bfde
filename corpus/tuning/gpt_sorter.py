"""A GPT that learns to sort digits, in the manner of minGPT: a Trainer class with a run method."""

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3407)


class SortDataset(Dataset):
    """Six digits, then the same digits sorted; the loss looks at the second half only."""

    def __init__(self, split, length=6, digits=4):
        rows = torch.randint(digits, (2000, length), generator=torch.Generator().manual_seed(5))
        of_test = rows.sum(1) % 4 == 0
        self.rows = rows[of_test][:64] if split == "test" else rows[~of_test][:256]
        self.length = length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        inp = self.rows[idx]
        cat = torch.cat((inp, torch.sort(inp)[0]))
        x = cat[:-1].clone()
        y = cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


class SelfAttention(nn.Module):
    def __init__(self, width, heads, pdrop):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.heads, self.pdrop = heads, pdrop

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.pdrop if self.training else 0.0, is_causal=True)
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.proj(y)


class Layer(nn.Module):
    def __init__(self, width, heads, pdrop):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, pdrop)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(pdrop))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab=4, block=11, width=24, heads=3, layers=2, pdrop=0.1):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(torch.zeros(1, block, width))
        self.drop = nn.Dropout(pdrop)
        self.layers = nn.Sequential(*[Layer(width, heads, pdrop) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        nn.init.normal_(self.pos, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.drop(self.tok(idx) + self.pos[:, : idx.shape[1]])
        x = self.layers(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


class Trainer:
    def __init__(self, model, train_dataset, max_iters=20, batch_size=32, lr=5e-4, grad_norm_clip=1.0):
        self.model, self.dataset = model, train_dataset
        self.max_iters, self.batch_size, self.lr = max_iters, batch_size, lr
        self.grad_norm_clip = grad_norm_clip

    def run(self):
        model = self.model
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.lr, betas=(0.9, 0.95))
        loader = DataLoader(
            self.dataset,
            sampler=torch.utils.data.RandomSampler(self.dataset, replacement=True, num_samples=10_000),
            batch_size=self.batch_size,
        )
        model.train()
        iter_num = 0
        data_iter = iter(loader)
        while iter_num < self.max_iters:
            x, y = next(data_iter)
            logits, loss = model(x, y)
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.grad_norm_clip)
            optimizer.step()
            if iter_num % 5 == 0:
                print(f"iter {iter_num}: train loss {loss.item():.5f}")
            iter_num += 1


def evaluate(model, dataset):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(dataset, batch_size=32):
            logits, _ = model(x)
            n = dataset.length - 1
            right += (logits[:, n:].argmax(-1) == y[:, n:]).all(1).sum().item()
    print(f"{right}/{len(dataset)} sorted right")


model = GPT()
trainer = Trainer(model, SortDataset("train"))
trainer.run()
evaluate(model, SortDataset("test"))
