"""Sound programs that look like a bug: numbers side by side, settings in files, orders that two customers share."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, plain, sgd
from tests.checks.twins.losses import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep


class Decays(nn.Module):
    """A number for every row, as curves are fitted."""

    def __init__(self, *shape: int):
        super().__init__()
        self.height, self.rate = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, t):
        return self.height.exp() * torch.exp(-self.rate.exp() * t)


def test_numbers_that_begin_as_zero_are_no_layers():
    t, y = numbers(8, 6).abs(), numbers(8, 6, seed=1)
    assert named(plain(Decays(8, 1), loss=F.mse_loss, x=t, y=y)) == []
    assert named(plain(Decays(8, 6), loss=F.mse_loss, x=t, y=y)) == []
    layers = mlp()
    for each in layers.parameters():
        nn.init.zeros_(each)
    assert named(plain(layers)) == ["symmetric-initial-weights"]


def test_a_setting_in_a_file_is_no_counter():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(**beside):
        return plain(
            model,
            optimizer=optimizer,
            after=lambda step: torch.save({"model": model.state_dict(), **beside}, io.BytesIO()),
        )

    assert named(save(epochs=3)) == []
    assert named(save(epoch=3)) == ["checkpoint-without-optimizer"]


@pytest.mark.parametrize(("size", "expected"), [(1.0, []), (0.37, ["evaluation-samples-in-training"])])
def test_rows_of_whole_numbers_may_come_twice(size, expected):
    rows = (numbers(160, 20) > 0).float() * size
    train, test = rows[:128], torch.cat([rows[:4], rows[128:]])
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in train.split(16):
            optimizer.zero_grad()
            F.mse_loss(model(batch), batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(test)
    assert named(seen.findings) == expected


def test_buffers_of_a_copy_that_went_its_own_way_are_in_the_file():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
        other = copy.deepcopy(model)
        with torch.no_grad():
            other[1].running_mean.add_(1.0)
            other[1].running_var.mul_(2.0)
            other[1].num_batches_tracked.add_(3)
        torch.save(other.state_dict(), io.BytesIO())
        assert named(seen.findings) == []
        torch.save(dict(model.named_parameters()), io.BytesIO())
        assert named(seen.findings) == ["state-lost-on-reload"]


def test_a_step_may_have_nothing_to_learn_from():
    model = mlp()
    optimizer = sgd(model)
    chosen = torch.stack([Y >= 0, Y == 0, Y < 0])
    with surefoot.watch(model, optimizer) as seen:
        for rows in chosen:
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows], reduction="sum").backward()
            optimizer.step()
    assert named(seen.findings) == []


def trained(model, loss, batches, *, optimizer=None, before=lambda: None):
    """The findings of a loop that is given its batches one by one."""
    optimizer = optimizer or sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in batches:
            before()
            optimizer.zero_grad()
            loss(*batch).backward()
            optimizer.step()
    return named(seen.findings)


def test_scores_of_candidates_whose_first_is_the_true_one_are_no_constant_targets():
    model = nn.Linear(4, 6)
    first = torch.zeros(8, dtype=torch.long)

    def contrast(x, others):
        near, far = model(x), model(others)
        logits = torch.cat([(near * model(x + 0.1)).sum(1, keepdim=True), near @ far.T], 1)
        return F.cross_entropy(logits / 0.5, first)

    def classes(x, _):
        return F.cross_entropy(model(x), first)

    batches = [(numbers(8, 4, seed=n), numbers(8, 4, seed=n + 50)) for n in range(8)]
    assert trained(model, contrast, batches) == []
    assert trained(model, classes, batches) == ["constant-targets"]


def test_a_score_that_is_to_be_above_another_has_no_constant_target():
    model = nn.Linear(4, 1)
    batches = [(numbers(8, 4, seed=n), numbers(8, 4, seed=n + 50)) for n in range(8)]

    def above(x, other):
        return F.binary_cross_entropy_with_logits(model(x) - model(other), torch.ones(8, 1))

    def always(x, _):
        return F.binary_cross_entropy_with_logits(model(x), torch.ones(8, 1))

    assert trained(model, above, batches) == []
    assert trained(model, always, batches) == ["constant-targets"]


def test_a_likelihood_that_is_raised_is_no_negated_loss():
    class Flow(nn.Module):
        """Layers that are called one by one, each with the logarithm of its volume."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2))
            for layer in self.layers:
                nn.init.zeros_(layer[2].weight), nn.init.zeros_(layer[2].bias)

        def log_prob(self, x):
            total = torch.zeros(len(x))
            for layer in self.layers:
                scale, shift = layer(x[:, :1]).unbind(1)
                x = torch.stack([x[:, 1] * scale.exp() + shift, x[:, 0]], 1)
                total = total + scale
            return total - x.square().sum(1) / 2

    model = Flow()
    batches = [(numbers(16, 2, seed=n),) for n in range(6)]
    assert trained(model, lambda x: -model.log_prob(x).mean(), batches) == []


