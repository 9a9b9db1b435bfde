"""Moods of short reviews under Accelerate: words averaged with a mask, parts accumulated by hand, a linear decay."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, WORDS, MOODS, PARTS, EPOCHS = 0, 60, 3, 2, 2


class Reviews(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.mood = torch.randint(MOODS, (count,), generator=g)
        self.texts = []
        for mood in self.mood.tolist():
            length = int(torch.randint(4, 12, (), generator=g))
            common = torch.randint(1, WORDS, (length,), generator=g)
            telling = 1 + 10 * mood + torch.randint(10, (length,), generator=g)
            self.texts.append(torch.where(torch.rand(length, generator=g) < 0.4, telling, common))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.texts[i], self.mood[i]


def collate(items):
    texts, moods = zip(*items, strict=True)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD), torch.stack(moods)


class MoodNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.query = nn.Linear(width, 1)
        self.hidden = nn.Linear(width, width)
        self.drop = nn.Dropout(0.2)
        self.mood = nn.Linear(width, MOODS)

    def forward(self, text):
        x = self.words(text)
        score = self.query(torch.tanh(self.hidden(x))).squeeze(-1)
        score = score.masked_fill(text == PAD, float("-inf"))
        weight = score.softmax(dim=1)
        summary = (weight.unsqueeze(-1) * x).sum(dim=1)
        return self.mood(self.drop(summary))


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(160)
    net = MoodNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    train = DataLoader(Reviews(240, seed=1), batch_size=12, shuffle=True, collate_fn=collate)
    test = DataLoader(Reviews(50, seed=2), batch_size=12, collate_fn=collate)
    net, optimizer, train, test = accelerator.prepare(net, optimizer, train, test)
    updates = EPOCHS * len(train) // PARTS
    decay = torch.optim.lr_scheduler.LinearLR(optimizer.optimizer, 1.0, 0.2, total_iters=updates)
    average = [p.detach().clone() for p in net.parameters()]
    for epoch in range(EPOCHS):
        net.train()
        optimizer.zero_grad()
        for i, (text, mood) in enumerate(train):
            loss = nn.functional.cross_entropy(net(text), mood) / PARTS
            accelerator.backward(loss)
            if (i + 1) % PARTS == 0:
                accelerator.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                decay.step()
                with torch.no_grad():
                    for slow, now in zip(average, net.parameters(), strict=True):
                        slow.lerp_(now, 0.1)
        net.eval()
        right = total = 0
        for text, mood in test:
            with torch.no_grad():
                guess = net(text).argmax(dim=-1)
            guess, truth = accelerator.gather_for_metrics((guess, mood))
            right += (guess == truth).sum().item()
            total += len(truth)
        accelerator.print(f"{epoch}: loss {PARTS * loss.item():.3f}, right {right / total:.3f}")


if __name__ == "__main__":
    main()
