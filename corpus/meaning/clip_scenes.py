"""CLIP-like contrastive training of an image tower and a text tower on small rendered scenes and their captions."""
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

COLORS = {"red": (1, .1, .1), "green": (.1, .9, .2), "blue": (.15, .2, 1), "yellow": (1, .9, .1),
          "white": (1, 1, 1), "purple": (.7, .1, .8)}
SHAPES = ["square", "disc", "cross", "bar", "frame"]
PLACES = {"top left": (4, 4), "top right": (4, 11), "bottom left": (11, 4), "bottom right": (11, 11)}
SIZES = {"small": 2, "large": 3}
TEMPLATES = ["a {size} {color} {shape} in the {place}", "the {place} shows a {size} {shape} in {color}",
             "{size} {color} {shape} , {place}"]


@dataclass
class Options:
    dim: int = 32
    batch: int = 60
    epochs: int = 36
    lr: float = 4e-3
    weight_decay: float = 0.05
    temperature: float = 0.1
    test_share: float = 0.25
    seed: int = 17


class Vocabulary:
    def __init__(self):
        words = " ".join(TEMPLATES).replace("{", "").replace("}", "").split()
        words += list(COLORS) + SHAPES + list(SIZES) + " ".join(PLACES).split()
        self.ids = {w: i + 1 for i, w in enumerate(dict.fromkeys(words))}
        self.size = len(self.ids) + 1

    def encode(self, captions):
        rows = [[self.ids[w] for w in c.split()] for c in captions]
        out = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, row in enumerate(rows):
            out[i, :len(row)] = torch.tensor(row)
        return out


def render(scene, rng):
    color, shape, place, size = scene
    y, x = np.mgrid[:16, :16]
    cy, cx = np.array(PLACES[place]) + rng.uniform(-1, 1, 2)
    dy, dx, r = abs(y - cy), abs(x - cx), SIZES[size]
    box = np.maximum(dy, dx)
    mask = {"square": box <= r, "disc": np.hypot(dy, dx) <= r, "cross": (np.minimum(dy, dx) < 1) & (box <= r),
            "bar": (dy < 1.2) & (dx <= r), "frame": (box <= r) & (box > r - 1.2)}[shape]
    image = mask[None] * np.array(COLORS[color])[:, None, None] * rng.uniform(0.8, 1)
    return (image + rng.normal(0, 0.08, (3, 16, 16))).astype(np.float32)


def describe(scene, rng):
    return TEMPLATES[rng.integers(len(TEMPLATES))].format(**dict(zip(("color", "shape", "place", "size"), scene)))


class SceneSet:
    # every scene is one item; noise, position and wording are drawn anew each time
    def __init__(self, scenes, vocab, seed):
        self.scenes, self.vocab, self.rng = scenes, vocab, np.random.default_rng(seed)

    def batch(self, indices):
        chosen = [self.scenes[i] for i in indices]
        images = torch.from_numpy(np.stack([render(s, self.rng) for s in chosen]))
        captions = [describe(s, self.rng) for s in chosen]
        return images, self.vocab.encode(captions)


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.GELU(), nn.Conv2d(24, 32, 3, 2, 1), nn.GELU())
        self.proj = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, images):
        return self.proj(self.conv(images))


class TextTower(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.words = nn.Embedding(vocab_size, 48, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Dropout(0.05), nn.Linear(96, dim))

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        return self.mlp((self.words(tokens) * mask).sum(1) / mask.sum(1))


class SceneCLIP(nn.Module):
    def __init__(self, vocab_size, opt):
        super().__init__()
        self.image, self.text = ImageTower(opt.dim), TextTower(vocab_size, opt.dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / opt.temperature)))

    def forward(self, images, tokens):
        u = F.normalize(self.image(images), dim=-1)
        v = F.normalize(self.text(tokens), dim=-1)
        return self.logit_scale.exp() * u @ v.T


def contrastive_loss(logits):
    labels = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels))


def make_optimizer(model, opt):
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": opt.weight_decay},
              {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=opt.lr)


@torch.no_grad()
def retrieval(model, data):
    """Recall@1 of images to captions and back, over the whole set."""
    model.eval()
    images, tokens = data.batch(range(len(data.scenes)))
    logits = model(images, tokens)
    truth = torch.arange(len(logits))
    return (logits.argmax(1) == truth).float().mean().item(), (logits.argmax(0) == truth).float().mean().item()


def main():
    opt = Options()
    torch.manual_seed(opt.seed)
    rng = np.random.default_rng(opt.seed)
    scenes = list(itertools.product(COLORS, SHAPES, PLACES, SIZES))
    rng.shuffle(scenes)
    held, vocab = int(len(scenes) * opt.test_share), Vocabulary()
    train_set = SceneSet(scenes[held:], vocab, seed=1)
    test_set = SceneSet(scenes[:held], vocab, seed=2)
    model = SceneCLIP(vocab.size, opt)
    optimizer = make_optimizer(model, opt)
    for epoch in range(opt.epochs):
        model.train()
        losses = []
        order = rng.permutation(len(train_set.scenes))
        for start in range(0, len(order), opt.batch):
            images, tokens = train_set.batch(order[start:start + opt.batch])
            loss = contrastive_loss(model(images, tokens))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(max=math.log(50))
            losses.append(loss.item())
        if epoch % 9 == 8:
            print(f"epoch {epoch} loss {np.mean(losses):.4f} scale {model.logit_scale.exp().item():.2f}")
    i2t, t2i = retrieval(model, test_set)
    print(f"final train loss {np.mean(losses):.4f}, test recall@1 image->text {i2t:.3f} text->image {t2i:.3f}")


if __name__ == "__main__":
    main()
