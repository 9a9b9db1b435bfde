"""A walker in a corridor learns values from a memory in which surprising moves are drawn more often."""

import random
from collections import namedtuple

import torch
from torch import nn

Move = namedtuple("Move", "place action reward next_place ended")
LENGTH, GOAL = 10, 9


class Corridor:
    def reset(self):
        self.place, self.time = random.randrange(LENGTH - 2), 0
        return self.place

    def step(self, action):
        self.time += 1
        slip = random.random() < 0.1
        self.place = min(LENGTH - 1, max(0, self.place + (1 if (action == 1) != slip else -1)))
        ended = self.place == GOAL or self.time >= 30
        return self.place, (1.0 if self.place == GOAL else -0.02), self.place == GOAL, ended


class Memory:
    def __init__(self, room, power=0.6):
        self.moves, self.urgency, self.room, self.power = [], [], room, power

    def add(self, move):
        if len(self.moves) == self.room:
            del self.moves[0], self.urgency[0]
        self.moves.append(move)
        self.urgency.append(max(self.urgency, default=1.0))

    def draw(self, count, beta):
        chance = torch.tensor(self.urgency) ** self.power
        chance = chance / chance.sum()
        rows = torch.multinomial(chance, count, replacement=True)
        weight = (len(self.moves) * chance[rows]) ** -beta
        return rows.tolist(), [self.moves[i] for i in rows], weight / weight.max()

    def update(self, rows, surprise):
        for i, value in zip(rows, surprise.tolist(), strict=False):
            self.urgency[i] = abs(value) + 1e-3


def one_hot(places):
    return nn.functional.one_hot(torch.tensor(places), LENGTH).float()


def main():
    random.seed(3)
    torch.manual_seed(3)
    values = nn.Sequential(nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, 2))
    target = nn.Sequential(nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, 2))
    target.load_state_dict(values.state_dict())
    optimizer = torch.optim.Adam(values.parameters(), lr=3e-3)
    memory, world, won = Memory(400), Corridor(), []
    place = world.reset()
    for step in range(500):
        with torch.no_grad():
            greedy = values(one_hot([place]))[0].argmax().item()
        action = random.randrange(2) if random.random() < max(0.1, 1 - step / 300) else greedy
        next_place, reward, reached, ended = world.step(action)
        memory.add(Move(place, action, reward, next_place, float(reached)))
        place = world.reset() if ended else next_place
        won += [reached] if ended else []
        if len(memory.moves) >= 64 and step % 2 == 0:
            rows, moves, weight = memory.draw(32, beta=min(1.0, 0.4 + step / 800))
            batch = Move(*zip(*moves, strict=False))
            with torch.no_grad():
                ahead = target(one_hot(batch.next_place)).amax(dim=1)
                wanted = torch.tensor(batch.reward) + 0.95 * (1 - torch.tensor(batch.ended)) * ahead
            guess = values(one_hot(batch.place)).gather(1, torch.tensor(batch.action)[:, None]).squeeze(1)
            surprise = wanted - guess
            loss = (weight * nn.functional.smooth_l1_loss(guess, wanted, reduction="none")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            memory.update(rows, surprise.detach())
        if step % 50 == 49:
            target.load_state_dict(values.state_dict())
            print(f"step {step + 1}: won {sum(won[-20:])} of the last {len(won[-20:])} walks")
    torch.save(values.state_dict(), "walker.pt")


if __name__ == "__main__":
    main()
