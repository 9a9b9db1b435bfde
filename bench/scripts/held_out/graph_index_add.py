"""Trains a message-passing network on batches of random graphs with index_add and scatter."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def random_graph(g, low=20, high=60):
    n = int(torch.randint(low, high, (1,), generator=g))
    e = n * 4
    edge = torch.randint(0, n, (2, e), generator=g)
    x = torch.randn(n, 32, generator=g)
    degree = torch.bincount(edge[1], minlength=n).float()
    y = (degree.max() - degree.mean()) / 5
    return x, edge, y


def batch_graphs(graphs):
    xs, edges, ys, index, offset = [], [], [], [], 0
    for i, (x, edge, y) in enumerate(graphs):
        xs.append(x)
        edges.append(edge + offset)
        ys.append(y)
        index.append(torch.full((len(x),), i, dtype=torch.long))
        offset += len(x)
    return torch.cat(xs), torch.cat(edges, 1), torch.stack(ys), torch.cat(index)


class Message(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.lin = nn.Linear(dim, dim, bias=False)
        self.att = nn.Parameter(torch.randn(heads, 2 * dim // heads) * 0.1)
        self.update = nn.GRUCell(dim, dim)
        self.heads = heads

    def forward(self, x, edge):
        src, dst = edge
        n, d = x.shape
        h = self.lin(x).view(n, self.heads, -1)
        score = F.leaky_relu((torch.cat([h[src], h[dst]], -1) * self.att).sum(-1), 0.2)
        # softmax over the edges that arrive at a node
        top = torch.full((n, self.heads), -1e9, device=x.device)
        top = top.scatter_reduce(0, dst[:, None].expand_as(score), score.detach(), reduce="amax")
        weight = (score - top[dst]).exp()
        total = torch.zeros(n, self.heads, device=x.device).index_add(0, dst, weight)
        alpha = weight / (total[dst] + 1e-9)
        out = torch.zeros_like(h).index_add(0, dst, alpha.unsqueeze(-1) * h[src])
        return self.update(out.reshape(n, d), x)


class GNN(nn.Module):
    def __init__(self, i, dim, layers):
        super().__init__()
        self.inp = nn.Linear(i, dim)
        self.layers = nn.ModuleList(Message(dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x, edge, index, count):
        x = self.inp(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.dropout(F.relu(norm(layer(x, edge))), 0.1, self.training)
        total = torch.zeros(count, x.size(1), device=x.device).index_add_(0, index, x)
        nodes = torch.bincount(index, minlength=count).clamp(min=1).unsqueeze(1)
        biggest = torch.zeros(count, x.size(1), device=x.device).scatter_reduce(
            0, index[:, None].expand_as(x), x, reduce="amax", include_self=False
        )
        return self.head(torch.cat([total / nodes, biggest], 1)).squeeze(1)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g = torch.Generator().manual_seed(5)
    torch.manual_seed(5)
    graphs = [random_graph(g) for _ in range(96)]
    model = GNN(32, 128, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    for epoch in range(2):
        order = torch.randperm(len(graphs), generator=g).tolist()
        for i in range(0, len(order), 16):
            x, edge, y, index = (t.to(device) for t in batch_graphs([graphs[j] for j in order[i : i + 16]]))
            pred = model(x, edge, index, int(index.max()) + 1)
            loss = F.smooth_l1_loss(pred, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} graphs {len(y)} nodes {x.size(0)} edges {edge.size(1)} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
