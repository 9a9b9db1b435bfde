"""Phases are seen from outside: any optimizer, real or fake tensors, a recipe's step or a loop of one's own."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from surefoot import fake_world
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter, Operators


class Diary(Meter):
    """Writes down, for every operator, its phase and module; and every segment in order."""

    def __init__(self, phases: Phases) -> None:
        self.phases, self.operators, self.segments = phases, [], []

    def operator(self, func, args, kwargs, out) -> None:
        self.operators.append((func.overloadpacket.__name__, self.phases.now(), self.phases.module()))

    def entered(self, segment) -> None:
        self.segments.append(segment)

    def phase_of(self, operator: str) -> list[str]:
        return [segment.name for name, segment, _ in self.operators if name == operator]

    def order(self) -> list[str]:
        names = [segment.name for segment in self.segments]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


def follow(model: nn.Module | None, loop) -> Diary:
    phases = Phases(model)
    diary = Diary(phases)
    phases.listeners.append(diary)
    with phases, Operators([diary]):
        loop()
    return diary


@pytest.mark.parametrize("world", [nullcontext, fake_world], ids=["real", "fake"])
@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_a_hand_written_loop_is_seen_with_every_kind_of_optimizer(world, options):
    with world():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), **options)

        def loop():
            for _ in range(2):
                x = torch.ones(3, 4)
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        diary = follow(model, loop)
    assert diary.order() == ["forward", "loss", "backward", "update", "load"] * 2
    assert diary.phase_of("ones") == ["load", "load"]
    assert set(diary.phase_of("addmm")) == {"forward"}
    assert set(diary.phase_of("mean")) == {"loss"}
    assert set(diary.phase_of("threshold_backward")) == {"backward"}
    update = {"_fused_adamw_"} if options.get("fused") else {"_foreach_lerp_"} if options["foreach"] else {"lerp_"}
    for operator in update:
        assert set(diary.phase_of(operator)) == {"update"}
    assert set(diary.phase_of("linalg_vector_norm") or diary.phase_of("_foreach_norm")) == {"update"}


def test_loading_between_micro_batches_is_told_from_clipping():
    model, data = nn.Linear(2, 1), iter([torch.ones(1, 2)] * 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        for _ in range(3):
            model(next(data) + 0).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    diary = follow(model, loop)
    assert diary.phase_of("add")[:3] == ["load"] * 3
    norms = [segment.name for name, segment, _ in diary.operators if "norm" in name]
    assert norms
    assert set(norms) == {"update"}


def test_backward_work_is_told_by_module():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 1))

    def loop():
        model(torch.ones(3, 4)).sum().backward()

    diary = follow(model, loop)
    products = [module for name, segment, module in diary.operators if name == "mm" and segment.name == "backward"]
    assert products == [
        "2",
        "2",
        "1.0",
        "1.0",
        "0",
    ]  # input and weight gradients; the first layer's input needs none
    assert [m for n, s, m in diary.operators if n == "gelu_backward"] == ["1.1"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_belongs_to_backward(reentrant: bool):
    block = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(4, 4), block

        def forward(self, x):
            return checkpoint(self.block, self.first(x), use_reentrant=reentrant)

    model = Recomputed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()

    diary = follow(model, loop)
    assert diary.phase_of("addmm") == ["forward", "forward", "backward"]
    assert diary.order() == ["forward", "loss", "backward", "update", "load"]
    assert [m for n, s, m in diary.operators if n == "addmm" and s.name == "backward"] == ["block.0"]


def test_evaluation_is_a_phase_of_its_own():
    model = nn.Linear(2, 1)

    def loop():
        with torch.no_grad():
            model(torch.ones(1, 2)).square()
        model(torch.ones(1, 2)).sum().backward()

    diary = follow(model, loop)
    assert diary.phase_of("addmm") == ["evaluate", "forward"]
    assert diary.phase_of("square") == ["evaluate"] or diary.phase_of("pow") == ["evaluate"]


def test_a_loss_module_without_parameters_is_no_model():
    model, criterion = nn.Linear(2, 3), nn.CrossEntropyLoss()

    def loop():
        criterion(model(torch.ones(4, 2)), torch.tensor([0, 1, 2, 0])).backward()

    diary = follow(None, loop)
    assert set(diary.phase_of("_log_softmax")) == {"loss"}
    assert [s.name for s in diary.segments][:2] == ["forward", "loss"]


def test_an_exception_in_forward_leaves_no_trace():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(2, 2), Failing())
    phases = Phases(model)
    with phases:
        with pytest.raises(ValueError, match="no"):
            model(torch.ones(1, 2))
        assert phases.module() == ""
        model[0](torch.ones(1, 2))
        assert phases.segment.name == "loss"


def test_following_restores_what_it_touched():
    backward = torch.autograd.backward
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers

    def hooks():
        return (
            len(modules._global_forward_hooks),
            len(modules._global_forward_hooks_with_kwargs),
            len(modules._global_forward_pre_hooks),
            len(optimizers._global_optimizer_pre_hooks),
            len(optimizers._global_optimizer_post_hooks),
        )

    before = hooks()
    with Phases(nn.Linear(1, 1)):
        assert torch.autograd.backward is not backward
        assert hooks() != before
    assert torch.autograd.backward is backward
    assert hooks() == before


def test_listeners_hear_the_events_in_order():
    heard = []

    class Ear(Listener):
        def forward_begins(self, model):
            heard.append("forward begins")

        def forward_ends(self, model, args, kwargs):
            heard.append(f"forward ends {len(args)} {sorted(kwargs)}")

        def backward_begins(self, losses):
            heard.append("backward begins")

        def backward_ends(self):
            heard.append("backward ends")

        def update_begins(self, optimizer):
            heard.append("update begins")

        def update_ends(self, optimizer):
            heard.append("update ends")

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(model)
    phases.listeners.append(Ear())
    with phases:
        model(input=torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert heard[:2] == ["forward begins", "forward ends 0 ['input']"]
    assert heard[2:] == ["backward begins", "backward ends", "update begins", "update ends"]
