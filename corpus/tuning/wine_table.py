"""Votes of tasters and the price of a wine from eleven measurements: a table in numpy, a small MLP with two heads."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {"batch": 32, "epochs": 8, "lr": 8e-3, "decay": 1e-4, "clip": 0.5, "price_weight": 0.5}
CENTRE = np.array([8.3, 0.53, 0.27, 2.5, 0.087, 15.9, 46.5, 0.997, 3.31, 0.66, 10.4])
SPREAD = np.array([1.7, 0.18, 0.19, 1.4, 0.047, 10.5, 32.9, 0.002, 0.15, 0.17, 1.1])
GRADES = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def read_table(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measurements, shares of twelve votes and price, in the order of the guide: from the plainest to the best."""
    raw = CENTRE + SPREAD * np.random.randn(count, len(CENTRE))
    z = (raw - CENTRE) / SPREAD
    quality = 0.9 * z[:, 10] - 0.6 * z[:, 1] + 0.4 * z[:, 9] * z[:, 10] + 0.3 * np.abs(z[:, 8])
    order = np.argsort(quality)
    raw, quality = raw[order], quality[order]
    chances = np.exp(-((quality[:, None] - GRADES) ** 2))
    chances /= chances.sum(axis=1, keepdims=True)
    votes = np.stack([np.random.multinomial(12, row) for row in chances]) / 12
    price = 14 * np.exp(0.45 * quality + 0.1 * np.random.randn(count))
    return raw, votes, price


class WineNet(nn.Module):
    def __init__(self, columns: int, width: int = 48) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(columns, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(0.1),
        )
        self.votes = nn.Linear(width, len(GRADES))
        self.price = nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.votes(h), self.price(h).squeeze(1)


def evaluate(model, x, votes, price, batch):
    """Divergence from the votes and error of the price, per wine of the held-out table."""
    model.eval()
    divergence = error = 0.0
    with torch.no_grad():
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            logits, guess = model(x[rows])
            vote_loss = F.kl_div(F.log_softmax(logits, dim=1), votes[rows], reduction="batchmean")
            price_loss = F.mse_loss(guess, price[rows])
            divergence += vote_loss.item() * len(guess)
            error += price_loss.item() * len(guess)
    return divergence / len(x), error / len(x)


def main() -> None:
    np.random.seed(11)
    torch.manual_seed(11)
    raw, votes, price = read_table(680)
    order = np.random.permutation(len(raw))
    raw, votes, price = raw[order], votes[order], price[order]
    cut = 500
    centre, spread = raw[:cut].mean(axis=0), raw[:cut].std(axis=0)
    columns = (raw - centre) / spread
    logged = np.log(price)
    target = (logged - logged[:cut].mean()) / logged[:cut].std()
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in (columns[:cut], columns[cut:]))
    v_train, v_test = (torch.tensor(part, dtype=torch.float32) for part in (votes[:cut], votes[cut:]))
    p_train, p_test = (torch.tensor(part, dtype=torch.float32) for part in (target[:cut], target[cut:]))

    model = WineNet(columns.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=CONFIG["lr"], weight_decay=CONFIG["decay"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.7)
    best, best_weights = float("inf"), None
    for epoch in range(CONFIG["epochs"]):
        model.train()
        total = 0.0
        perm = np.random.permutation(len(x_train))
        for start in range(0, len(x_train), CONFIG["batch"]):
            rows = perm[start : start + CONFIG["batch"]]
            logits, guess = model(x_train[rows])
            vote_loss = F.kl_div(F.log_softmax(logits, dim=1), v_train[rows], reduction="batchmean")
            price_loss = F.mse_loss(guess, p_train[rows])
            loss = vote_loss + CONFIG["price_weight"] * price_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CONFIG["clip"])
            optimizer.step()
            total += loss.item() * len(rows)
        scheduler.step()
        divergence, error = evaluate(model, x_test, v_test, p_test, batch=64)
        if divergence + error < best:
            best = divergence + error
            best_weights = copy.deepcopy(model.state_dict())
        rate = scheduler.get_last_lr()[0]
        print(f"epoch {epoch + 1} loss {total / cut:.4f} votes {divergence:.4f} price {error:.4f} rate {rate:.5f}")
    model.load_state_dict(best_weights)
    torch.save(model.state_dict(), "wine.pt")
    divergence, error = evaluate(model, x_test, v_test, p_test, batch=64)
    print(f"best: votes {divergence:.4f} price {error:.4f}")


if __name__ == "__main__":
    main()