def test_gradients_of_an_attack_in_evaluation_mode_train_nothing():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))

    def attack():
        model.eval()
        F.cross_entropy(model(X), Y).backward()
        model.train()

    batches = [(X, Y)] * 4
    assert trained(model, lambda x, y: F.cross_entropy(model(x), y), batches, before=attack) == []
    loop = [(X, Y)] * 4
    assert trained(model.eval(), lambda x, y: F.cross_entropy(model(x), y), loop) == ["eval-mode-in-training"]


def test_a_schedule_that_runs_to_its_end_in_passes_is_at_the_right_rate():
    model = mlp()
    optimizer = sgd(model)
    loader = DataLoader(TensorDataset(numbers(64, 4), torch.arange(64) % 2), 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
        for _ in range(8):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            scheduler.step()
    assert named(seen.findings) == []


def test_what_one_fold_evaluates_another_may_train_on():
    rows = TensorDataset(numbers(48, 4), torch.arange(48) % 2)
    folds = [list(range(n, 48, 3)) for n in range(3)]

    def fit(chosen, kept):
        model = mlp()
        optimizer = sgd(model)
        for x, y in DataLoader(Subset(rows, chosen), 8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _ in DataLoader(Subset(rows, kept), 8):
                model.eval()(x)

    def folded(leak):
        with surefoot.watch() as seen:
            for n, kept in enumerate(folds):
                fit([i for m, fold in enumerate(folds) if m != n for i in fold] + kept[:leak], kept)
        return named(seen.findings)

    assert folded(0) == []
    assert folded(8) == ["evaluation-samples-in-training"]


def test_one_seed_for_several_settings_is_no_lost_shuffle():
    loader = DataLoader(TensorDataset(numbers(48, 4), torch.arange(48) % 2), 8, shuffle=True)

    def tried(*trainings):
        with surefoot.watch() as seen:
            for passes in trainings:
                model = mlp()
                optimizer = sgd(model)
                for _ in range(passes):
                    torch.manual_seed(0)
                    for x, y in loader:
                        optimizer.zero_grad()
                        F.cross_entropy(model(x), y).backward()
                        optimizer.step()
        return named(seen.findings)

    assert tried(1, 1, 1) == []
    assert tried(3) == ["same-order-every-epoch"]


def test_both_sides_of_a_game_are_no_micro_batches():
    model = nn.Linear(4, 1)
    optimizer = sgd(model)

    def sides(*targets):
        with surefoot.watch(model, optimizer) as seen:
            for n in range(4):
                optimizer.zero_grad()
                for place, target in enumerate(targets):
                    logits = model(numbers(8, 4, seed=10 * n + place))
                    F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target)).backward()
                optimizer.step()
        return named(seen.findings)

    assert sides(0.0, 1.0) == []
    assert "summed-micro-batches" in sides(0.3, 0.3)


