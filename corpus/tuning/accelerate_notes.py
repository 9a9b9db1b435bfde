"""Nurses' notes sorted by ward, with Accelerate: accumulation, a padded transformer encoder, state saved and loaded."""

import tempfile

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

WARDS = 4
VOCABULARY = 60  # 0 is padding, 1..40 are common words, five of the rest belong to each ward
ACCUMULATION = 2
EPOCHS = 4


def make_notes(count, seed):
    g = torch.Generator().manual_seed(seed)
    notes = []
    for _ in range(count):
        length = int(torch.randint(6, 25, (), generator=g))
        ward = int(torch.randint(0, WARDS, (), generator=g))
        words = torch.randint(1, 41, (length,), generator=g)
        telling = torch.rand(length, generator=g) < 0.3
        telling[int(torch.randint(0, length, (), generator=g))] = True
        own = 40 + 5 * ward + torch.randint(0, 5, (length,), generator=g)
        notes.append((words.where(~telling, own), ward))
    return notes


def collate(notes):
    words = pad_sequence([words for words, _ in notes], batch_first=True)
    return {"words": words, "ward": torch.tensor([ward for _, ward in notes])}


class NoteSorter(nn.Module):
    def __init__(self, width=32, heads=4, layers=2, longest=24):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.ward = nn.Linear(width, WARDS)

    def forward(self, words):
        padding = words == 0
        x = self.words(words) + self.places[: words.shape[1]]
        x = self.encoder(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        return self.ward((x * kept).sum(1) / kept.sum(1))


class Progress:
    """How far the run is; saved along with the rest."""

    def __init__(self):
        self.epoch = self.updates = 0

    def state_dict(self):
        return {"epoch": self.epoch, "updates": self.updates}

    def load_state_dict(self, state):
        self.epoch, self.updates = state["epoch"], state["updates"]


def evaluate(accelerator, model, loader):
    model.eval()
    right = total = 0
    for batch in loader:
        with torch.no_grad():
            guess = model(batch["words"]).argmax(dim=-1)
        guess, ward = accelerator.gather_for_metrics((guess, batch["ward"]))
        right += (guess == ward).sum().item()
        total += len(ward)
    return right / total


def run(folder, stop, resume):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
    model = NoteSorter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    train_loader = DataLoader(make_notes(320, seed=5), batch_size=16, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(make_notes(75, seed=6), batch_size=25, collate_fn=collate)
    updates = EPOCHS * len(train_loader) // ACCUMULATION
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates, eta_min=1e-4)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    criterion = nn.CrossEntropyLoss()
    if resume:
        accelerator.load_state(folder)
    while progress.epoch < stop:
        model.train()
        summed = 0.0
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = criterion(model(batch["words"]), batch["ward"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            progress.updates += int(accelerator.sync_gradients)
            summed += loss.item()
        progress.epoch += 1
        accuracy = evaluate(accelerator, model, test_loader)
        accelerator.print(f"{progress.updates} updates: {summed / len(train_loader):.3f}, {accuracy:.2f} right")
    accelerator.save_state(folder)


if __name__ == "__main__":
    set_seed(41)
    with tempfile.TemporaryDirectory() as folder:
        run(folder, stop=EPOCHS // 2, resume=False)
        run(folder, stop=EPOCHS, resume=True)
