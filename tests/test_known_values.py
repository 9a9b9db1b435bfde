"""Known values: what a plan reads of small tensors is true, follows writes and views, and ends where it is unknown."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import surefoot
from surefoot.errors import WorldError
from surefoot.meters.books import Books
from surefoot.records.plan import WITHOUT
from surefoot.world import known_values
from surefoot.world.known_values import BATCH_ELEMENTS, KNOWN_ELEMENTS
from surefoot.world.world import FakeWorld


def unknown(*shape: int) -> torch.Tensor:
    """A tensor of a fake world whose values nobody knows."""
    return torch.ones(2 * KNOWN_ELEMENTS)[: torch.Size(shape).numel()].view(shape)


def anchors(scales, ratios):
    """As torchvision's detectors make them."""
    heights = torch.as_tensor(ratios).sqrt()
    widths = 1 / heights
    w, h = (widths[:, None] * scales[None]).view(-1), (heights[:, None] * scales[None]).view(-1)
    return (torch.stack([-w, -h, w, h], 1) / 2).round()


def written():
    table = torch.zeros(4, 6)
    row = table[1]
    row.fill_(2.0)
    table[2:, 3] += torch.arange(2) + 1.5
    return table


def beside(tensor):
    kept = tensor.detach()
    tensor.mul_(-1)
    return kept.clone()


def listed():
    one, two = torch.zeros(3), torch.ones(2)
    torch._foreach_add_([one, two], [torch.arange(3.0), torch.full((2,), 4.0)])
    return one.tolist(), two.tolist()