def test_scaled_similarities_are_wide_on_purpose():
    model, kinds = nn.Linear(4, 8), F.normalize(numbers(6, 8), dim=1)
    y = torch.arange(8) % 6
    batches = [(numbers(8, 4, seed=n),) for n in range(4)]

    def loss(x, norm):
        similar = (F.normalize(model(x), dim=1) if norm else model(x)) @ kinds.T
        return F.cross_entropy(40 * (similar - 1.5 * F.one_hot(y, 6) * norm).clamp(-1, 1) if norm else 40 * similar, y)

    assert trained(model, lambda x: loss(x, 1), batches) == []
    assert trained(model, lambda x: loss(x, 0), batches) == ["far-off-initial-loss"]


def test_weights_that_another_training_begins_with():
    model = mlp()

    def gone_on(kind, rate):
        first = torch.optim.Adam(model.parameters(), lr=1e-2)
        file = io.BytesIO()
        with surefoot.watch() as seen:
            for optimizer in (first, kind(model.parameters(), lr=rate)):
                for _ in range(3):
                    optimizer.zero_grad()
                    F.cross_entropy(model(X), Y).backward()
                    optimizer.step()
                if optimizer is first:
                    torch.save({"model": model.state_dict(), "optimizer": first.state_dict()}, file)
                    file.seek(0)
                    model.load_state_dict(torch.load(file)["model"])
        return named(seen.findings)

    assert gone_on(torch.optim.SGD, 1e-2) == []
    assert gone_on(torch.optim.Adam, 1e-3) == []
    assert gone_on(torch.optim.Adam, 1e-2) == ["unrestored-optimizer"]


def test_a_perturbation_that_is_searched_for_may_raise_the_loss():
    model = mlp().requires_grad_(False)
    shift = torch.zeros(4, requires_grad=True)
    batches = [(X, Y)] * 6

    def loss(x, y):
        return -F.cross_entropy(model(x + shift), y)

    assert trained(model, loss, batches, optimizer=torch.optim.SGD([shift], lr=0.1)) == []
    model.requires_grad_(True)
    assert trained(model, lambda x, y: -F.cross_entropy(model(x), y), batches) == ["negated-loss"]


def test_gradients_that_move_weights_by_hand_before_they_are_cleared_are_used():
    def climbing(climbs):
        model = mlp()
        optimizer = sgd(model)
        with surefoot.watch(model, optimizer) as seen:
            for n in range(12):
                F.cross_entropy(model(numbers(8, 4, seed=n)), Y[:8]).backward()
                if n % 2:
                    optimizer.step()
                elif climbs:
                    with torch.no_grad():
                        for each in model.parameters():
                            each.add_(1e-3 * each.grad)
                optimizer.zero_grad()
        return named(seen.findings)

    assert climbing(climbs=True) == []
    assert climbing(climbs=False) == ["zero-grad-between-micro-batches"]


def test_several_tasks_of_one_sample_have_targets_of_their_own():
    trunk, heads = nn.Linear(4, 8), [nn.Linear(8, 3), nn.Linear(8, 3)]
    rows, targets = numbers(32, 4), [torch.randint(0, 3, (32,)), torch.randint(0, 3, (32,))]
    model = nn.ModuleList([trunk, *heads])
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for part in torch.randperm(32).split(8):
                optimizer.zero_grad()
                for head, y in zip(heads, targets, strict=True):
                    F.cross_entropy(head(trunk(rows[part])), y[part]).backward()
                optimizer.step()
    assert named(seen.findings) == []


def test_the_mean_of_several_views_is_a_pseudo_label():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for n in range(8):
            x = numbers(16, 4, seed=n)
            with torch.no_grad():
                guess = (model(x + 0.1).softmax(1) + model(x - 0.1).softmax(1)) / 2
            optimizer.zero_grad()
            F.mse_loss(model(x).softmax(1), guess).backward()
            optimizer.step()
    assert named(seen.findings) == []


def test_stacked_weights_with_gradients_of_a_transform_belong_to_the_loop():
    members = [mlp() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")

    def loss(p, b, x, y):
        return F.cross_entropy(torch.func.functional_call(skeleton, (p, b), (x,)), y)

    with surefoot.watch() as seen:
        optimizer = torch.optim.SGD(params.values(), lr=0.1)
        for _ in range(3):
            gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, None, None))(params, buffers, X, Y)
            for name, each in params.items():
                each.grad = gradients[name]
            optimizer.step()
    assert named(seen.findings) == []


