import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH = 20, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, tokens):
        return self.rnn(self.embed(tokens))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def step(self, token, hidden, memory):
        scores = torch.bmm(memory, self.query(hidden).unsqueeze(2)).squeeze(2)
        weights = F.softmax(scores, dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        hidden = self.cell(torch.cat([self.embed(token), context], dim=1), hidden)
        return self.out(hidden), hidden


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, target):
        memory, last = self.encoder(source)
        hidden = last[0]
        outputs = []
        for position in range(target.shape[1] - 1):
            logits, hidden = self.decoder.step(target[:, position], hidden, memory)
            outputs.append(logits)
        return torch.stack(outputs, dim=1)


def batches(count=4, size=6):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        source = torch.randint(0, VOCABULARY, (size, 7), generator=generator)
        yield source, source.flip(1)


def loss_of(logits, target):
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), target[:, 1:].reshape(-1))


def main():
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for source, target in batches():
        loss = loss_of(model(source, target), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


main()
