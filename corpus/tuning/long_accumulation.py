"""Reviews of varied length: steps over four micro-batches, weighted by tokens, with a smaller group at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD, WORDS, TAGS = 0, 60, 5
MICRO, GROUP, EPOCHS = 12, 4, 5


def reviews(count, generator):
    """Words and a tag for each: the tag depends on the word and on the one before it."""
    rows = []
    for _ in range(count):
        length = int(torch.randint(3, 25, (1,), generator=generator))
        words = torch.randint(1, WORDS, (length,), generator=generator)
        before = torch.cat([words.new_tensor([1]), words[:-1]])
        rows.append((words, (words // 12 + (before > 40).long()) % TAGS))
    return rows


def collate(rows):
    words, tags = zip(*rows, strict=True)
    return (
        pad_sequence(words, batch_first=True, padding_value=PAD),
        pad_sequence(tags, batch_first=True, padding_value=-100),
    )


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim, padding_idx=PAD)
        self.conv = nn.Conv1d(dim, 2 * dim, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * dim, TAGS)

    def forward(self, words):
        h = F.relu(self.conv(self.embed(words).transpose(1, 2))).transpose(1, 2)
        return self.head(self.drop(h))


def summed(model, words, tags):
    return F.cross_entropy(model(words).flatten(0, 1), tags.flatten(), ignore_index=-100, reduction="sum")


def groups(loader, size):
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, count = 0, 0
    for words, tags in loader:
        known = tags != -100
        right += (model(words).argmax(dim=-1) == tags)[known].sum().item()
        count += known.sum().item()
    return right / count


def main():
    torch.manual_seed(14)
    generator = torch.Generator().manual_seed(15)
    loader = DataLoader(reviews(500, generator), batch_size=MICRO, shuffle=True, collate_fn=collate)
    held = DataLoader(reviews(80, generator), batch_size=40, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    steps = EPOCHS * -(-len(loader) // GROUP)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)
    for epoch in range(EPOCHS):
        model.train()
        total, seen = 0.0, 0
        for group in groups(loader, GROUP):
            tokens = sum((tags != -100).sum().item() for _, tags in group)
            optimizer.zero_grad()
            for words, tags in group:
                loss = summed(model, words, tags) / tokens
                loss.backward()
                total += loss.item() * tokens
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            seen += tokens
        print(f"epoch {epoch} loss {total / seen:.3f} held tags right {evaluate(model, held):.1%}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "tagger.pt")


if __name__ == "__main__":
    main()
