"""A word-level LSTM language model, in the manner of the classic example: the hidden state goes on, detached."""

import math

import torch
import torch.nn as nn

torch.manual_seed(1111)
ntokens, emsize, nhid, nlayers, dropout = 45, 24, 24, 2, 0.2
bptt, batch_size, eval_batch_size = 12, 10, 5
lr, clip, epochs = 2.0, 0.25, 2


class RNNModel(nn.Module):
    """An encoder, a recurrent module and a decoder that shares the encoder's weights."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntokens, emsize)
        self.rnn = nn.LSTM(emsize, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntokens)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight = self.encoder.weight

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        output = self.drop(output)
        decoded = self.decoder(output)
        return decoded.view(-1, ntokens), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(nlayers, bsz, nhid), weight.new_zeros(nlayers, bsz, nhid)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    jumps = torch.tensor([1, 1, 2, 5])[torch.randint(0, 4, (n,), generator=g)]
    return jumps.cumsum(0) % ntokens


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    data = source[i : i + seq_len]
    target = source[i + 1 : i + 1 + seq_len].reshape(-1)
    return data, target


train_data = batchify(corpus(1000, 1), batch_size)
val_data = batchify(corpus(300, 2), eval_batch_size)
model = RNNModel()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=lr)


def evaluate(data_source):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(eval_batch_size)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, bptt):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


def train():
    model.train()
    total_loss = 0.0
    hidden = model.init_hidden(batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        total_loss += loss.item()
    print(f"loss {total_loss / (batch + 1):5.2f} ppl {math.exp(total_loss / (batch + 1)):8.2f}")


for epoch in range(1, epochs + 1):
    train()
    print(f"end of epoch {epoch}: valid loss {evaluate(val_data):5.2f}")
