"""Edible or not from seven yes/no answers. Few distinct rows, so equal rows occur by chance in both halves."""

import csv
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

QUESTIONS = ("ring", "smell", "gills", "spots", "tall", "bruises", "wood")


def field_notes(rows, seed):
    """A csv as somebody would have collected it: answers of 0 and 1, the label, which is wrong now and then."""
    g = torch.Generator().manual_seed(seed)
    answers = torch.bernoulli(torch.tensor([0.5, 0.3, 0.5, 0.2, 0.6, 0.4, 0.5]).expand(rows, 7), generator=g).long()
    ring, smell, gills, spots, tall, bruises, wood = answers.unbind(1)
    poisonous = (smell & (1 - wood)) | (spots & gills) | (ring ^ bruises) & tall
    noise = torch.rand(rows, generator=g) < 0.04
    poisonous = torch.where(noise, 1 - poisonous, poisonous)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([*QUESTIONS, "poisonous"])
    writer.writerows(torch.cat([answers, poisonous[:, None]], dim=1).tolist())
    buffer.seek(0)
    return buffer


class Notes(Dataset):
    def __init__(self, file):
        self.rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        x = torch.tensor([row[name] for name in QUESTIONS], dtype=torch.float32)
        return x, torch.tensor([row["poisonous"]], dtype=torch.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(len(QUESTIONS), 32)
        self.fc2 = nn.Linear(32, 12)
        self.fc3 = nn.Linear(12, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def train(model, loader, criterion, optimizer):
    model.train()
    running, count = 0.0, 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running += loss.item() * inputs.size(0)
        count += inputs.size(0)
    return running / count


@torch.no_grad()
def test(model, loader):
    model.eval()
    tp = fp = fn = right = total = 0
    for inputs, labels in loader:
        guess = model(inputs) > 0  # logits
        truth = labels > 0.5
        tp += (guess & truth).sum().item()
        fp += (guess & ~truth).sum().item()
        fn += (~guess & truth).sum().item()
        right += (guess == truth).sum().item()
        total += labels.numel()
    return right / total, 2 * tp / max(1, 2 * tp + fp + fn)


torch.manual_seed(2)
notes = Notes(field_notes(700, seed=21))
train_set, test_set = torch.utils.data.random_split(notes, [560, 140], generator=torch.Generator().manual_seed(1))
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
test_loader = DataLoader(test_set, batch_size=50)
model = Net()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(1, 13):
    loss = train(model, train_loader, criterion, optimizer)
    accuracy, f1 = test(model, test_loader)
    print(f"[{epoch}] loss {loss:.3f} accuracy {accuracy:.3f} f1 {f1:.3f}")
