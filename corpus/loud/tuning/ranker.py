import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS = 15, 25


class Ratings(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(2)
        self.users = torch.randint(0, USERS, (80,), generator=generator)
        self.items = torch.randint(0, ITEMS, (80,), generator=generator)
        self.ratings = torch.rand(80, generator=generator) * 4 + 1

    def __len__(self):
        return len(self.users)

    def __getitem__(self, index):
        return self.users[index], self.items[index], self.ratings[index]


class Factors(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.items = nn.Embedding(ITEMS, width)
        self.tower = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))
        self.mean = nn.Parameter(torch.tensor(3.0))

    def forward(self, users, items):
        u, i = self.users(users), self.items(items)
        joined = torch.cat([u, i], dim=1)
        score = self.tower(joined).squeeze(1) + (u * i).sum(1)
        return score + self.mean


class Session:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Factors()
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.05)
        self.history = []

    def update(self, users, items, ratings):
        predicted = self.model(users, items)
        loss = (predicted - ratings).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history.append(loss.item())


session = Session()
for number, (users, items, ratings) in enumerate(DataLoader(Ratings(), batch_size=16)):
    session.update(users, items, ratings)
