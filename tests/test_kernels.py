"""Kernels: what fake operators do not say is measured once for each distinct call."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.meters import allocator
from surefoot.meters.books import Books
from surefoot.world.kernels import Kernels, allocated_peak, corrected, signature
from surefoot.world.world import FakeWorld

aten = torch.ops.aten


def test_the_peak_of_a_call_counts_what_is_given_back():
    x = torch.ones(1000)
    assert allocated_peak(lambda: x.sin()) == 4000
    assert allocated_peak(lambda: x.sin().cos().exp()) == 8000
    assert allocated_peak(lambda: x.view(10, 100)) == 0


@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
def test_the_legacy_profiler_agrees_with_the_counting_allocator():
    gc.collect()
    allocator.install()
    x, weight = torch.randn(4, 16, 20, 20).bfloat16(), torch.randn(8, 16, 3, 3).bfloat16()

    def run():
        return F.conv2d(x, weight).relu().sum()

    run()
    before = allocator.live_bytes()
    allocator.reset_peak()
    run()
    assert allocated_peak(run) == allocator.peak_bytes() - before


def test_views_elementwise_work_and_random_operators_are_not_run():
    kernels, x = Kernels(), torch.ones(4, 4)
    for func, args in (
        (aten.view.default, (x, [16])),
        (aten.add.Tensor, (x, x)),
        (aten.bernoulli.default, (x,)),
        (aten.nonzero.default, (x,)),
        (aten._foreach_mul.Scalar, ([x, x], 2.0)),
    ):
        assert kernels.measured(func, args, {}) is None
    assert kernels._known == {}


def test_mixed_elementwise_work_makes_a_copy_inside():
    x, y = torch.ones(1000, 100), torch.ones(1000, 100).bfloat16()
    kernel = Kernels().measured(aten.add.Tensor, (x, y), {})
    assert kernel.results[0].storage_bytes == 400_000
    assert kernel.workspace_bytes == allocated_peak(lambda: x + y) - 400_000 > 0


def test_a_fake_result_with_other_strides_is_replaced():
    x = torch.ones(4, 6)
    kernel = Kernels().measured(aten.mm.default, (x, x.t()), {})
    right, wrong = torch.empty(4, 4), torch.empty(4, 4).t()
    assert corrected(right, kernel) is right
    assert corrected(wrong, kernel).stride() == (4, 1)
    row = Kernels().measured(aten.mm.default, (x[:1], x.t()), {})
    any_stride = torch.empty(4).as_strided((1, 4), (7, 1))
    assert corrected(any_stride, row) is any_stride


def test_a_call_is_measured_once_and_leaves_the_generator_alone():
    kernels, x = Kernels(), torch.ones(8, 8)
    before = torch.get_rng_state()
    first = kernels.measured(aten.mm.default, (x, x), {})
    assert kernels.measured(aten.mm.default, (x.clone(), x + 1), {}) is first
    assert len(kernels._known) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_above_the_limit_is_counted_and_not_run():
    kernels, x = Kernels(limit_bytes=100), torch.ones(8, 8)
    assert kernels.measured(aten.mm.default, (x, x), {}) is None
    assert len(kernels.too_large) == 1


def test_a_loop_that_is_profiled_is_left_alone():
    x = torch.ones(8, 8)
    with torch.profiler.profile() as seen:
        assert Kernels().measured(aten.mm.default, (x, x), {}) is None
        x @ x
    assert any(event.key == "aten::mm" for event in seen.key_averages())


def test_a_fake_result_of_the_wrong_size_is_replaced():
    """`mse_loss` hands back a scalar on a storage of the whole difference; LSTM keeps a workspace for backward."""
    x, y = torch.ones(100, 10), torch.zeros(100, 10)
    real = F.mse_loss(x, y).untyped_storage().nbytes()
    with FakeWorld():
        fake = F.mse_loss(torch.ones(100, 10), torch.zeros(100, 10))
        assert fake.untyped_storage().nbytes() == real
        lstm = nn.LSTM(8, 16, batch_first=True)
        with surefoot.watch(lstm) as seen:
            optimizer = torch.optim.SGD(lstm.parameters(), lr=0.1)
            lstm(torch.ones(4, 5, 8))[0].sum().backward()
            optimizer.step()
    assert seen.tally.total("memory/activations") > 4 * 5 * 16 * 4 * 4
    kernel = Kernels().measured(aten.mm.default, (x, x.t()), {})
    wrong = torch.empty(100, 100, dtype=torch.bfloat16)
    assert corrected(wrong, kernel).dtype is torch.float32


def peaks(build, batch, loss, *, optimizer=torch.optim.SGD):
    """The peak of one step by phase: booked on fake tensors, and counted by the allocator on real ones."""
    from surefoot.events.listener import Listener
    from surefoot.events.phases import Phases

    class Counter(Listener):
        def __init__(self):
            self.found, self.running = {}, None

        def entered(self, segment):
            if self.running is not None:
                name = "update" if self.running.name == "between" else self.running.name
                self.found[name] = max(self.found.get(name, 0), allocator.peak_bytes() - base)
            allocator.reset_peak()
            self.running = segment

    def step(model, made):
        loss(model(batch())).backward()
        made.step()
        made.zero_grad()

    gc.collect()
    allocator.install()
    base = allocator.live_bytes()
    model = build()
    made = optimizer(model.parameters(), lr=0.1)
    step(model, made)
    counter, phases = Counter(), Phases(model)
    phases.listeners.append(counter)
    with phases:
        step(model, made)
    del model, made
    with FakeWorld() as world:
        model = build()
        made = optimizer(model.parameters(), lr=0.1)
        with Books(model, kernels=world.kernels) as books:
            step(model, made)
            step(model, made)
    booked = {name: peak.peak_bytes for name, peak in books.steps[1].phase_peaks.items()}
    return {name: (booked[name], counter.found[name]) for name in ("forward", "backward")}


@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2)),
        lambda: nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2)),
        lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.Flatten(2), nn.Linear(576, 32), nn.LayerNorm(32)),
    ],
    ids=["group norm", "batch norm", "linear on three dimensions"],
)
def test_booked_peaks_equal_the_allocator_with_the_workspace_of_convolutions(build):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = peaks(build, lambda: torch.ones(4, 3, 24, 24), lambda out: out.square().mean())
    finally:
        torch.set_num_threads(threads)
    for booked, counted in found.values():
        assert booked == pytest.approx(counted, rel=2e-4)


def test_the_bias_of_a_linear_layer_is_added_as_without_a_mode():
    """On an input that is not contiguous: in place, and with the same numbers and gradients."""
    layer, x = nn.Linear(6, 5), torch.randn(3, 6, 4).transpose(1, 2)
    plain = layer(x)
    plain.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    with Books(layer) as books:
        watched = layer(x)
        watched.square().sum().backward()
        torch.optim.SGD(layer.parameters(), lr=0.0).step()
    assert torch.equal(watched, plain)
    assert all(torch.equal(p.grad, g) for p, g in zip(layer.parameters(), gradients, strict=True))
    made = [b for b in books.memory._bookings.values() if b.operator == "aten.add.Tensor"]
    assert not made


def test_how_many_elements_are_chosen_is_stated():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.expert = nn.Linear(8, 4), nn.Linear(8, 8)

        def forward(self, x):
            rows = (self.gate(x).argmax(-1) == 0).nonzero().flatten()
            return torch.zeros_like(x).index_add(0, rows, self.expert(x[rows]))

    def planned(density):
        recipe = surefoot.Recipe(
            model=Routed,
            data=lambda: torch.utils.data.TensorDataset(torch.randn(64, 8)),
            loss=lambda model, batch: model(batch[0]).square().mean(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            micro_batch_size=32,
            density=density,
        )
        return surefoot.plan(recipe)

    worst, quarter = planned(None), planned(0.25)
    assert worst.assumptions == (
        "nonzero chose 100.0% of 32 elements, which is not validated: "
        "the worst case; set the recipe's density (2 times)",
    )
    assert quarter.assumptions == (
        "nonzero chose 25.0% of 32 elements, which is not validated: the recipe's density (2 times)",
    )
    assert quarter.steady.tally.total("flops/forward/expert") * 4 == worst.steady.tally.total("flops/forward/expert")
    assert quarter.steady.peak.peak_bytes < worst.steady.peak.peak_bytes


def test_the_bias_is_added_in_place_inside_multi_head_attention_too():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    plain, _ = layer(x, x, x)
    with Books(layer) as books:
        added = []
        books.memory.book.followers.append(lambda booking: added.append(booking.operator))
        watched, _ = layer(x, x, x)
    assert torch.equal(watched, plain)
    assert "aten.add.Tensor" not in added


def test_the_key_of_a_storage_is_its_size_and_not_its_bytes():
    """As text it would list every byte: planning a recipe that loads 30 KB of weights took half a minute."""
    assert signature([torch.zeros(1000).untyped_storage()]) == (4000,)


def test_a_convolution_of_which_only_the_bias_is_trained_can_be_planned():
    """Its kernel makes the gradient of the weight too, which nobody asked for."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    plan = surefoot.plan(lambda: model, torch.randn(2, 3, 12, 12))
    assert plan.steady.tally.total("memory/gradients") <= 4 * 16 * 2
