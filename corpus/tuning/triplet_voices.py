"""Speaker vectors: batches of P speakers with K takes each, hardest triplets, tested on unheard speakers."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

P, K, FRAMES, BANDS = 8, 4, 20, 16


class Corpus:
    """Takes of speakers: each speaker has a timbre over the bands, each take a loudness curve of its own."""

    def __init__(self, speakers, takes, seed):
        g = torch.Generator().manual_seed(seed)
        timbre = torch.randn(speakers, 1, 1, BANDS, generator=g)
        pitch = torch.rand(speakers, 1, 1, 1, generator=g) * 2 + 0.5
        time = torch.linspace(0, 6, FRAMES).view(1, 1, FRAMES, 1)
        phase = torch.rand(speakers, takes, 1, 1, generator=g) * 6.28
        loud = 1 + 0.5 * torch.sin(pitch * time + phase)
        noise = torch.randn(speakers, takes, FRAMES, BANDS, generator=g)
        self.takes = 0.6 * loud * timbre + noise

    def batch(self):
        speakers = random.sample(range(len(self.takes)), P)
        rows = [self.takes[s, torch.randperm(self.takes.shape[1])[:K]] for s in speakers]
        return torch.cat(rows), torch.arange(P).repeat_interleave(K)


class Encoder(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.conv1 = nn.Conv1d(BANDS, 32, 3, padding=1)
        self.conv2 = nn.Conv1d(32, 32, 3, padding=1)
        self.proj = nn.Linear(64, size)

    def forward(self, takes):
        h = F.relu(self.conv1(takes.transpose(1, 2)))
        h = F.relu(self.conv2(h))
        pooled = torch.cat([h.mean(dim=2), h.amax(dim=2)], dim=1)
        return F.normalize(self.proj(pooled), dim=1)


def batch_hard(vectors, speaker, margin=0.3):
    distance = (2 - 2 * vectors @ vectors.T).clamp(min=1e-9).sqrt()
    same = speaker[:, None] == speaker[None, :]
    furthest = distance.masked_fill(~same, 0.0).amax(dim=1)
    nearest = distance.masked_fill(same, float("inf")).amin(dim=1)
    return F.relu(furthest - nearest + margin).mean()


@torch.no_grad()
def retrieval(encoder, corpus):
    """Is the nearest other take one of the same speaker?"""
    encoder.eval()
    speakers, takes = corpus.takes.shape[:2]
    vectors = encoder(corpus.takes.flatten(0, 1))
    who = torch.arange(speakers).repeat_interleave(takes)
    similarity = (vectors @ vectors.T).fill_diagonal_(-2.0)
    encoder.train()
    return (who[similarity.argmax(dim=1)] == who).float().mean().item()


random.seed(13)
torch.manual_seed(13)
heard, unheard = Corpus(40, 10, seed=1), Corpus(15, 6, seed=2)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
step = 0
while step < 90:
    takes, speaker = heard.batch()
    loss = batch_hard(encoder(takes), speaker)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 30 == 0:
        print(f"step {step}: loss {loss.item():.3f}, unheard speakers {retrieval(encoder, unheard):.2f}")
