"""Stress marks of words, letter by letter: groups of batches make one update, each token weighs the same in it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, LETTERS = 0, 18
VOWELS = torch.tensor([1, 5, 9, 13])


@dataclass
class Settings:
    words: int = 460
    batch_size: int = 10
    batches_per_update: int = 4
    epochs: int = 4
    lr: float = 1e-2
    warmup: int = 4
    seed: int = 3


class Words(Dataset):
    """A vowel is stressed if it comes second, or first after a double letter; lengths are from three to sixteen."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.words = [
            torch.randint(1, LETTERS, (int(torch.randint(3, 17, (), generator=g)),), generator=g) for _ in range(count)
        ]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        word = self.words[i]
        vowel = torch.isin(word, VOWELS)
        second = vowel & (vowel.cumsum(0) == 2)
        doubled = torch.zeros_like(vowel)
        doubled[2:] = (word[1:-1] == word[:-2]) & vowel[2:]
        return word, (second | doubled).long()


def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    words, marks = zip(*rows, strict=True)
    return pad_sequence(words, True, PAD), pad_sequence(marks, True, -100)


class Marker(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width, padding_idx=PAD)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.drop, self.out = nn.Dropout(0.1), nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.drop(self.rnn(self.letters(words))[0]))


def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss_sum, right, tokens = 0.0, 0, 0
    criterion = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
    with torch.no_grad():
        for words, marks in loader:
            logits = model(words)
            loss_sum += criterion(logits.flatten(0, 1), marks.flatten()).item()
            right += ((logits.argmax(-1) == marks) & (marks != -100)).sum().item()
            tokens += (marks != -100).sum().item()
    return loss_sum / tokens, right / tokens


def main(s: Settings) -> None:
    torch.manual_seed(s.seed)
    everything = Words(s.words, s.seed)
    train_set, valid_set = torch.utils.data.random_split(everything, [s.words - 80, 80])
    loader = DataLoader(train_set, s.batch_size, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, 20, collate_fn=collate)
    model = Marker()
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: min(1.0, (update + 1) / s.warmup))
    criterion = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
    for epoch in range(s.epochs):
        model.train()
        group: list[tuple[Tensor, Tensor]] = []
        epoch_loss, epoch_tokens = 0.0, 0
        for number, batch in enumerate(loader, start=1):
            group.append(batch)
            if len(group) < s.batches_per_update and number < len(loader):
                continue
            tokens = sum(int((marks != -100).sum()) for _, marks in group)
            for words, marks in group:
                loss = criterion(model(words).flatten(0, 1), marks.flatten())
                (loss / tokens).backward()
                epoch_loss += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            optimizer.zero_grad()
            epoch_tokens += tokens
            group = []
        valid, right = evaluate(model, valid_loader)
        print(f"epoch {epoch + 1} train {epoch_loss / epoch_tokens:.4f} valid {valid:.4f} right {right:.3f}")
    torch.save(model.state_dict(), "marker.pt")


if __name__ == "__main__":
    main(Settings())
