"""Several backwards per update: micro-batches, and what is none; and weights that an update leaves where they are."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.test_loop_variants import looped
from tests.checks.test_variants import named
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, whole

pytestmark = pytest.mark.sweep

PARTS = X.chunk(2), (torch.tensor([0, 1, 1, 0]), torch.tensor([1, 1, 0, 1]))


@pytest.mark.parametrize("apart", [True, False])
def test_tasks_with_heads_of_their_own_are_no_micro_batches(apart):
    body, heads = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.ModuleList(nn.Linear(8, 2) for _ in range(2))
    model = nn.ModuleList([body, heads])
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for task, (x, y) in enumerate(zip(*PARTS, strict=True)):
                F.cross_entropy(heads[task if apart else 0](body(x)), y).backward()
            optimizer.step()
    assert ("summed-micro-batches" in named(seen.findings)) is not apart


@pytest.mark.parametrize("loaders", [1, 2])
def test_a_batch_from_each_loader_is_no_micro_batch(loaders):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        data = [TensorDataset(numbers(32, 4, seed=seed), whole(2, 32, seed=seed)) for seed in range(loaders)]
        streams = [iter(DataLoader(each, 4, shuffle=True)) for each in data]
        for _ in range(4):
            optimizer.zero_grad()
            for number in range(2):
                x, y = next(streams[number % loaders])
                F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert ("summed-micro-batches" in named(seen.findings)) is (loaders == 1)


@pytest.mark.parametrize("same", [True, False])
def test_two_looks_at_the_same_targets_are_no_micro_batches(same):
    x, y = numbers(16, 4), whole(2, 16)

    def step(model, optimizer):
        optimizer.zero_grad()
        for shown, target in ((x, y), (x + 0.1 * torch.randn_like(x), y if same else y.flip(0))):
            F.cross_entropy(model(shown), target).backward()
        optimizer.step()

    assert ("summed-micro-batches" in looped(step)) is not same


@pytest.mark.parametrize("goes_on", [True, False])
def test_parts_of_a_sequence_are_no_micro_batches(goes_on):
    model = Module(lambda self, x, h: self.cell(x, h), cell=lambda: nn.GRU(4, 4, batch_first=True))
    series = numbers(8, 12, 4)

    def step(model, optimizer):
        optimizer.zero_grad()
        h = torch.zeros(1, 8, 4)
        for start in (0, 5):
            out, last = model(series[:, start : start + 5], h)
            F.mse_loss(out, series[:, start + 1 : start + 6]).backward()
            h = last.detach() if goes_on else h
        optimizer.step()

    assert ("summed-micro-batches" in looped(step, model=model)) is not goes_on


@pytest.mark.parametrize(
    ("joined", "found"),
    [
        (lambda main, beside: main + 0.2 * beside, True),
        (lambda main, beside: sum([0.5 * beside, main]), True),
        (lambda main, beside: (main + 0.2 * beside) / 1, True),
        (lambda main, beside: (main + 0.2 * beside) / 2, False),
        (lambda main, beside: main / 2 + 0.1 * beside, False),
        (lambda main, beside: (2 * main + beside) / 2, False),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_losses_of_two_terms_are_summed_too(joined, found, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale > 1)

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in zip(*PARTS, strict=True):
            logits = model(x)
            scaler.scale(joined(F.cross_entropy(logits, y), F.smooth_l1_loss(logits[:, 0], x[:, 0]))).backward()
        scaler.step(optimizer)
        scaler.update()

    assert ("summed-micro-batches" in looped(step)) is found


@pytest.mark.parametrize("same", [True, False])
def test_two_looks_at_a_batch_with_two_terms_are_no_micro_batches(same):
    x, y = numbers(16, 4), whole(2, 16)

    def step(model, optimizer):
        optimizer.zero_grad()
        for shown, target in ((x, y), (x + 0.1 * torch.randn_like(x), y if same else y.flip(0))):
            logits = model(shown)
            (F.cross_entropy(logits, target) + 0.1 * F.mse_loss(logits[:, 0], shown[:, 0])).backward()
        optimizer.step()

    assert ("summed-micro-batches" in looped(step)) is not same


def kept_by_hand(model):
    return [p.grad.clone() for p in model.parameters()]


def in_a_row(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    ("take", "found"),
    [(kept_by_hand, False), (in_a_row, False), (lambda model: [p.grad.norm() for p in model.parameters()], True)],
)
def test_gradients_that_a_loop_has_kept_are_not_lost(take, found):
    def step(model, optimizer):
        for x, y in zip(*PARTS, strict=True):
            optimizer.zero_grad()
            (0.5 * F.cross_entropy(model(x), y)).backward()
            take(model)
        optimizer.step()

    assert ("zero-grad-between-micro-batches" in looped(step, steps=6)) is found


def test_gradients_of_an_input_are_asked_for():
    def backward(model, x):
        F.cross_entropy(model(x), Y).backward()

    def step(model, optimizer):
        x = X.clone().requires_grad_()
        backward(model, x)
        worse = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        backward(model, worse)
        optimizer.step()
        optimizer.zero_grad()

    assert "zero-grad-between-micro-batches" not in looped(step, steps=6)


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_accumulation_may_go_on_from_pass_to_pass(goes_on):
    model = mlp()
    optimizer = sgd(model)
    count = 0
    with surefoot.watch(model, optimizer) as seen:
        loader = DataLoader(TensorDataset(numbers(44, 4), whole(2, 44)), 4, shuffle=True)
        for _ in range(6):
            count = count if goes_on else 0
            for x, y in loader:
                (F.cross_entropy(model(x), y) / 4).backward()
                count += 1
                if count % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    assert named(seen.findings) == ([] if goes_on else ["leftover-micro-batches"])


def test_one_more_loss_now_and_then_is_no_leftover():
    numbers_seen = []

    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        (0.1 * model(X + 1).square().mean()).backward()
        if len(numbers_seen) % 6 == 5:
            (1e-3 * sum(p.square().sum() for p in model.parameters())).backward()
        optimizer.step()
        numbers_seen.append(1)

    assert "leftover-micro-batches" not in looped(step, steps=18)


@pytest.mark.parametrize("by_own", [True, False])
def test_a_masked_sum_beside_other_terms_is_weighed(by_own):
    masks = [torch.arange(8).reshape(4, 2) < 7, torch.arange(8).reshape(4, 2) < 3]

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, mask in zip(PARTS[0], masks, strict=True):
            out = model(x)
            masked = ((out - 1).square() * mask).sum() / (mask.sum() if by_own else 5)
            overlap = 1 - (out.sigmoid() * mask).sum() / (out.sigmoid().sum() + 1)
            ((masked + overlap) / 2).backward()
        optimizer.step()

    assert ("mean-of-unequal-means" in looped(step)) is by_own


@pytest.mark.parametrize(("rate", "expected"), [(1e-3, ["updates-rounded-away"]), (3e-2, [])])
def test_single_tensors_may_stand_still(rate, expected):
    model = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X.bfloat16()).float(), Y).backward()
            optimizer.step()
    assert [each for each in named(seen.findings) if each == "updates-rounded-away"] == expected


@pytest.mark.parametrize(("filled", "expected"), [(0.0, []), (None, ["overflowing-mask-value"])])
def test_rows_without_an_entry_may_be_filled(filled, expected):
    mask = torch.tensor([[True] * 4, [False] * 4]).repeat(4, 1)

    def step(model, optimizer):
        optimizer.zero_grad()
        weights = (model(X).repeat(1, 2)).masked_fill(mask, -torch.inf).softmax(-1)
        weights = weights if filled is None else weights.nan_to_num(filled)
        F.cross_entropy((weights * X)[:, :2], Y).backward()
        optimizer.step()

    assert looped(step) == expected


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_body_in_float16_needs_no_scaler(frozen):
    body, head = nn.Linear(4, 8).half().requires_grad_(not frozen), nn.Linear(8, 2)
    model = Module(lambda self, x: self.head(self.body(x.half()).float()), body=lambda: body, head=lambda: head)
    assert ("float16-without-scaler" in named(plain(model))) is not frozen


@pytest.mark.parametrize(("dtype", "expected"), [(None, []), (torch.bfloat16, ["scaler-with-bfloat16"])])
def test_a_scaler_beside_the_dtype_that_torch_takes_on_a_cpu(dtype, expected):
    scaler = torch.amp.GradScaler("cpu")

    def step(model, optimizer):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(X), Y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    assert looped(step) == expected


def scaled(start, *, steps, rows=(X,), targets=(Y,), weight=1.0, towers=1):
    """What is found in a loop in half precision whose scaler begins with this scale, and leaves out what overflows."""
    models = [mlp() for _ in range(towers)]
    optimizers = [sgd(model, lr=1e-4) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=start)
    with surefoot.watch() as seen:
        schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, T_max=steps) for each in optimizers]
        for _ in range(steps):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                for x, y in zip(rows, targets, strict=True):
                    with torch.autocast("cpu", dtype=torch.float16):
                        logits = model(x)
                    scaler.scale(weight * F.cross_entropy(logits.float(), y)).backward()
                scaler.step(optimizer)
            scaler.update()
            for schedule in schedules:
                schedule.step()
    return named(seen.findings)


EARLY = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")


@EARLY
@pytest.mark.parametrize(("start", "expected"), [(2.0**80, ["scaler-skips-updates"]), (2.0**20, [])])
def test_a_scale_that_takes_long_to_come_down_leaves_out_the_first_updates(start, expected):
    assert scaled(start, steps=96) == expected


@EARLY
def test_each_of_two_models_waits_for_the_scale_they_share():
    assert scaled(2.0**32, steps=48, towers=2) == []


@EARLY
@pytest.mark.parametrize("divided", [True, False])
def test_micro_batches_of_updates_that_are_left_out_count_as_those_of_others(divided):
    found = scaled(2.0**24, steps=24, rows=PARTS[0], targets=PARTS[1], weight=1 / 2 if divided else 1.0)
    assert found == ([] if divided else ["summed-micro-batches"])
