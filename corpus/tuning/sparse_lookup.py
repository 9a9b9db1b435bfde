"""Which readers borrow which books: large tables of which a batch touches few rows, with sparse gradients."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

READERS, BOOKS, TAGS = 2000, 800, 40


class Loans(Dataset):
    """Pairs of reader and book, each pair once; whether it was borrowed depends on the tags both like."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        pairs = torch.randperm(READERS * BOOKS, generator=g)[:n]
        # few readers and books make most of the loans; the long tail is hardly seen
        self.reader = (pairs // BOOKS).float().div(READERS).pow(6).mul(READERS).long()
        self.book = (pairs % BOOKS).float().div(BOOKS).pow(2).mul(BOOKS).long()
        keep = torch.unique(self.reader * BOOKS + self.book)
        keep = keep[torch.randperm(len(keep), generator=g)]
        self.reader, self.book = keep // BOOKS, keep % BOOKS
        taste = torch.randn(READERS, 2, generator=g)
        self.tags = [torch.randperm(TAGS, generator=g)[: int(k)] for k in torch.randint(1, 5, (BOOKS,), generator=g)]
        meaning = torch.randn(TAGS, 2, generator=g)
        content = torch.stack([meaning[tags].mean(dim=0) for tags in self.tags])
        score = (taste[self.reader] * content[self.book]).sum(dim=1)
        self.borrowed = (score + 0.2 * torch.randn(len(score), generator=g) > 0).float()

    def __len__(self):
        return len(self.reader)

    def __getitem__(self, i):
        return {
            "reader": self.reader[i],
            "book": self.book[i],
            "tags": self.tags[self.book[i]],
            "borrowed": self.borrowed[i],
        }


def collate(rows):
    """The tags of all books behind each other, and where those of each book begin."""
    counts = torch.tensor([0] + [len(row["tags"]) for row in rows[:-1]])
    return {
        "reader": torch.stack([row["reader"] for row in rows]),
        "book": torch.stack([row["book"] for row in rows]),
        "tags": torch.cat([row["tags"] for row in rows]),
        "offsets": counts.cumsum(dim=0),
        "borrowed": torch.stack([row["borrowed"] for row in rows]),
    }


class Tables(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.readers = nn.Embedding(READERS, dim, sparse=True)
        self.books = nn.Embedding(BOOKS, dim, sparse=True)
        self.tags = nn.EmbeddingBag(TAGS, dim, mode="mean", sparse=True)
        self.mix = nn.Sequential(nn.Linear(3 * dim, 24), nn.ReLU(), nn.Linear(24, 1))
        nn.init.normal_(self.readers.weight, std=0.3)
        nn.init.normal_(self.books.weight, std=0.03)
        nn.init.normal_(self.tags.weight, std=0.3)

    def forward(self, batch):
        reader = self.readers(batch["reader"])
        book = self.books(batch["book"]) + self.tags(batch["tags"], batch["offsets"])
        return self.mix(torch.cat([reader, book, reader * book], dim=-1)).squeeze(-1)


def main():
    torch.manual_seed(50)
    data = Loans(6000, seed=51)
    train_set, test_set = random_split(data, [len(data) - 400, 400], torch.Generator().manual_seed(52))
    loader = DataLoader(train_set, batch_size=64, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=100, collate_fn=collate)
    model = Tables()
    tables = [model.readers.weight, model.books.weight, model.tags.weight]
    sparse = torch.optim.SparseAdam(tables, lr=1e-2)
    dense = torch.optim.Adam(model.mix.parameters(), lr=4e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(5):
        model.train()
        total, seen = 0.0, 0
        for batch in loader:
            loss = criterion(model(batch), batch["borrowed"])
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
            total, seen = total + loss.item() * len(batch["reader"]), seen + len(batch["reader"])
        model.eval()
        right = 0
        with torch.no_grad():
            for batch in test_loader:
                right += ((model(batch) > 0) == (batch["borrowed"] > 0.5)).sum().item()
        print(f"epoch {epoch}: loss {total / seen:.3f}, right {right / len(test_set):.3f}")


main()
