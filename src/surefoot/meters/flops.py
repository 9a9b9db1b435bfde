"""FLOPs: those of matrix products, convolutions, attention and recurrent layers, by phase and module.

A multiplication and an addition are two FLOPs. Elementwise work, norms and softmax are not counted. Attention
counts the full square, even with a causal mask. Recomputation is booked under `flops/recompute`, and so are the
scores that fused attention computes again in its backward: the total of `flops` is what the hardware does; without
`recompute` it is what the model needs.

The formulas are surefoot's own: `FlopCounterMode` counts 0 for LSTM on the CPU, and before torch 2.15 for attention.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.journal import Journal
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.torch_inside.operators import private

aten = torch.ops.aten


class FlopsMeter(Meter):
    """Books `flops/PHASE/MODULE`."""

    def __init__(self, phases: Phases, journal: Journal | None = None) -> None:
        self.phases, self.book = phases, self if journal is None else journal
        self._counted: dict[tuple[Segment, bool, str], int] = defaultdict(int)
        self._attention: list[tuple[int, ...]] = []
        self.executed = 0
        """All that was counted so far, whatever the step."""
        self.attention: tuple[tuple[int, ...], ...] = ()
        """Of every attention in forward: heads x head size, and how many keys."""

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        formula = formula_of(func)
        if formula is not None:
            place = self.phases.now(), self.phases.recomputing(), self.phases.module()
            attention: tuple[int, ...] = ()
            if formula is _attention and not place[1]:
                query, key = args[:2]
                attention = query.shape[-3] * query.shape[-1], key.shape[-2]
            amount = flops_of(func, args, kwargs, out)
            self.executed += amount
            if formula is _attention_backward and not place[1]:
                again = _scores(*args[1:3])
                self.book.count_flops(place[0], True, place[2], again, ())
                amount -= again
            self.book.count_flops(*place, amount, attention)

    def count_flops(
        self, segment: Segment, again: bool, module: str, amount: int, attention: tuple[int, ...] = ()
    ) -> None:
        """Adds the FLOPs of an operator. `attention` is its shape, if it is attention in forward."""
        self._counted[segment, again, module] += amount
        if attention:
            self._attention.append(attention)

    def accounts(self) -> list[Account]:
        booked = [
            Account(f"flops/{'recompute' if again else segment.name}/{module}".rstrip("/"), count, "FLOP")
            for (segment, again, module), count in self._counted.items()
        ]
        self.attention = tuple(self._attention)
        self._counted.clear()
        self._attention.clear()
        return booked


def formula_of(func: Any) -> Callable[..., int] | None:
    """The formula of an operator. None if it counts nothing. Those of other libraries go by their names."""
    if func.namespace != "aten":
        return OTHERS.get(str(func.overloadpacket))
    return FORMULAS.get(func.overloadpacket)


def flops_of(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """The FLOPs of one call."""
    formula = formula_of(func)
    return formula(out, *args, **{name: kwargs[name] for name in kwargs if name != "out"}) if formula else 0


def _product(out: torch.Tensor, left: torch.Tensor, *_: Any, **__: Any) -> int:
    """Each element of the result is a sum over the inner dimension of the left operand."""
    return 2 * out.numel() * left.shape[-1]


def _added_product(out: torch.Tensor, added: torch.Tensor, left: torch.Tensor, *_: Any, **__: Any) -> int:
    return _product(out, left)


def _grouped_product(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> int:
    """Each row belongs to one group: rows x inner x columns, for any grouping."""
    return 2 * left.shape[-2] * left.shape[-1] * right.shape[-1]


def _convolution(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, *_: Any, **__: Any,
) -> int:  # fmt: skip
    """One filter per output element, or per input element if transposed. A filter is as large as weight[0]."""
    return 2 * (x.numel() if transposed else out.numel()) * math.prod(weight.shape[1:])


def _convolution_backward(
    out: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: list[bool],
) -> int:  # fmt: skip
    """The products of forward, once for the input's gradient and once for the weight's, if requested."""
    forward = _convolution(grad, x, weight, None, stride, padding, dilation, transposed)
    return forward * sum(output_mask[:2])


def _attention(out: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> int:
    """Two products per head: scores (T x S x D) and their weighted values (T x S x V)."""
    heads = math.prod(query.shape[:-2])
    return _scores(query, key) + 2 * heads * query.shape[-2] * key.shape[-2] * value.shape[-1]


def _scores(query: torch.Tensor, key: torch.Tensor) -> int:
    """The product of queries and keys. Fused attention keeps no scores, so its backward computes them again."""
    return 2 * math.prod(query.shape[:-2]) * query.shape[-2] * key.shape[-2] * query.shape[-1]


def _attention_backward(
    out: Any, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> int:
    """Five products: the scores again, and the gradients of values, probabilities, queries and keys."""
    heads = math.prod(query.shape[:-2])
    return 2 * heads * query.shape[-2] * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])


def _documents(
    out: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, *_: Any
) -> int:
    """Attention of documents side by side. Tensors are tokens, heads and widths; `starts` also holds the end."""
    return 2 * query.shape[1] * _pairs(starts) * (query.shape[-1] + value.shape[-1])


def _documents_backward(
    out: Any, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, made: torch.Tensor,
    sums: torch.Tensor, starts: torch.Tensor, *_: Any,
) -> int:  # fmt: skip
    return 2 * query.shape[1] * _pairs(starts) * (3 * query.shape[-1] + 2 * value.shape[-1])


def _pairs(starts: torch.Tensor) -> int:
    """How many pairs of tokens lie in the same document."""
    return int(starts.diff().long().square().sum())


def _recurrent_layer(
    out: Any, x: torch.Tensor, from_input: torch.Tensor, from_state: torch.Tensor, *_: Any, **__: Any
) -> int:
    """The products of all gates with the input and with the state, at every time step of every sample."""
    return 2 * x.shape[0] * x.shape[1] * (from_input.numel() + from_state.numel())


def _recurrent_layer_backward(out: Any, *args: Any, **kwargs: Any) -> int:
    """As many products as in forward for inputs and states, and as many for the weights."""
    return 2 * _recurrent_layer(out, *args, **kwargs)


def _recurrent_stack(out: Any, x: torch.Tensor, weights: list[torch.Tensor], *_: Any, **__: Any) -> int:
    return 2 * x.shape[0] * x.shape[1] * sum(weight.numel() for weight in weights if weight.dim() == 2)


FORMULAS: dict[Any, Callable[..., int]] = {
    aten.mm: _product,
    aten.bmm: _product,
    aten.addmm: _added_product,
    aten.baddbmm: _added_product,
    private("_scaled_mm"): _product,
    private("_grouped_mm"): _grouped_product,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    private("_scaled_dot_product_flash_attention_for_cpu"): _attention,
    private("_scaled_dot_product_flash_attention_for_cpu_backward"): _attention_backward,
    private("_scaled_dot_product_flash_attention"): _attention,
    private("_scaled_dot_product_flash_attention_backward"): _attention_backward,
    private("_scaled_dot_product_efficient_attention"): _attention,
    private("_scaled_dot_product_efficient_attention_backward"): _attention_backward,
    private("_scaled_dot_product_cudnn_attention"): _attention,
    private("_scaled_dot_product_cudnn_attention_backward"): _attention_backward,
    aten.mkldnn_rnn_layer: _recurrent_layer,
    aten.mkldnn_rnn_layer_backward: _recurrent_layer_backward,
    private("_cudnn_rnn"): _recurrent_stack,
}
OTHERS: dict[str, Callable[..., int]] = {
    "bitsandbytes.gemm_4bit": _product,
    "torch_attn._varlen_attn": _documents,
    "torch_attn._varlen_attn_backward": _documents_backward,
}
"""Operators of libraries that need not be installed, and those that torch has from a later version on."""
