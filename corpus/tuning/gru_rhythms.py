"""The next stroke of a drummer: a GRU over pieces of unequal length, read in windows with the state carried along."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STROKES = ("end", "rest", "soft", "loud", "roll")
WINDOW = 12
NO_TARGET = -1

METRES = {3: (3, 1, 2), 4: (3, 1, 2, 1), 5: (3, 2, 1, 3, 2), 7: (3, 1, 2, 1, 3, 1, 2)}


def piece(rng):
    """A metre repeated for some bars; now and then a roll stands for any stroke. The end comes after a whole bar."""
    metre = METRES[rng.choice(list(METRES))]
    strokes = list(metre) * rng.randint(2, 6)
    strokes = [4 if rng.random() < 0.08 else stroke for stroke in strokes]
    return torch.tensor([*strokes, 0])


class Repertoire(IterableDataset):
    """Batches of pieces, longest first. Each worker plays its own share of the repertoire."""

    def __init__(self, pieces, batch, shuffle):
        self.pieces, self.batch, self.shuffle = pieces, batch, shuffle

    def __iter__(self):
        worker = get_worker_info()
        share = self.pieces if worker is None else self.pieces[worker.id :: worker.num_workers]
        order = torch.randperm(len(share)) if self.shuffle else torch.arange(len(share))
        for chosen in order.split(self.batch):
            yield self.collate([share[i] for i in chosen])

    @staticmethod
    def collate(pieces):
        pieces = sorted(pieces, key=len, reverse=True)
        lengths = torch.tensor([len(strokes) - 1 for strokes in pieces])
        inputs = pad_sequence([strokes[:-1] for strokes in pieces], batch_first=True)
        targets = pad_sequence([strokes[1:] for strokes in pieces], batch_first=True, padding_value=NO_TARGET)
        return inputs, targets, lengths


class Drummer(nn.Module):
    def __init__(self, width=40, layers=2):
        super().__init__()
        self.embed = nn.Embedding(len(STROKES), 16)
        self.gru = nn.GRU(16, width, layers, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(STROKES))

    def forward(self, strokes, lengths, state=None):
        packed = pack_padded_sequence(self.embed(strokes), lengths, batch_first=True)
        packed, state = self.gru(packed, state)
        out, _ = pad_packed_sequence(packed, batch_first=True)
        return self.head(self.norm(out)), state


def in_windows(inputs, targets, lengths):
    """Windows of time, each with the pieces that have not ended before it (the first rows, as they are sorted)."""
    for start in range(0, inputs.shape[1], WINDOW):
        going = int((lengths > start).sum())
        part = slice(start, start + WINDOW)
        here = (lengths[:going] - start).clamp(max=WINDOW)
        longest = int(here.max())
        yield inputs[:going, part][:, :longest], targets[:going, part][:, :longest], here


class Lesson:
    def __init__(self, seed=4):
        torch.manual_seed(seed)
        rng = random.Random(seed)
        pieces = list(dict.fromkeys(tuple(piece(rng).tolist()) for _ in range(420)))
        rng.shuffle(pieces)
        pieces = [torch.tensor(strokes) for strokes in pieces]
        self.train_loader = DataLoader(Repertoire(pieces[:-45], 16, True), batch_size=None, num_workers=2)
        self.test_loader = DataLoader(Repertoire(pieces[-45:], 20, False), batch_size=None)
        self.model = Drummer()
        self.loss = nn.CrossEntropyLoss(ignore_index=NO_TARGET)
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=4e-3)

    def practise(self):
        self.model.train()
        total, seen = 0.0, 0
        for inputs, targets, lengths in self.train_loader:
            state = None
            for strokes, following, here in in_windows(inputs, targets, lengths):
                if state is not None:
                    state = state[:, : len(here)].detach()
                logits, state = self.model(strokes, here, state)
                loss = self.loss(logits.flatten(0, 1), following.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                total += loss.item() * int(here.sum())
                seen += int(here.sum())
        return total / seen

    def recital(self):
        """Loss and accuracy over the strokes of pieces never practised, each played in one go."""
        self.model.eval()
        loss, right, strokes = 0.0, 0, 0
        with torch.no_grad():
            for inputs, targets, lengths in self.test_loader:
                logits, _ = self.model(inputs, lengths)
                real = targets != NO_TARGET
                loss += self.loss(logits.flatten(0, 1), targets.flatten()).item() * real.sum().item()
                right += (logits.argmax(-1) == targets)[real].sum().item()
                strokes += real.sum().item()
        return loss / strokes, right / strokes


if __name__ == "__main__":
    lesson = Lesson()
    for day in range(3):
        practised = lesson.practise()
        loss, accuracy = lesson.recital()
        print(f"day {day}: practised {practised:.3f}, recital {loss:.3f}, right {accuracy:.1%}")
    torch.save(lesson.model.state_dict(), "drummer.pt")
