"""A small GPT that learns a poem letter by letter, as a recipe: surefoot plans, checks, trains and exports it."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

# Your text goes here. For more than a few megabytes, `surefoot data tokenize` makes a corpus of verified tokens.
TEXT = """Twas brillig, and the slithy toves did gyre and gimble in the wabe:
All mimsy were the borogoves, and the mome raths outgrabe.
Beware the Jabberwock, my son! The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun the frumious Bandersnatch!
He took his vorpal sword in hand; long time the manxome foe he sought -
So rested he by the Tumtum tree, and stood awhile in thought.
And, as in uffish thought he stood, the Jabberwock, with eyes of flame,
Came whiffling through the tulgey wood, and burbled as it came!
"""
LETTERS = sorted(set(TEXT))


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """`context` letters from each position, and the same shifted by one: what comes next at every place."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])

    def __len__(self) -> int:
        return len(self.numbers) - self.context

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        end = start + self.context
        return self.numbers[start:end].clone(), self.numbers[start + 1 : end + 1].clone()


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, context: int) -> None:
        super().__init__()
        self.letter, self.position = nn.Embedding(len(LETTERS), width), nn.Embedding(context, width)
        # norm_first and no dropout: trains steadily without tuning.
        kind = partial(nn.TransformerEncoderLayer, width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(kind() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS))
        for table in (self.letter, self.position):
            nn.init.normal_(table.weight, std=0.02)  # torch's default of 1 would drown what the blocks add

    def forward(self, letters: Tensor) -> Tensor:
        length = letters.shape[1]
        x = self.letter(letters) + self.position.weight[:length]
        # Without this mask every place could read the letter that it is to predict.
        future = torch.ones(length, length, dtype=torch.bool, device=letters.device).triu(1)
        for block in self.blocks:
            x = block(x, src_mask=future, is_causal=True)
        return self.head(self.norm(x))


def next_letter_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """A sum and its count, not a mean: surefoot divides once per step, so the size of a micro-batch changes nothing."""
    letters, targets = batch
    return F.cross_entropy(model(letters).flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()


# The parameters are the knobs: `surefoot train FILE layers=4 width=128`.
def gpt(layers: int = 2, width: int = 64, context: int = 32, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: GPT(layers, width, context),  # surefoot seeds torch before it builds each part
        data=lambda: Windows(context),
        loss=next_letter_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=32,
        tokens_per_sample=context,  # so that speed and cost are told by token
        max_grad_norm=1.0,  # a transformer's first steps can be steep
        max_steps=200,
        about="the next letter of a poem",
    )