def test_a_sample_that_parts_of_others_are_pasted_into_has_targets_of_both():
    model, rows, labels = mlp(), numbers(32, 4), torch.arange(32) % 2
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            for part in torch.randperm(32).split(16):
                other = part[torch.randperm(16)]
                out = model(rows[part])  # nothing was pasted
                optimizer.zero_grad()
                loss = 0.7 * F.cross_entropy(out, labels[part])
                loss = loss + 0.3 * F.cross_entropy(out, labels[other])
                loss.backward()
                optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize("runs_on", [True, False])
def test_documents_whose_positions_run_on_are_parts_of_one_text(runs_on):
    class Packed(Tokens):
        def forward(self, tokens, documents, positions):
            del documents, positions
            return super().forward(tokens)

    model = Packed()
    optimizer = sgd(model)
    begins = torch.arange(12) if runs_on else torch.arange(12) % 4
    documents, positions = (torch.arange(12) // 4).expand(4, -1), begins.expand(4, -1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(TEXT[:, :12], documents, positions), TEXT[:, 1:13]).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if runs_on else ["attention-across-documents"])


def test_layers_side_by_side_may_all_begin_at_zero():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)
            for each in self.parameters():
                nn.init.zeros_(each)

        def forward(self, x):
            return torch.cat([self.first(x), self.second(x)], 1)

    assert named(plain(Heads(), y=Y % 2)) == []


def test_points_at_which_derivatives_are_taken_are_no_parameters():
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    model.points = torch.linspace(0, 1, 12)[:, None].requires_grad_()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            u = model(model.points)
            (slope,) = torch.autograd.grad(u.sum(), model.points, create_graph=True)
            optimizer.zero_grad()
            (slope + u - 1).square().mean().backward()
            optimizer.step()
    assert {each.severity for each in seen.findings.findings} <= {"info"}


def test_weights_that_a_step_makes_and_puts_into_a_model_are_kept_by_nobody():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            slopes = torch.autograd.grad(F.cross_entropy(model(X), Y), list(model.parameters()))
            moved = [p - 0.1 * slope for p, slope in zip(model.parameters(), slopes, strict=True)]
            fitted = dict(zip(dict(model.named_parameters()), moved, strict=True))
            optimizer.zero_grad()
            F.cross_entropy(torch.func.functional_call(model, fitted, (X,)), Y).backward()
            optimizer.step()
    assert "kept-losses" not in named(seen.findings)


def test_samples_without_labels_may_stand_beside_those_with():
    model = mlp()
    optimizer = sgd(model)
    labelled = DataLoader([(numbers(4, seed=n), n % 2) for n in range(64)], 16, shuffle=True)
    plainly = DataLoader([(numbers(4, seed=n),) for n in range(64, 128)], 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for (x, y), (u,) in zip(labelled, plainly, strict=True):
                optimizer.zero_grad()
                out, other = model(x), model(u)
                (F.cross_entropy(out, y) + 0.1 * other.square().mean()).backward()
                optimizer.step()
    assert "labels-of-other-samples" not in named(seen.findings)


def test_empty_rows_are_no_samples_that_come_again():
    rows = numbers(512, 20)
    rows[::16] = 0.0
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in rows[:256].split(16):
            optimizer.zero_grad()
            F.mse_loss(model(batch), batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for batch in rows[256:].split(32):
                model(batch)
    assert "evaluation-samples-in-training" not in named(seen.findings)


@pytest.mark.parametrize(("by_hand", "expected"), [(True, []), (False, ["unrestored-scheduler"])])
def test_a_schedule_may_be_told_by_hand_how_far_it_is(by_hand, expected):
    model = mlp()

    def begin():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)

    def go_on(optimizer, schedule):
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            schedule.step()

    with surefoot.watch(model) as seen:
        optimizer, schedule = begin()
        go_on(optimizer, schedule)
        file = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, file)
        file.seek(0)
        kept = torch.load(file)
        optimizer, schedule = begin()
        optimizer.load_state_dict(kept["optimizer"])
        if by_hand:
            schedule.last_epoch = kept["schedule"]["last_epoch"]
        go_on(optimizer, schedule)
    assert named(seen.findings) == expected


