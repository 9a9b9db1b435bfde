"""Node classification on a synthetic citation graph: GCN with part of the training labels as extra input."""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_citation_graph(num_nodes=900, num_fields=5, num_words=60, seed=3):
    """Papers cite mostly their own field; the bag of words says only a little about the field."""
    rng = np.random.default_rng(seed)
    field = rng.integers(0, num_fields, num_nodes)
    topic = rng.normal(0, 1, (num_fields, num_words))
    words = 0.25 * topic[field] + rng.normal(0, 1, (num_nodes, num_words))
    src = rng.integers(0, num_nodes, 9 * num_nodes)
    dst = rng.integers(0, num_nodes, 9 * num_nodes)
    same = field[src] == field[dst]
    keep = (rng.random(len(src)) < np.where(same, 0.5, 0.045)) & (src != dst)
    edges = np.stack([src[keep], dst[keep]])
    return torch.tensor(words, dtype=torch.float32), torch.tensor(edges), torch.tensor(field)


def normalised_adjacency(edges, num_nodes):
    """D^-1/2 (A + I) D^-1/2 of the undirected graph as a sparse tensor."""
    both = torch.cat([edges, edges.flip(0)], dim=1)
    loops = torch.arange(num_nodes).repeat(2, 1)
    index = torch.unique(torch.cat([both, loops], dim=1), dim=1)
    degree = torch.bincount(index[0], minlength=num_nodes).float()
    inv_sqrt = degree.pow(-0.5)
    weight = inv_sqrt[index[0]] * inv_sqrt[index[1]]
    return torch.sparse_coo_tensor(index, weight, (num_nodes, num_nodes), check_invariants=True).coalesce()


def random_split(num_nodes, n_train, n_val, seed):
    perm = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    train = perm[:n_train]
    val = perm[n_train:n_train + n_val]
    test = perm[n_train + n_val:]
    return train, val, test


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x, adj):
        return torch.sparse.mm(adj, self.lin(x)) + self.bias


class CitationGCN(nn.Module):
    def __init__(self, n_words, n_fields, hidden, depth, p_drop):
        super().__init__()
        sizes = [n_words + n_fields] + [hidden] * (depth - 1) + [n_fields]
        self.layers = nn.ModuleList([GraphConv(i, o) for i, o in zip(sizes[:-1], sizes[1:])])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(depth - 1)])
        self.p_drop = p_drop

    def forward(self, words, label_input, adj):
        h = torch.cat([words, label_input], dim=1)
        for layer, norm in zip(self.layers[:-1], self.norms):
            h = F.relu(norm(layer(h, adj)))
            h = F.dropout(h, self.p_drop, training=self.training)
        return self.layers[-1](h, adj)


def label_columns(field, shown, n_fields):
    """One-hot fields of the papers in `shown`, zeros elsewhere."""
    out = torch.zeros(len(field), n_fields)
    out[shown] = F.one_hot(field[shown], n_fields).float()
    return out


@torch.no_grad()
def accuracy(model, graph, nodes, train_nodes):
    model.eval()
    words, adj, field, n_fields = graph
    logits = model(words, label_columns(field, train_nodes, n_fields), adj)
    return (logits[nodes].argmax(dim=1) == field[nodes]).float().mean().item()


def train(args):
    torch.manual_seed(args.seed)
    words, edges, field = make_citation_graph()
    n_fields = int(field.max()) + 1
    adj = normalised_adjacency(edges, len(words))
    train_nodes, val_nodes, test_nodes = random_split(len(words), args.n_train, args.n_val, args.seed)
    graph = (words, adj, field, n_fields)

    model = CitationGCN(words.shape[1], n_fields, args.hidden, args.depth, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=5e-3)
    best_val, best_state = -1.0, None
    for epoch in range(1, args.epochs + 1):
        model.train()
        order = train_nodes[torch.randperm(len(train_nodes))]
        shown, asked = order[:len(order) // 2], order[len(order) // 2:]
        logits = model(words, label_columns(field, shown, n_fields), adj)
        loss = F.cross_entropy(logits[asked], field[asked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        val_acc = accuracy(model, graph, val_nodes, train_nodes)
        if val_acc > best_val:
            best_val = val_acc
            best_state = copy.deepcopy(model.state_dict())
        if epoch % 20 == 0:
            print(f"epoch {epoch:3d}  loss {loss.item():.4f}  val acc {val_acc:.3f}")

    model.load_state_dict(best_state)
    test_acc = accuracy(model, graph, test_nodes, train_nodes)
    print(f"final: train loss {loss.item():.4f}  best val acc {best_val:.3f}  test acc {test_acc:.3f}")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=110)
    parser.add_argument("--n-train", type=int, default=200)
    parser.add_argument("--n-val", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(parse_args())
