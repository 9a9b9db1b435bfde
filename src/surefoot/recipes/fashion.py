"""fashion: classify 28x28 images of clothes, with a dense or a convolutional network.

It reads the public Fashion-MNIST files from a folder. The default is the folder of Debian's package
dataset-fashion-mnist.
"""

from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.data.idx import find_idx, read_idx
from surefoot.recipe.ranges import Count, CountOrNone, Rate, Share
from surefoot.techniques.schedule import warmup_cosine

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
PIXEL_MEAN, PIXEL_STD = 0.2860, 0.3530  # of the 60,000 training images, scaled to 0..1


def dense(hidden: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, 10),
    )


def convolutional(hidden: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, 10),
    )


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    images, labels = batch
    return F.cross_entropy(model(images), labels, reduction="sum"), len(labels)


def accuracy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[Tensor, int]]:
    images, labels = batch
    return {"accuracy": ((model(images).argmax(1) == labels).sum(), len(labels))}


def images_and_labels(folder: str, part: Literal["train", "t10k"] = "train") -> TensorDataset:
    """Images as float32 with mean 0 and standard deviation 1, shape (N, 1, 28, 28), and their classes."""
    images = torch.tensor(read_idx(find_idx(Path(folder), f"{part}-images-idx3-ubyte"))).unsqueeze(1)
    labels = torch.tensor(read_idx(find_idx(Path(folder), f"{part}-labels-idx1-ubyte")))
    return TensorDataset((images / 255 - PIXEL_MEAN) / PIXEL_STD, labels.long())


def image_of(item: Any) -> list[Tensor]:
    """A line such as `{"pixels": [[0, 255, ...], ...]}`, 28 rows of 28 grey values, as a sample without its label."""
    pixels = torch.tensor(item["pixels"], dtype=torch.float32).reshape(1, 28, 28)
    return [(pixels / 255 - PIXEL_MEAN) / PIXEL_STD]


def chances(model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
    """The likeliest class of each image, and the probability of all."""
    logits = model(batch[0])
    return {"class": logits.argmax(1), "probabilities": logits.softmax(1)}


def split(images: TensorDataset) -> tuple[TensorDataset, TensorDataset]:
    """Images to train on, and the last twelfth of them, which chooses the best step. Test images choose nothing."""
    held_out = len(images) // 12
    return TensorDataset(*images[:-held_out]), TensorDataset(*images[-held_out:])


def fashion(
    network: Literal["dense", "convolutional"] = "dense",
    hidden: Count = 256,
    dropout: Share = 0.2,
    lr: Rate = 1e-3,
    folder: str = DEBIAN_FOLDER,
    max_steps: Count = 2000,
    patience: CountOrNone = None,
) -> Recipe:
    build = {"dense": dense, "convolutional": convolutional}[network]
    return Recipe(
        model=lambda: build(hidden, dropout),
        data=lambda: split(images_and_labels(folder))[0],
        evaluation=lambda: split(images_and_labels(folder))[1],
        evaluate_every=max(1, max_steps // 10),
        evaluation_batches=None,
        metrics=accuracy,
        best="accuracy",
        patience=patience,
        test=lambda: images_and_labels(folder, "t10k"),
        loss=class_loss,
        read=image_of,
        predict=chances,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        schedule=warmup_cosine(warmup_steps=50, floor=0.0),
        micro_batch_size=128,
        max_steps=max_steps,
        about=f"the 10 classes of Fashion-MNIST, from the files in {folder}",
    )