TRUE = {
    "a write to a list": listed,
    "anchors": lambda: anchors(torch.tensor([32.0, 64.0]), (0.5, 1.0, 2.0)).tolist(),
    "a write through a view": lambda: written().tolist(),
    "a write seen by a view": lambda: beside(torch.linspace(0, 1, 5)).tolist(),
    "places": lambda: (torch.eye(4) > 0).nonzero().tolist(),
    "a selection": lambda: torch.linspace(0, 1, 7)[torch.linspace(0, 1, 7) > 0.4].tolist(),
    "equal": lambda: torch.equal(torch.full((3,), 2.0).sqrt() ** 2 > 1, torch.ones(3, dtype=torch.bool)),
    "any": lambda: bool(((1.0 - torch.tensor([[1, 1, 0]])[:, None].float()) * -1e4 < 0).any()),
    "times": lambda: [float(each) for each in torch.linspace(0, 1, 21).unbind()],
    "numpy": lambda: torch.hann_window(8).numpy().tolist(),
    "copied": lambda: copy.deepcopy(torch.linspace(0, 1, 3)).tolist(),
    "a buffer": lambda: nn.BatchNorm1d(4).running_var.tolist(),
    "counts": lambda: torch.bincount((torch.linspace(0, 1, 5) * 2).long()).tolist(),
    "decided": lambda: bool((torch.full((5,), True) | (torch.ones(5) > 0)).all()),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_depends_on_nothing_fake_is_read_truly(name):
    made = TRUE[name]
    true = made()
    world = FakeWorld()
    with world:
        assert made() == true
    assert not world.assumptions


DRAWS = {
    "a scalar": lambda: torch.rand([]).item() < 1,
    "in place": lambda: int(torch.empty(1).uniform_(0.0, 3.0).item()) < 3,
    "a coin": lambda: not torch.equal(torch.bernoulli(torch.tensor([1.0])), torch.zeros(1)),
    "a number": lambda: torch.randint(5, 7, (1,)).item() in (5, 6),
    "an order": lambda: sorted(torch.randperm(9).tolist()) == list(range(9)),
    "a normal": lambda: int(torch.poisson(torch.exp(torch.empty(1).normal_(1.4, 0.5))).item()) >= 0,
}


@pytest.mark.parametrize("draw", DRAWS)
def test_a_small_draw_is_drawn_and_said(draw):
    world = FakeWorld()
    with world:
        assert DRAWS[draw]()
    assert all("read a random number: a step with another one is not validated" in note for note in world.assumptions)
    assert world.assumptions


def test_they_are_fakes_all_the_same():
    with FakeWorld():
        assert isinstance(torch.linspace(0, 1, 5) * 2, FakeTensor)
        assert isinstance(torch.zeros(3).to(torch.float64), FakeTensor)


ENDS = {
    "a write": lambda x: x.copy_(unknown(6)),
    "through a view": lambda x: x.view(2, 3)[0].add_(unknown(3)),
    "through a view of another shape": lambda x: x.as_strided((2,), (2,)).mul_(unknown(2)),
    "by index": lambda x: x.__setitem__(unknown(6) > 0, 1.0),
    "running statistics": lambda x: F.batch_norm(unknown(3, 6), x, torch.ones(6), training=True),
    "in a list": lambda x: torch._foreach_add_([x, torch.zeros(2)], [unknown(6), torch.ones(2)]),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_write_of_something_unknown_ends_the_value_of_all_views(how):
    world = FakeWorld()
    with world:
        x = torch.full((6,), 7.0)
        kept = x[1:]
        ENDS[how](x)
        assert x.sum().item() == kept.sum().item() == 1
    assert world.assumptions[".item() on a float32 tensor answered 1"] == 2


def test_a_real_tensor_to_which_something_unknown_was_written_is_not_read():
    given = torch.zeros(3)
    with FakeWorld():
        ended = torch.zeros(4, dtype=torch.long)
        ended[1:] = unknown(3).long()
        assert ended.sum().item() == 1
        count = torch.zeros(())
        count += unknown(3).sum()
        assert count.item() == 1
        given += 5
        assert given.sum().item() == 15


def test_parameters_are_not_known():
    with FakeWorld():
        layer = nn.Linear(3, 2)
        nn.init.zeros_(layer.bias)
        assert layer.bias.sum().item() == 1
        assert layer.bias.detach().sum().item() == 1
        assert nn.Parameter(torch.zeros(3), requires_grad=False).sum().item() == 1


def test_one_known_operand_may_decide():
    with FakeWorld():
        word = unknown(5) > 2
        assert bool((torch.full((5,), True) | word).all())
        assert not bool((torch.zeros(5, dtype=torch.bool) & word).any())
        assert ((torch.zeros(5, dtype=torch.long) * unknown(5).long()).sum() == 0).item()


def test_values_of_a_batch_are_read_and_said():
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(8, 8),
        (torch.full((4,), 0.25), torch.randn(64, 8)),
        loss=lambda model, batch: sum(model(batch[1]).square().mean() for _ in range(int(batch[0].sum().item() * 9))),
    )
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.steady == profile.steady
    assert any("read a value of the batch" in note and "not validated" in note for note in plan.assumptions)


class Ragged(nn.Module):
    """As Idefics3 leaves out images that are padding: rows that a mask chooses, split by how many each sample has."""

    def __init__(self):
        super().__init__()
        self.eyes = nn.Linear(8, 8)

    def forward(self, images):
        real = (images == 0).sum(-1) != 8
        parts = self.eyes(images[real]).split(real.sum(1).tolist())
        return torch.stack([part.sum(0) for part in parts])


def test_counts_of_a_mask_agree_with_what_it_chooses(monkeypatch):
    monkeypatch.setattr(known_values, "BATCH_ELEMENTS", 0)
    recipe = surefoot.recipe_of(Ragged, (torch.randn(4, 1024, 8),), loss=lambda m, b: m(b[0]).square().mean())
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.steady.peak == profile.steady.peak
    assert any("a count of an unknown mask" in note and "answered 1,024" in note for note in plan.assumptions)


def loop_of_unknown():
    rounds, x = 0, unknown(3)
    while x.norm() > 0.5:
        x, rounds = x * 0.5, rounds + 1
    return rounds


def loop_that_breaks():
    rounds = 0
    while True:
        rounds += 1
        if (unknown(3) > 3).all():
            break
    return rounds


def loop_of_numbers():
    rounds, error = 0, unknown(3).norm().item()
    while error > 0.5:
        rounds, error = rounds + 1, unknown(3).norm().item()
    return rounds


@pytest.mark.parametrize("loop", [loop_of_unknown, loop_that_breaks, loop_of_numbers])
def test_a_loop_that_ends_on_a_value_ends(loop):
    world = FakeWorld()
    with world:
        assert 100 <= loop() <= 102
        assert 100 <= loop() <= 102  # another call is another loop
    assert any("was ended after 100 rounds" in note and "test_known_values.py:" in note for note in world.assumptions)


def test_a_loop_without_a_file_ends():
    code = compile("rounds = 0\nwhile unknown(3).norm() > 0.5: rounds += 1", "<typed>", "exec")
    with FakeWorld():
        exec(code, names := {"unknown": unknown})
    assert names["rounds"] == 100


def test_a_loop_with_a_bound_goes_on_to_its_bound():
    def rounds(most):
        ended = torch.zeros(4, dtype=torch.bool)
        for number in range(most):  # noqa: B007
            ended = ended | (unknown(4) > 3)
            if ended.all():
                break
        return number + 1

    world = FakeWorld()
    with world:
        assert rounds(300) == 300
    assert any("went on to its bound" in note for note in world.assumptions)


def test_a_loop_that_no_answer_ends_is_refused():
    def endless():
        while unknown(3).norm() * 0 != unknown(3).norm() or True:
            pass

    with (
        FakeWorld(),
        pytest.raises(WorldError, match=r"the loop at test_known_values.py:\d+ did not end in 201 rounds"),
    ):
        endless()


def test_validation_of_values_passes_unsaid():
    world = FakeWorld()
    with world:
        x = unknown(4)
        if not (x > 0).all():
            raise ValueError
        assert (x < 1).all()
        numbers = {}
        numbers["loss"] = x.sum().item()
    assert not any("not validated" in note for note in world.assumptions)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.local, self.everywhere = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, gate):
        far = gate.any().item()
        return self.local(x) + (self.everywhere(x) if far else 0)


