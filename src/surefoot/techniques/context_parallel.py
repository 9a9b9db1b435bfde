"""Context parallel: splits the tokens of each sample over ranks, for contexts that one rank cannot hold.

Only attention mixes tokens, so only there ranks exchange something. `F.scaled_dot_product_attention` is intercepted, in
any model that calls it:

| `cp_by` | what ranks exchange                                   | what each computes                            |
|---------|-------------------------------------------------------|-----------------------------------------------|
| `keys`  | an all-gather of keys and values; in backward a       | its own queries, against all keys before them |
|         | reduce-scatter of their gradients                     |                                               |
| `heads` | all-to-alls of queries, keys, values and the result   | some heads, over all tokens                   |

With `keys`, a rank has two pieces of each sample, one from its start and one as far from its end. So under a causal
mask all ranks compute equally much. The keys of a piece end with it, so its mask is aligned to the lower right. CUDA's
kernels take that without a mask; on a CPU, all layers share one mask of a piece's queries and all keys.

Parameters are sharded over the ranks of `dp_shard` and `cp` together, as in torchtitan. Each rank's loss is a sum over
its tokens, and the step divides by the count of all ranks. What the ranks compute is what one rank would, up to the
order of sums. Elements that are dropped out differ: each rank draws for its tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn.attention.bias import causal_lower_right

from surefoot.errors import RecipeError
from surefoot.recipe.context_part import ContextPart, pieces_of
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.mesh import Layout, context_group
from surefoot.torch_inside.patches import patched
from surefoot.world.world import World

Attention = Callable[..., Tensor]
HALVES, WIDEST = (torch.float16, torch.bfloat16), 256
"""The formats, and the widest head, that flash attention takes."""
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Since torch 2.13 the second names are deprecated."""


@dataclass
class Ranks:
    """The ranks that have the other tokens of this rank's samples."""

    group: ProcessGroup
    part: ContextPart
    kernels: str
    """Where attention is computed: the type of this device, or `planned` for a GPU that is not here."""
    masks: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)


def apply(recipe: Recipe, layout: Layout, world: World) -> Context | None:
    """What ranks need to have parts of the tokens. None if one rank has all."""
    if layout.cp == 1:
        return None
    part = ContextPart(layout.context_rank, layout.cp, recipe.cp_by)
    kernels = "planned" if world.gpu is not None else world.device.type
    return Context(Ranks(context_group(layout, world.device), part, kernels), recipe)


class Context:
    """Cuts batches, and makes attention be over the tokens of all ranks."""

    def __init__(self, ranks: Ranks, recipe: Recipe) -> None:
        self.ranks, self.recipe, self.attended = ranks, recipe, False
        self._made: dict[Attention, Attention] = {}

    def cut(self, batch: Any) -> Any:
        """This rank's part of a batch."""
        assert self.recipe.context_plan is not None
        return self.recipe.context_plan(batch, self.ranks.part)

    def attending(self) -> AbstractContextManager[None]:
        """A context in which attention is over the tokens of all ranks."""
        return patched(F, "scaled_dot_product_attention", self._attention)

    def _attention(self, plain: Attention) -> Attention:
        """What stands for torch's attention: always the same function, or torch would compile blocks anew each time."""

        def attend(*args: Any, **kwargs: Any) -> Tensor:
            self.attended = True
            return attention(self.ranks, plain, *args, **kwargs)

        return self._made.setdefault(plain, attend)

    def refuse_wrong(self, means: bool) -> None:
        """Raises after a forward that cannot be that of whole samples."""
        name = self.recipe.name
        if means:
            raise RecipeError(
                f"cp needs a loss that returns a sum and its count, and {name}'s returns a mean: ranks may have "
                "different counts"
            )
        if not self.attended:
            raise RecipeError(
                f"cp joins the tokens of all ranks in F.scaled_dot_product_attention, and the model of {name} did not "
                "call it: no token would see those of other ranks"
            )

    def whole_width(self, width: int) -> int:
        """The width of the heads of all causal attentions, of which the kernels of this rank had `width`."""
        return width * self.ranks.part.ranks if self.ranks.part.by == "heads" else width // 2

    def explain(self) -> list[str]:
        """One sentence: what is cut, and what ranks exchange."""
        part = self.ranks.part
        exchanged = "exchange queries, keys and values, so that each attends with some heads over all tokens"
        if part.by == "keys":
            exchanged = "gather keys and values; of each sample a rank has two pieces, so that all compute equally much"
        return [f"cp={part.ranks}: each rank has 1/{part.ranks} of the tokens of a sample; ranks {exchanged}"]


