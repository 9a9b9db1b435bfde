"""A training loop in plain PyTorch. `surefoot watch` runs it as it is and looks for bugs that raise no exception."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def made_up_prices(houses: int) -> tuple[Tensor, Tensor]:
    """Your data goes here. Data that does not fit into memory belongs into a DataLoader with workers."""
    features = torch.randn(houses, 8)
    prices = features[:, :1] * features[:, 1:2] + features[:, 2:3].sin() + 0.1 * torch.randn(houses, 1)
    return features, prices


def network() -> nn.Sequential:
    """Your model goes here."""
    return nn.Sequential(
        nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)
    )


def held_out_loss(model: nn.Module, features: Tensor, prices: Tensor) -> float:
    model.eval()  # dropout off
    with torch.no_grad():  # builds no graph that nobody uses
        loss = F.mse_loss(model(features), prices).item()
    model.train()  # dropout on again
    return loss


def main() -> None:
    torch.manual_seed(0)  # the same data, weights and order each time
    features, prices = made_up_prices(4000)
    held_out = made_up_prices(500)  # drawn apart: training never sees these
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(8):
        for chosen in torch.randperm(len(features)).split(100):  # another order in every epoch
            # Both sides are [100, 1]. A target of [100] would be broadcast to [100, 100], without an error.
            loss = F.mse_loss(model(features[chosen]), prices[chosen])
            optimizer.zero_grad()  # otherwise the gradients of the last step are added to these
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: held-out loss {held_out_loss(model, *held_out):.4f}")


if __name__ == "__main__":
    main()
