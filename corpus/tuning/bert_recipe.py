"""A Hugging Face BERT classifier as a recipe, with padded rows and their mask."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification

from surefoot import Recipe

PAD, VOCABULARY, LENGTH = 0, 44, 12


class Questions(Dataset):
    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (samples,), generator=generator)
        self.ids = torch.randint(5, VOCABULARY, (samples, LENGTH), generator=generator)
        self.ids[:, 0] = 1
        self.ids[torch.arange(samples), 1 + self.labels] = 2
        self.lengths = torch.randint(5, LENGTH + 1, (samples,), generator=generator)
        self.ids[torch.arange(LENGTH) >= self.lengths[:, None]] = PAD

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        mask = (torch.arange(LENGTH) < self.lengths[index]).long()
        return {"input_ids": self.ids[index], "attention_mask": mask, "labels": self.labels[index]}


def bert_model() -> nn.Module:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=3,
    )
    return BertForSequenceClassification(config)


def class_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    labels = batch["labels"]
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return F.cross_entropy(logits, labels, reduction="sum"), len(labels)


def bert(lr: float = 5e-4) -> Recipe:
    return Recipe(
        model=bert_model,
        data=lambda: Questions(256, seed=1),
        evaluation=lambda: Questions(32, seed=2),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=16,
        max_grad_norm=1.0,
        max_steps=60,
        evaluate_every=30,
    )
