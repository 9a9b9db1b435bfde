"""Figures that people know by heart, reproduced."""

import pytest
import torch

from surefoot import datasheet, watch
from surefoot.costs.napkin import largest_model, tensor_bytes, training_seconds
from surefoot.meters.books import Books
from surefoot.units import bytes_text


def booked(make) -> int:
    """The bytes that the memory meter books for what `make` builds and keeps."""
    with Books() as books:
        kept = make()
        books.memory.accounts()
        live = books.memory.book.peak.peak_bytes
    del kept
    return live


def test_a_4x8_float32_tensor_is_128_bytes():
    assert booked(lambda: torch.zeros(4, 8)) == 128 == tensor_bytes(4, 8)


def test_the_gpt3_feed_forward_matrix_is_two_and_a_quarter_gibibytes():
    from surefoot import fake_world

    with fake_world():
        assert booked(lambda: torch.empty(12_288, 49_152)) == 2_415_919_104
    assert bytes_text(tensor_bytes(12_288, 49_152)) == "2.25 GiB"


def test_a_70b_model_on_15t_tokens_takes_144_days_on_1024_h100s():
    seconds = training_seconds(
        parameters=70e9,
        tokens=15e12,
        devices=1024,
        peak_flops=datasheet("h100-sxm").dense_flops["bf16"],
        mfu=0.5,
    )
    assert seconds / 86_400 == pytest.approx(144, abs=0.5)


def test_eight_h100s_hold_40b_parameters_at_16_bytes_each():
    assert largest_model(devices=8, memory_bytes=datasheet("h100-sxm").memory_bytes) == 40e9


def test_a_view_shares_its_storage_and_is_booked_once():
    def make():
        tensor = torch.zeros(4, 8)
        return tensor, tensor.view(8, 4), tensor[1:3], tensor.transpose(0, 1)

    assert booked(make) == 128


def test_a_transposed_copy_is_booked_again():
    def make():
        tensor = torch.zeros(4, 8)
        return tensor, tensor.transpose(0, 1).contiguous()

    assert booked(make) == 256


def test_the_tape_example_is_seen_whole():
    """w * x + b with loss (y - 10)^2: the gradients are -12 and -6, watched or not."""
    weight = torch.nn.Linear(1, 1)
    with torch.no_grad():
        weight.weight.fill_(3.0)
        weight.bias.fill_(1.0)
    with watch(weight) as seen:
        optimizer = torch.optim.SGD(weight.parameters(), lr=0.0)
        ((weight(torch.tensor([[2.0]])) - 10) ** 2).sum().backward()
        optimizer.step()
    assert weight.weight.grad.item() == -12
    assert weight.bias.grad.item() == -6
    assert seen.tally.total("memory/parameters") == 8
