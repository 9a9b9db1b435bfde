import torch
from torch import nn

LETTERS = 7


class Recogniser(nn.Module):
    def __init__(self, bands=5, width=10):
        super().__init__()
        self.front = nn.Conv1d(bands, width, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm1d(width)
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.letters = nn.Linear(2 * width, LETTERS)

    def forward(self, sound):
        x = torch.relu(self.norm(self.front(sound)))
        x = x.transpose(1, 2)
        x, _ = self.memory(x)
        return self.letters(x).log_softmax(-1)


def speak(count, generator):
    sounds, texts = [], []
    for _ in range(count):
        sounds.append(torch.randn(5, 24, generator=generator))
        texts.append(torch.randint(1, LETTERS, (4,), generator=generator))
    return torch.stack(sounds), torch.stack(texts)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(9)
    model = Recogniser()
    measure = nn.CTCLoss(blank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        sounds, texts = speak(3, generator)
        scores = model(sounds)
        lengths = torch.full((3,), scores.shape[1])
        sizes = torch.full((3,), texts.shape[1])
        loss = measure(scores.transpose(0, 1), texts, lengths, sizes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