def planned_gate(gate):
    return surefoot.plan(surefoot.recipe_of(Gated, (torch.randn(4, 8),), loss=lambda m, b: m(b[0], gate(b[0])).sum()))


def test_a_plan_without_a_part_of_the_model_says_so_first():
    plan = planned_gate(lambda x: x.repeat(1, BATCH_ELEMENTS) > 0)
    assert plan.assumptions[0].startswith(f"{WITHOUT}50% of the trainable parameters, everywhere: no gradient")
    from rich.console import Console

    from surefoot.reports.plan import plan_text

    console = Console(record=True, width=200)
    console.print(plan_text(plan))
    assert WITHOUT in console.export_text().splitlines()[1]


def test_a_part_that_a_known_mask_asks_for_is_planned():
    plan = planned_gate(lambda x: torch.ones(4, 8)[:, :1] > 0)
    assert plan.assumptions == ()
    assert plan.steady.tally.total("flops/forward/everywhere") > 0


class Lookahead(torch.optim.Optimizer):
    """A wrapper as many are written: it steps another optimizer and does not call `Optimizer.__init__`."""

    def __init__(self, inner):
        self.inner, self.param_groups, self.state, self.defaults = (
            inner,
            inner.param_groups,
            inner.state,
            inner.defaults,
        )

    def step(self, closure=None):
        self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, saved):
        self.inner.load_state_dict(saved)


def test_a_wrapper_that_steps_another_optimizer_ends_the_step():
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(8, 8),
        (torch.randn(4, 8),),
        optimizer=lambda parameters: Lookahead(torch.optim.Adam(parameters)),
    )
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.steady == profile.steady


class Scaled(torch.Tensor):
    """A weight whose products have a number added, inside of the call of `linear`."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return torch.ops.aten.add.Tensor(func(*args, **(kwargs or {})), 1)


def test_a_number_that_is_added_inside_of_linear_is_no_bias():
    weight = torch.ones(2, 3)
    with Books(), torch.no_grad():
        assert F.linear(torch.ones(4, 3), weight.as_subclass(Scaled)).tolist() == [[4.0, 4.0]] * 4
