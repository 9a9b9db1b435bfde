"""Watching changes no number: losses, evaluations and weights of a loop are bit for bit those of the bare loop."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from surefoot.meters.flops import FlopsMeter
from surefoot.watch import watch_call

Program = Callable[[], list[torch.Tensor]]


def trained(model: nn.Module, loss: Callable[[], torch.Tensor], *, steps: int = 3) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def padded_encoder() -> list[torch.Tensor]:
    """A row that is all padding is NaN on the fast path and a number on the other one."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    rows, mask = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    weights = trained(model, lambda: model(rows).square().mean())
    mask[0], mask[1, 3:] = True, True
    model.eval()
    with torch.no_grad():
        return [*weights, model(rows, src_key_padding_mask=mask)]


def nested_encoder() -> list[torch.Tensor]:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    rows, mask = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    weights = trained(model, lambda: model(rows).square().mean())
    mask[1, 3:] = True
    model.eval()
    with torch.no_grad():
        return [*weights, model(rows, src_key_padding_mask=mask)]


def attention() -> list[torch.Tensor]:
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    rows = torch.randn(2, 4, 8)
    weights = trained(model, lambda: model(rows, rows, rows)[0].square().mean())
    model.eval()
    with torch.no_grad():
        return [*weights, *model(rows, rows, rows)]


def layer_after_a_hundred_updates() -> list[torch.Tensor]:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    rows = torch.randn(2, 4, 8)
    weights = trained(model, lambda: model(rows).square().mean(), steps=104)
    model.eval()
    with torch.no_grad():
        return [*weights, model(rows)]


def products_into_a_tensor() -> list[torch.Tensor]:
    model, rows, tile = nn.Linear(4, 4), torch.randn(3, 4), torch.empty(3, 4)
    kept = []

    def loss() -> torch.Tensor:
        with torch.no_grad():
            kept.append(torch.addmm(model.bias, rows, model.weight, out=tile).clone())
        return model(rows).square().mean()

    return [*trained(model, loss), *kept]


PROGRAMS = (
    padded_encoder,
    nested_encoder,
    attention,
    layer_after_a_hundred_updates,
    products_into_a_tensor,
)


def outputs(program: Program, *, watched: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    found: list[torch.Tensor] = []
    if watched:
        watch_call(lambda: found.extend(program()), name=__file__)
    else:
        found.extend(program())
    return found


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_outputs_are_bit_for_bit_those_of_the_bare_loop(program: Program):
    pairs = zip(outputs(program, watched=False), outputs(program, watched=True), strict=True)
    for bare, seen in pairs:
        assert torch.equal(bare.isnan(), seen.isnan())
        assert torch.equal(bare.nan_to_num(), seen.nan_to_num())


def test_the_padded_row_is_nan_here():
    """Else the test above would not tell one path from the other."""
    assert outputs(padded_encoder, watched=True)[-1][0].isnan().all()


def test_a_meter_that_fails_ends_the_measuring_and_not_the_script(monkeypatch):
    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.delenv("SUREFOOT_RAISE", raising=False)
    monkeypatch.setattr(FlopsMeter, "operator", fail)
    with pytest.warns(RuntimeWarning, match="surefoot stopped measuring: KeyError: 'lost'"):
        record = watch_call(attention, name=__file__)
    assert "KeyError: 'lost'" in record.failure
    assert record.steps == 3
    assert record.findings.failure == ""
