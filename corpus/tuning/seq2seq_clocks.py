"""Times such as 7:45 read aloud as "quarter to eight": encoder and decoder with attention, stopped and resumed."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

HOURS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
MINUTES = {0: "sharp", 5: "five", 10: "ten", 15: "quarter", 20: "twenty", 25: "twenty five", 30: "half"}
WORDS = ["<pad>", "<bos>", "<eos>", *HOURS, "sharp", "quarter", "half", "twenty", "past", "to"]
PAD, BOS, EOS = 0, 1, 2
DIGITS = "_0123456789:"  # the first is padding


def aloud(hour, minute):
    if minute == 0:
        return f"{HOURS[hour - 1]} sharp"
    if minute <= 30:
        return f"{MINUTES[minute]} past {HOURS[hour - 1]}"
    return f"{MINUTES[60 - minute]} to {HOURS[hour % 12]}"


def pairs():
    found = []
    for hour in range(1, 13):
        for minute in range(0, 60, 5):
            shown = torch.tensor([DIGITS.index(c) for c in f"{hour}:{minute:02d}"])
            said = torch.tensor([BOS, *(WORDS.index(w) for w in aloud(hour, minute).split()), EOS])
            found.append((shown, said))
    return found


def collate(items):
    shown = pad_sequence([a for a, _ in items], batch_first=True, padding_value=PAD)
    said = pad_sequence([b for _, b in items], batch_first=True, padding_value=PAD)
    return shown, said


class Speaker(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.digits = nn.Embedding(len(DIGITS), width, padding_idx=0)
        self.words = nn.Embedding(len(WORDS), width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.query = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(width, len(WORDS))

    def forward(self, shown, said):
        lengths = (shown != PAD).sum(dim=1)
        packed = pack_padded_sequence(self.digits(shown), lengths, batch_first=True, enforce_sorted=False)
        memory, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True)
        start = torch.cat([last[0], last[1]], dim=-1).unsqueeze(0)
        hidden, _ = self.decoder(self.dropout(self.words(said)), start)
        scores = self.query(hidden) @ memory.transpose(1, 2)  # batch, words, digits
        scores = scores.masked_fill((shown == PAD).unsqueeze(1), -1e9)
        looked = scores.softmax(dim=-1) @ memory
        mixed = torch.tanh(self.mix(torch.cat([hidden, looked], dim=-1)))
        return self.out(self.dropout(mixed)).log_softmax(dim=-1)


class Training:
    def __init__(self, train, test, epochs=12, lr=0.012):
        self.epochs, self.done = epochs, 0
        self.train_loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate)
        self.test_loader = DataLoader(test, batch_size=16, collate_fn=collate)
        self.model = Speaker()
        self.criterion = nn.NLLLoss(ignore_index=PAD)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs, eta_min=1e-4)

    def loss(self, shown, said):
        given, wanted = said[:, :-1], said[:, 1:]
        logs = self.model(shown, given)
        return self.criterion(logs.flatten(0, 1), wanted.flatten()), logs, wanted

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for shown, said in self.train_loader:
            loss, _, _ = self.loss(shown, said)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.optimizer.step()
            total += loss.item() * len(shown)
        self.scheduler.step()
        self.done += 1
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total, words, right = 0.0, 0, 0
        for shown, said in self.test_loader:
            loss, logs, wanted = self.loss(shown, said)
            real = wanted != PAD
            total += loss.item() * real.sum().item()
            right += (logs.argmax(dim=-1) == wanted)[real].sum().item()
            words += real.sum().item()
        return total / words, right / words

    def fit(self, until):
        for epoch in range(self.done, until):
            loss = self.train_epoch()
            held_out, accuracy = self.evaluate()
            rate = self.optimizer.param_groups[0]["lr"]
            print(f"epoch {epoch + 1} rate {rate:.5f} loss {loss:.4f} test {held_out:.4f} accuracy {accuracy:.3f}")

    def save(self, path):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": self.done,
            "rng": torch.get_rng_state(),
        }
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.done = state["epoch"]
        torch.set_rng_state(state["rng"])


torch.manual_seed(15)
times = pairs()
order = torch.randperm(len(times), generator=torch.Generator().manual_seed(2)).tolist()
train, test = [times[i] for i in order[:118]], [times[i] for i in order[118:]]

first = Training(train, test)
first.fit(until=6)
first.save("clocks.pt")

second = Training(train, test)  # as a job that was stopped at its limit and began again
second.load("clocks.pt")
second.fit(until=second.epochs)
print(f"{second.done} epochs, {sum(p.numel() for p in second.model.parameters())} weights")
