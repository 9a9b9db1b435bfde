"""Context part: which tokens of a sample a rank of `cp` has. A recipe's `context_plan` cuts its batches with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surefoot.errors import RecipeError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ContextPart:
    """Part `rank` of `ranks`.

    Under a causal mask, late tokens attend to more than early ones. So by default a part is two pieces, one from the
    start of a sample and one as far from its end: all parts are equal work.
    """

    rank: int
    ranks: int
    by: str = "keys"
    """The recipe's `cp_by`. With `heads`, a part is one piece: each rank attends over all tokens."""

    @property
    def pieces(self) -> tuple[int, ...]:
        """The numbers of this part's pieces."""
        return pieces_of(self.rank, self.ranks, self.by)

    def cut(self, tensor: Tensor) -> Tensor:
        """This rank's part of a tensor whose second dimension is the tokens."""
        import torch

        count, tokens = self.ranks * len(self.pieces), tensor.shape[1]
        if tokens % count:
            raise RecipeError(
                f"cp={self.ranks} with cp_by={self.by} cuts samples into {count} equal pieces, and {tokens:,} tokens "
                f"are not a multiple of {count}; change the context"
            )
        pieces = tensor.chunk(count, 1)
        return torch.cat([pieces[number] for number in self.pieces], 1)

    def positions(self, tensor: Tensor) -> Tensor:
        """The positions of this rank's tokens in a sample, as one row; `tensor` is the whole."""
        import torch

        return self.cut(torch.arange(tensor.shape[1], device=tensor.device)[None])[0]


def pieces_of(rank: int, ranks: int, by: str) -> tuple[int, ...]:
    """The pieces that a rank has. The first and the last are a pair, the second and the last but one, and so on."""
    return (rank,) if by == "heads" else (rank, 2 * ranks - 1 - rank)