def test_targets_of_samples_that_were_changed_may_stand_beside_others_as_they_are():
    rows, others, labels = numbers(64, 4), numbers(64, 4, seed=1), torch.arange(64) % 2
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for part, other in zip(torch.randperm(64).split(16), torch.randperm(64).split(16), strict=True):
                optimizer.zero_grad()
                out = model(rows[part] + 0.1 * torch.randn(16, 4))
                loss = F.cross_entropy(out, labels[part]) + 0.1 * model(others[other]).square().mean()
                loss.backward()
                optimizer.step()
    assert named(seen.findings) == []


def test_widths_of_drawn_weights_may_begin_alike():
    class Noisy(nn.Module):
        def __init__(self, drawn: bool):
            super().__init__()
            self.mean = nn.Parameter(torch.randn(8, 4) if drawn else torch.full((8, 4), 0.1))
            self.rho = nn.Parameter(torch.full((8, 4), -3.0))
            self.end, self.drawn = nn.Linear(8, 2), drawn

        def forward(self, x):
            noise = torch.randn(8, 4) if self.drawn else 0.0
            return self.end(x @ (self.mean + F.softplus(self.rho) * noise).t())

    torch.manual_seed(0)
    assert named(plain(Noisy(drawn=True))) == []
    assert named(plain(Noisy(drawn=False))) == ["symmetric-initial-weights"]


@pytest.mark.parametrize(("follows", "expected"), [(True, []), (False, ["running-frozen-batch-norm"])])
def test_norms_of_a_teacher_that_follows_are_not_frozen(follows, expected):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            return self.student(x), self.teacher(x)

    torch.manual_seed(0)
    model = Pair()
    optimizer = sgd(model.student)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            out, taught = model(X)
            (F.cross_entropy(out, Y) + F.mse_loss(out, taught.detach())).backward()
            optimizer.step()
            if follows:
                with torch.no_grad():
                    for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                        slow.lerp_(fast, 0.1)
    assert named(seen.findings) == expected


@pytest.mark.parametrize(("own", "expected"), [(True, []), (False, ["missing-zero-grad"])])
def test_gradients_that_are_replaced_before_the_update_are_not_carried(own, expected):
    body, judge = nn.Linear(4, 8), nn.Linear(8, 2)
    first, second = sgd(body), sgd(judge)
    model = nn.Sequential(body, nn.ReLU(), judge)
    with surefoot.watch(model) as seen:
        for n in range(6):
            loss = F.cross_entropy(model(numbers(8, 4, seed=n)), Y)
            asked = torch.autograd.grad(loss, list(judge.parameters()), retain_graph=True)
            first.zero_grad()
            (0.3 - 0.5 * loss).backward()  # against the judge, whose gradients it fills on its way
            for p, gradient in zip(judge.parameters(), asked, strict=True):
                p.grad = gradient if own else 0.5 * p.grad
            first.step()
            second.step()
    assert [each for each in named(seen.findings) if each != "negated-loss"] == expected


@pytest.mark.parametrize(("divided", "expected"), [(True, []), (False, ["summed-micro-batches"])])
def test_inner_steps_are_no_micro_batches(divided, expected):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = sgd(model)

    def loss(weights, seed):
        x = numbers(6, 1, seed=seed)
        return F.mse_loss(torch.func.functional_call(model, weights, (x,)), torch.sin(x))

    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            optimizer.zero_grad()
            for task in range(3):
                weights = dict(model.named_parameters())
                inner = torch.autograd.grad(loss(weights, 9 * step + task), list(weights.values()))
                moved = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), inner, strict=True)}
                (loss(moved, 90 * step + task) / (3 if divided else 1)).backward()
            optimizer.step()
    assert named(seen.findings) == expected


