"""Link prediction on a small knowledge graph: RotatE with self-adversarial negative sampling, run through Accelerate."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Args:
    side: int = 12            # entities are the places of a side x side torus
    dim: int = 16
    gamma: float = 6.0
    negatives: int = 32
    temperature: float = 1.0
    batch: int = 32
    accumulate: int = 2
    epochs: int = 22
    lr: float = 0.04
    seed: int = 17


def build_graph(side, generator):
    """Relations are moves on a torus, with some links left out; most can be inferred from the others."""
    n = side * side
    place = torch.arange(n)
    row, col = place // side, place % side
    moves = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 1), (1, -1), (3, 1)]
    triples = []
    for r, (dr, dc) in enumerate(moves):
        tail = (row + dr) % side * side + (col + dc) % side
        triples.append(torch.stack([place, torch.full_like(place, r), tail], dim=1))
        # a second link for a part of the places, so that a question can have several answers
        some = torch.rand(n, generator=generator) < 0.25
        near = (row + dr) % side * side + (col + dc + 1) % side
        triples.append(torch.stack([place, torch.full_like(place, r), near], dim=1)[some])
    triples = torch.cat(triples)
    triples = triples[torch.randperm(len(triples), generator=generator)]
    cut = int(0.85 * len(triples))
    return n, len(moves), triples[:cut], triples[cut:]


class RotatE(nn.Module):
    def __init__(self, n_entities, n_relations, dim, gamma):
        super().__init__()
        self.entity = nn.Parameter(torch.randn(n_entities, 2, dim) * 0.5)
        self.phase = nn.Parameter(torch.rand(n_relations, dim) * 6.2832 - 3.1416)
        self.gamma = gamma

    def forward(self, h, r, t):
        """Scores gamma - |h * e^(i phase) - t|; index tensors broadcast against each other."""
        head, tail, phase = self.entity[h], self.entity[t], self.phase[r]
        re = head[..., 0, :] * phase.cos() - head[..., 1, :] * phase.sin() - tail[..., 0, :]
        im = head[..., 0, :] * phase.sin() + head[..., 1, :] * phase.cos() - tail[..., 1, :]
        return self.gamma - (re ** 2 + im ** 2 + 1e-9).sqrt().sum(-1)


def corrupt(pos, n_entities, k):
    """Replaces the head or the tail of each triple, k times."""
    h, r, t = pos[:, 0:1].expand(-1, k), pos[:, 1:2].expand(-1, k), pos[:, 2:3].expand(-1, k)
    other = torch.randint(n_entities, h.shape)
    swap_head = torch.rand(h.shape) < 0.5
    return torch.where(swap_head, other, h), r, torch.where(swap_head, t, other)


def triple_loss(model, pos, args, n_entities):
    pos_score = model(*pos.T)
    neg_score = model(*corrupt(pos, n_entities, args.negatives))
    weight = F.softmax(args.temperature * neg_score, dim=1).detach()
    neg_loss = -(weight * F.logsigmoid(-neg_score)).sum(1)
    return (-F.logsigmoid(pos_score) + neg_loss).mean() / 2


@torch.no_grad()
def mean_reciprocal_rank(model, questions, known, n_entities):
    """Filtered tail ranking: other true tails of (h, r) are left out, ties count half."""
    true = torch.zeros(len(questions), n_entities, dtype=torch.bool)
    for i, (h, r, _) in enumerate(questions.tolist()):
        answers = known[(known[:, 0] == h) & (known[:, 1] == r), 2]
        true[i, answers] = True
    h, r, t = questions.T
    scores = model(h[:, None], r[:, None], torch.arange(n_entities)[None])
    target = scores.gather(1, t[:, None])
    true[torch.arange(len(t)), t] = False
    scores = scores.masked_fill(true, float("-inf"))
    higher, same = (scores > target).sum(1), (scores == target).sum(1)
    rank = higher + (same + 1) / 2
    return (1 / rank).mean().item(), (rank <= 1).float().mean().item()


def main(args):
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    n_entities, n_relations, train, test = build_graph(args.side, torch.Generator().manual_seed(args.seed))
    known = torch.cat([train, test])

    model = RotatE(n_entities, n_relations, args.dim, args.gamma)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loader = DataLoader(train, batch_size=args.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    accelerator.print("untrained: MRR %.4f hits@1 %.4f" % mean_reciprocal_rank(model, test, known, n_entities))
    for epoch in range(args.epochs):
        total = 0.0
        for pos in loader:
            with accelerator.accumulate(model):
                loss = triple_loss(model, pos, args, n_entities)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        if epoch % 7 == 0:
            mrr, hits = mean_reciprocal_rank(model, test, known, n_entities)
            accelerator.print(f"epoch {epoch}: loss {total / len(loader):.4f} test MRR {mrr:.4f} hits@1 {hits:.4f}")
    accelerator.print("trained: MRR %.4f hits@1 %.4f" % mean_reciprocal_rank(model, test, known, n_entities))


if __name__ == "__main__":
    main(Args())
