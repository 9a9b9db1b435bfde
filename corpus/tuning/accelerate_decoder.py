"""Melodies by a small decoder of torch's own layers, under Accelerate: a prepared loop, saved and loaded state."""

import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES, BARS = 30, 16


class Melodies(Dataset):
    """Scales up or down in single and double steps, begun anywhere."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        begin = torch.randint(0, NOTES, (count, 1), generator=g)
        way = torch.randint(0, 2, (count, 1), generator=g) * 2 - 1
        steps = torch.randint(1, 3, (count, BARS + 1), generator=g)
        self.notes = (begin + way * steps.cumsum(1)) % NOTES

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, i):
        return {"heard": self.notes[i, :-1], "next": self.notes[i, 1:]}


class Composer(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.note = nn.Embedding(NOTES, width)
        self.place = nn.Embedding(BARS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.play = nn.Linear(width, NOTES)

    def forward(self, heard):
        length = heard.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.note(heard) + self.place(torch.arange(length, device=heard.device))
        x = self.stack(x, mask=mask, is_causal=True)
        return self.play(x)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(23)
    composer = Composer()
    optimizer = torch.optim.AdamW(composer.parameters(), lr=4e-3)
    train = DataLoader(Melodies(320, seed=1), batch_size=16, shuffle=True)
    test = DataLoader(Melodies(40, seed=2), batch_size=16)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5 + 0.5 * math.cos(math.pi * n / 40))
    composer, optimizer, train, test, schedule = accelerator.prepare(composer, optimizer, train, test, schedule)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        composer.train()
        for batch in train:
            with accelerator.autocast():
                scores = composer(batch["heard"])
                loss = criterion(scores.transpose(1, 2), batch["next"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(composer.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        composer.eval()
        total = count = 0
        for batch in test:
            with torch.no_grad():
                guess = composer(batch["heard"]).argmax(-1)
            guess, truth = accelerator.gather_for_metrics((guess, batch["next"]))
            total += (guess == truth).sum().item()
            count += truth.numel()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}, next note right {total / count:.3f}")
        accelerator.save_state("melodies")


if __name__ == "__main__":
    main()