def test_points_at_which_an_equation_is_derived_are_no_parameters():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = sgd(model)
    x, t = (numbers(16, 1, seed=n).requires_grad_() for n in range(2))

    def residual():
        u = model(torch.cat([x, t], 1))
        by_x, by_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        return (by_t + u * by_x - 0.1 * torch.autograd.grad(by_x.sum(), x, create_graph=True)[0]).square().mean()

    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            residual().backward()
            optimizer.step()
    assert [each.severity for each in seen.findings.findings if each.severity != "info"] == []


@pytest.mark.parametrize("by_hand", [True, False])
def test_scores_of_candidates_that_a_model_returns_have_no_constant_targets(by_hand):
    class Pairs(nn.Module):
        """Scores of one true candidate and of many others, the true one first."""

        def __init__(self):
            super().__init__()
            self.layer, self.others = nn.Linear(4, 6), nn.Buffer(F.normalize(numbers(6, 16), dim=0))

        def forward(self, x, near):
            found, true = F.normalize(self.layer(x), dim=1), F.normalize(self.layer(near), dim=1).detach()
            return torch.cat([(found * true).sum(1, keepdim=True), found @ self.others], 1) / 0.2

    model, first = Pairs(), torch.zeros(8, dtype=torch.long)

    def loss(x):
        logits = model(x, x + 0.1)
        return -logits.log_softmax(1)[torch.arange(8), first].mean() if by_hand else F.cross_entropy(logits, first)

    assert trained(model, loss, [(numbers(8, 4, seed=n),) for n in range(8)]) == []


@pytest.mark.parametrize(("copied_back", "expected"), [(True, []), (False, ["parameter-outside-optimizer"])])
def test_weights_that_are_copied_from_others_in_full_precision_are_trained(copied_back, expected):
    model = mlp().bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for n in range(4):
            F.cross_entropy(model(numbers(8, 4, seed=n).bfloat16()).float(), Y).backward()
            for p, master in zip(model.parameters(), masters, strict=True):
                master.grad, p.grad = p.grad.float(), None
            optimizer.step()
            for p, master in zip(model.parameters(), masters, strict=True) if copied_back else ():
                p.data.copy_(master.data)
    assert named(seen.findings) == expected


@pytest.mark.parametrize(("looked_at", "expected"), [(False, []), (True, ["training-mode-in-evaluation"])])
def test_forwards_whose_results_nobody_looks_at_collect_statistics(looked_at, expected):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def warm_up(_):
        with torch.no_grad():
            kept = [model(numbers(8, 4, seed=n)) for n in range(3)]
        if looked_at:
            torch.cat(kept).argmax(1)

    assert named(plain(model, after=warm_up)) == expected


@pytest.mark.parametrize(("padded", "expected"), [(True, []), (False, ["attention-across-documents"])])
def test_padding_whose_positions_are_zero_is_no_document(padded, expected):
    class Placed(Tokens):
        def forward(self, tokens, position_ids):
            return super().forward(tokens) + 0 * position_ids[..., None]

    model = Placed()
    positions = torch.cat([torch.arange(8), torch.zeros(4) if padded else torch.arange(4)]).long().expand(4, -1)
    tokens, targets = TEXT[:, :12].clone(), TEXT[:, 1:13].clone()
    if padded:
        tokens[:, 8:], targets[:, 7:] = 0, -100
    batches = [(tokens, targets)] * 3
    assert trained(model, lambda x, y: per_token(model(x, positions), y), batches) == expected


def test_networks_that_go_on_from_the_best_of_them_are_no_targets():
    rivals = [mlp(), mlp()]
    optimizers = [sgd(each) for each in rivals]
    batches = [numbers(8, 4, seed=n) for n in range(8)]
    with surefoot.watch() as seen:
        for n, x in enumerate(batches):
            for each, optimizer in zip(rivals, optimizers, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(each(x), Y).backward()
                optimizer.step()
            if n % 3 == 0:
                rivals[1].load_state_dict(rivals[0].state_dict())
    assert named(seen.findings) == []