def attention(
    ranks: Ranks,
    plain: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention of this rank's queries over the tokens of all ranks. `plain` is torch's."""
    if attn_mask is not None:
        raise RecipeError(
            "cp knows causal attention and attention without a mask, and the model gave attention a mask: of packed "
            "documents, of padding or of a window; use cp=1, or data without it"
        )
    if query.shape[-2] != key.shape[-2]:
        raise RecipeError(
            f"cp knows attention of tokens to themselves, and here {query.shape[-2]} queries meet {key.shape[-2]} keys"
        )
    exchange = by_heads if ranks.part.by == "heads" else by_keys
    attend = functools.partial(plain, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa)
    return exchange(ranks, attend, query, key, value, is_causal)


# ------------------------------------------------------------------------------------- keys and values of all ranks


def by_keys(ranks: Ranks, attend: Attention, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Gathers keys and values. Each piece of queries attends to the keys up to its end."""
    both: Tensor = Gathered.apply(torch.cat((key, value), -1), ranks)  # type: ignore[no-untyped-call]
    keys, values = both.split((key.shape[-1], value.shape[-1]), -1)
    if not causal:
        return attend(query, keys, values)
    size, attended = query.shape[-2] // 2, []
    for queries, piece in zip(query.chunk(2, -2), ranks.part.pieces, strict=True):
        end = (piece + 1) * size
        attended.append(_lower_right(ranks, attend, queries, keys[..., :end, :], values[..., :end, :]))
    return torch.cat(attended, -2)


class Gathered(torch.autograd.Function):
    """The tokens of all ranks in their order. Backward sums what ranks found for each, and returns this rank's part."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        pieces = torch.stack(mine.chunk(2, -2))
        count = ranks.part.ranks
        gathered = pieces.new_empty(2 * count, *pieces.shape[1:])
        ALL_GATHER(gathered, pieces, group=ranks.group)
        order = _order(count)
        return torch.cat([gathered[order.index(number)] for number in range(2 * count)], -2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        count = ctx.ranks.part.ranks
        pieces = grads[0].chunk(2 * count, -2)
        sent = torch.stack([pieces[number] for number in _order(count)])
        mine = sent.new_empty(2, *sent.shape[1:])
        REDUCE_SCATTER(mine, sent, group=ctx.ranks.group)
        return torch.cat(mine.unbind(), -2), None


def _order(ranks: int) -> list[int]:
    """The pieces of all ranks, rank by rank."""
    return [piece for rank in range(ranks) for piece in pieces_of(rank, ranks, "keys")]


def _lower_right(ranks: Ranks, attend: Attention, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of queries whose last one sees all keys."""
    rows, columns = query.shape[-2], keys.shape[-2]
    if rows == columns:
        return attend(query, keys, values, is_causal=True)
    if ranks.kernels not in ("cuda", "planned") or query.dtype not in HALVES or query.shape[-1] > WIDEST:
        return attend(query, keys, values, attn_mask=_mask(ranks, rows, query)[:, -columns:])
    if ranks.kernels == "planned":  # the same kernel on a GPU that is not here: it takes no mask
        return attend(query, keys, values)
    return attend(query, keys, values, attn_mask=causal_lower_right(rows, columns))


def _mask(ranks: Ranks, rows: int, query: Tensor) -> Tensor:
    """What the last piece adds to its scores. Each piece takes as many columns, from the right, as it has keys."""
    columns = 2 * ranks.part.ranks * rows
    if (rows, query.dtype) not in ranks.masks:
        hidden = torch.full((rows, columns), -torch.inf, dtype=query.dtype, device=query.device)
        ranks.masks[rows, query.dtype] = hidden.triu_(columns - rows + 1)
    return ranks.masks[rows, query.dtype]


# ------------------------------------------------------------------------------------- whole sequences of some heads


def by_heads(ranks: Ranks, attend: Attention, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Attention as one rank computes it, with this rank's heads over all tokens."""
    count = ranks.part.ranks
    if query.shape[-3] % count:
        raise RecipeError(
            f"cp={count} with cp_by=heads gives each rank equally many heads, and attention has {query.shape[-3]}; use "
            "cp_by=keys"
        )
    key, value = (_enough_heads(each, count) for each in (key, value))
    query, key, value = (_swapped(each, -3, -2, ranks) for each in (query, key, value))
    return _swapped(attend(query, key, value, is_causal=causal), -2, -3, ranks)


def _enough_heads(tensor: Tensor, count: int) -> Tensor:
    """Heads of keys or values that ranks can share out. One that several ranks need is repeated."""
    heads = tensor.shape[-3]
    if heads % count == 0:
        return tensor
    if count % heads == 0:
        return tensor.repeat_interleave(count // heads, -3)
    raise RecipeError(
        f"cp={count} with cp_by=heads shares out the heads of keys and values, and attention has {heads}: neither "
        "divides the other; use cp_by=keys"
    )


def _swapped(tensor: Tensor, cut: int, joined: int, ranks: Ranks) -> Tensor:
    made: Tensor = Swapped.apply(tensor, cut, joined, ranks)  # type: ignore[no-untyped-call]
    return made


class Swapped(torch.autograd.Function):
    """Cuts one dimension into a part for each rank, and joins the parts that the ranks sent along another one."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, cut: int, joined: int, ranks: Ranks) -> Tensor:
        ctx.how = joined, cut, ranks
        sent = torch.stack(tensor.chunk(ranks.part.ranks, cut))
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=ranks.group)
        return torch.cat(got.unbind(), joined)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return Swapped.apply(grads[0], *ctx.how), None, None, None  # type: ignore[no-untyped-call]
