"""Recipes of models that are called or answer in other ways than with one tensor; tests/ways/test_export_any.py."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import Dataset, TensorDataset

from surefoot import Recipe


def recipe_of(model, data, loss) -> Recipe:
    return Recipe(
        model=model,
        data=data,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        micro_batch_size=4,
        max_steps=2,
    )


class Named(nn.Module):
    """A module and a parameter with names that no attribute written in Python has."""

    def __init__(self, module: str, parameter: str) -> None:
        super().__init__()
        self.add_module(module, nn.Linear(6, 2))
        self.register_parameter(parameter, nn.Parameter(torch.ones(2)))
        self.named = module, parameter

    def forward(self, images: Tensor) -> Tensor:
        module, parameter = self.named
        return getattr(self, module)(images) * getattr(self, parameter)


def named(module: str, parameter: str) -> Recipe:
    def loss(model, batch):
        return model(batch[0]).square().mean()

    return recipe_of(lambda: Named(module, parameter), lambda: TensorDataset(torch.randn(32, 6)), loss)


class Vae(nn.Module):
    """Takes a tensor and a keyword, returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, images: Tensor, *, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(images).chunk(2, dim=-1)
        return self.decode(mean + noise * (log_variance / 2).exp()), mean, log_variance


def vae() -> Recipe:
    def loss(model, batch):
        made, mean, log_variance = model(batch[0], noise=batch[1])
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=-1).mean() / 2
        return nn.functional.mse_loss(made, batch[0]) + divergence

    return recipe_of(Vae, lambda: TensorDataset(torch.randn(32, 6), torch.randn(32, 2)), loss)


@dataclass
class Answer:
    """What a detector returns."""

    boxes: Tensor
    scores: Tensor
    note: str = "not a tensor"


class Detector(nn.Module):
    """Takes a dict, returns a data class."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes, self.scores = nn.Linear(5, 4), nn.Linear(5, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Answer:
        kept = inputs["points"] * inputs["mask"][..., None]
        return Answer(self.boxes(kept), self.scores(kept))


class Points(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return {"points": torch.randn(8, 5, generator=generator), "mask": torch.ones(8)}


def detector() -> Recipe:
    def loss(model, batch):
        found = model(batch)
        return found.boxes.square().mean() + found.scores.square().mean()

    return recipe_of(Detector, Points, loss)


class Tagger(nn.Module):
    """A packed LSTM: lengths are read as numbers, which torch.export cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.body, self.head = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.token(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=words.shape[1])[0])


def tagger() -> Recipe:
    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch[0], batch[1]).flatten(0, 1), batch[0].flatten() % 3)

    return recipe_of(Tagger, lambda: TensorDataset(torch.randint(9, (32, 7)), torch.randint(3, 8, (32,))), loss)


def bert() -> Recipe:
    """A model of transformers: keywords in, a data class out."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )

    def loss(model, batch):
        return model(input_ids=batch[0], attention_mask=torch.ones_like(batch[0]), labels=batch[1]).loss

    data = lambda: TensorDataset(torch.randint(30, (32, 12)), torch.randint(2, (32,)))  # noqa: E731
    return recipe_of(lambda: BertForSequenceClassification(config), data, loss)
