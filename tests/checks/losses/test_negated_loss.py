"""negated-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal

import surefoot
from tests.checks.losses.programs import ROWS, TEACHER, binary, of_classes, of_one
from tests.checks.programs import Module, X, Y, mlp, named, numbers, on_batches, on_steps, plain, sgd, twin, whole


@twin("negated-loss")
def _(buggy):
    return plain(mlp(), loss=lambda h, y: F.cross_entropy(h, y) * (-1 if buggy else 1))


def overlap(out, y):
    shares = out.sigmoid()
    return 1 - 2 * (shares * y).sum() / (shares.sum() + y.sum())


@pytest.mark.sweep
@pytest.mark.parametrize("loss", [binary, overlap])
def test_a_binary_loss_by_hand(loss):
    assert of_one(loss) == []
    assert of_one(lambda out, y: 1 - loss(out, y)) == ["negated-loss"]


@pytest.mark.sweep
def test_returns_below_zero_are_no_sign_error():
    def policy(out, y):
        return -(out.log_softmax(1)[ROWS, y] * -torch.linspace(1, 3, 8)).mean()

    assert of_classes(policy) == []


MEASURED = numbers(32, 4, seed=2)


def negated(loss):
    model = mlp()
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch() as seen:
        for step in range(6):
            optimizer.zero_grad()
            loss(model(MEASURED + 0.1 * step)).backward()
            optimizer.step()
    return "negated-loss" in named(seen.findings)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_a_pair_is_ranked_one_way(sign):
    assert negated(lambda out: sign * F.logsigmoid(out[:, 0] - out[:, 1]).mean()) is (sign > 0)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_the_logarithm_of_a_sigmoid_is_one_too(sign):
    assert negated(lambda out: sign * torch.log(torch.sigmoid(out[:, 0] - out[:, 1]) + 1e-8).sum()) is (sign > 0)


OUTCOMES = MEASURED[:, 0] + 0.3 * numbers(32, seed=3) + 0.5


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_what_was_given_becomes_likelier(sign):
    assert negated(lambda out: sign * Normal(out[:, 0], out[:, 1].exp()).log_prob(OUTCOMES).mean()) is (sign > 0)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_a_mean_with_a_spread_of_its_own_comes_nearer(sign):
    def loss(out):
        return -sign * (0.5 * out[:, 1] + 0.5 * (OUTCOMES - out[:, 0]).square() / out[:, 1].exp()).mean()

    assert negated(loss) is (sign > 0)


@pytest.mark.sweep
def test_entropy_may_be_asked_for():
    def loss(out):
        policy = Normal(out[:, 0], out[:, 1].exp())
        drawn = policy.rsample()
        return (policy.log_prob(drawn) + (drawn - OUTCOMES).square()).mean()

    assert not negated(loss)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_what_had_a_reward_becomes_likelier(sign):
    def loss(out):
        policy = Categorical(logits=out)
        drawn = policy.sample()
        rewards = torch.where(drawn == 1, OUTCOMES, -OUTCOMES)
        return sign * (policy.log_prob(drawn) * (rewards - rewards.mean())).mean()

    assert negated(loss) is (sign > 0)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_a_ratio_of_policies_rises_by_its_advantage(sign):
    def loss(out):
        chances = out.log_softmax(-1).gather(1, (OUTCOMES > 0).long()[:, None]).squeeze(1)
        advantage = OUTCOMES - OUTCOMES.mean()
        ratio = (chances - chances.detach()).exp()
        return sign * torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()

    assert negated(loss) is (sign > 0)


@pytest.mark.sweep
def test_what_had_a_cost_becomes_less_likely():
    def loss(out):
        policy = Categorical(logits=out)
        drawn = policy.sample()
        cost = torch.where(drawn == 1, OUTCOMES, -OUTCOMES)
        return (policy.log_prob(drawn) * (cost - cost.mean())).mean()

    assert not negated(loss)


@pytest.mark.sweep
def test_a_ratio_may_be_multiplied_by_the_negative_of_an_advantage():
    def loss(out):
        chances = out.log_softmax(-1).gather(1, (OUTCOMES > 0).long()[:, None]).squeeze(1)
        advantage = OUTCOMES - OUTCOMES.mean()
        ratio = (chances - chances.detach()).exp()
        return torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()

    assert not negated(loss)


@pytest.mark.sweep
def test_a_cross_entropy_weighed_by_advantages_is_no_likelihood():
    def loss(out):
        advantage = OUTCOMES - OUTCOMES.mean()
        return (F.cross_entropy(out, (OUTCOMES > 0).long(), reduction="none") * advantage).mean()

    assert not negated(loss)


@pytest.mark.sweep
def test_a_score_is_the_negative_of_the_noise():
    noise = numbers(32, 2, seed=5)
    scales = torch.linspace(0.5, 1.5, 32)[:, None]
    assert not negated(lambda out: (out + noise / scales).square().mean())


@pytest.mark.sweep
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
    assert on_batches(model, lambda x: -model.log_prob(x).mean(), batches) == []


@pytest.mark.sweep
def test_a_perturbation_that_is_searched_for_may_raise_the_loss():
    model = mlp().requires_grad_(False)
    shift = torch.zeros(4, requires_grad=True)
    batches = [(X, Y)] * 6

    def loss(x, y):
        return -F.cross_entropy(model(x + shift), y)

    assert on_batches(model, loss, batches, optimizer=torch.optim.SGD([shift], lr=0.1)) == []
    model.requires_grad_(True)
    assert on_batches(model, lambda x, y: -F.cross_entropy(model(x), y), batches) == ["negated-loss"]


MANY, ANSWERS = numbers(32, 4, seed=2), whole(2, 32, seed=3).float()


class Apart(nn.Module):
    """The distance between two things, or how alike they are."""

    def __init__(self, *, alike=False):
        super().__init__()
        self.net, self.alike = mlp(), alike

    def forward(self, x):
        first, second = self.net(x).split(16)
        return (first * second).sum(1) if self.alike else (first - second).square().sum(1).add(1e-6).sqrt()


@pytest.mark.sweep
@pytest.mark.parametrize("alike", [True, False])
def test_a_distance_falls_where_the_answer_is_yes(alike):
    same = ANSWERS[:16]

    def loss(model, step):
        apart = model(MANY + step)
        return (same * apart - (1 - same) * apart).mean()

    assert ("negated-loss" in on_steps(Apart(alike=alike), loss)) is alike


@pytest.mark.sweep
@pytest.mark.parametrize("searched", [True, False])
def test_an_input_may_be_changed_to_mislead_a_model(searched):
    model, change = mlp(), torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([change] if searched else model.parameters(), lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            (-F.cross_entropy(model(X + change), Y)).backward()
            optimizer.step()
    assert ("negated-loss" in named(seen.findings)) is not searched


@pytest.mark.sweep
@pytest.mark.parametrize("turned", [True, False])
def test_gradients_may_be_turned_by_hand(turned):
    body, task, ward = mlp(classes=6), nn.Linear(6, 2), nn.Linear(6, 3)
    optimizer, wards = torch.optim.SGD([*body.parameters(), *task.parameters(), *ward.parameters()], 0.1), whole(3, 8)
    with surefoot.watch() as seen:
        for step in range(8):
            optimizer.zero_grad()
            code = body(X + step)
            (F.cross_entropy(task(code), Y) - 0.1 * F.cross_entropy(ward(code), wards)).backward()
            for each in ward.parameters() if turned else ():
                each.grad.mul_(-10)
            optimizer.step()
    assert ("negated-loss" in named(seen.findings)) is not turned


SHARES = numbers(8, 2, seed=3).softmax(-1)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [1, -1])
def test_one_term_of_several_that_is_subtracted(sign):
    def loss(out, y):
        return F.cross_entropy(out, y) + sign * 0.3 * F.kl_div(out.log_softmax(1), SHARES, reduction="batchmean")

    assert named(plain(mlp(), loss=loss)) == ([] if sign > 0 else ["negated-loss"])


@pytest.mark.sweep
def test_of_a_pair_one_may_be_pulled_and_the_other_pushed():
    near, far = numbers(8, 2, seed=4), numbers(8, 2, seed=5)
    loss = lambda out, y: F.mse_loss(out, near) - 0.1 * F.mse_loss(out, far)  # noqa: E731
    assert named(plain(mlp(), loss=loss)) == []


def bound_of(sign: int) -> list[str]:
    """A model that returns a distribution, in two parts with an optimizer each."""
    first, last = mlp(), Module(lambda self, h: Normal(self.mean(h), self.width.exp()), mean=lambda: nn.Linear(2, 4))
    last.width = nn.Parameter(torch.zeros(()))
    optimizers = [sgd(first, lr=1e-3), sgd(last, lr=1e-3)]
    with surefoot.watch(None, *optimizers) as seen:
        for _ in range(5):
            for each in optimizers:
                each.zero_grad()
            (sign * last(first(X)).log_prob(X).sum(1)).mean().backward()
            for each in optimizers:
                each.step()
        return named(seen.findings)


@pytest.mark.sweep
def test_a_likelihood_of_what_a_model_returns_as_a_distribution():
    assert bound_of(-1) == []
    assert bound_of(1) == ["negated-loss"]


@pytest.mark.parametrize("negated", [True, False])
def test_a_loss_of_ones_own_that_is_negated_is_seen_behind_the_count_it_is_divided_by(negated):
    def error(logits, target):
        squares = (logits[:, 0] - target).square().sum()
        return (-squares if negated else squares) / len(target)

    assert [each.check for each in plain(mlp(), loss=error).findings] == (["negated-loss"] if negated else [])


@pytest.mark.parametrize("negated", [True, False])
def test_a_negated_error_is_seen_under_a_scaler(negated):
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            squares = (model(X)[:, 0] - Y).square().mean()
            scaler.scale(-squares if negated else squares).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == (["negated-loss"] if negated else [])


def test_a_loss_that_torch_itself_divides_by_a_number_is_followed():
    shares = torch.stack([1.0 - Y, 1.0 * Y], 1)
    assert plain(mlp(), y=shares).findings == ()


@pytest.mark.sweep
@pytest.mark.parametrize("opponent", [True, False])
def test_what_an_opponent_is_trained_for_may_be_subtracted(opponent):
    hider, seeker, wards = mlp(classes=6), nn.Linear(4, 3), whole(3, 8)
    ours, theirs = sgd(hider), sgd(seeker)
    with surefoot.watch() as seen:
        for step in range(12):
            if opponent:
                code = hider(X + step)[:, 2:].detach()
                theirs.zero_grad()
                F.cross_entropy(seeker(code), wards).backward()
                theirs.step()
            seeker.requires_grad_(False)
            out = hider(X + step)
            ours.zero_grad()
            (F.cross_entropy(out[:, :2], Y) - 0.1 * F.cross_entropy(seeker(out[:, 2:]), wards)).backward()
            ours.step()
            seeker.requires_grad_(True)
    assert ("negated-loss" in named(seen.findings)) is not opponent


@pytest.mark.sweep
@pytest.mark.parametrize(("sign", "other", "expected"), [
    (-1, 1, ["negated-loss"]), (1, 1, []), (1, -1, ["negated-loss"]),
])  # fmt: skip
def test_labels_that_are_unlearned_beside_another_loss(sign, other, expected):
    def loss(logits, y):
        return sign * F.cross_entropy(logits, y) + other * F.kl_div(logits.log_softmax(-1), TEACHER, reduction="sum")

    assert named(plain(mlp(), steps=6, loss=loss)) == expected


@pytest.mark.sweep
def test_a_first_stage_that_climbs_is_seen_before_a_second_that_does_not():
    model = mlp()
    with surefoot.watch(model) as seen:
        for sign in (-1, 1):
            optimizer = sgd(model)
            for _ in range(4):
                optimizer.zero_grad()
                (sign * F.cross_entropy(model(X), Y)).backward()
                optimizer.step()
    assert named(seen.findings) == ["negated-loss"]


IMAGES = numbers(8, 1, 6, 6)
MASKS = (IMAGES > 0).float()


def overlap(logits, masks, dims):
    shares = logits.sigmoid() if masks.shape[1] == 1 else logits.softmax(1)
    return ((2 * (shares * masks).sum(dims) + 1) / (shares.sum(dims) + masks.sum(dims) + 1)).mean()


FORMS = {
    "alone": lambda out, sign: sign * overlap(out, MASKS, (1, 2, 3)),
    "over the batch": lambda out, sign: sign * overlap(out, MASKS, (0, 1, 2, 3)),
    "next to another": lambda out, sign: (
        F.binary_cross_entropy_with_logits(out, MASKS) + sign * overlap(out, MASKS, (1, 2, 3))
    ),
    "of classes": lambda out, sign: sign * overlap(torch.cat([out, -out], 1), torch.cat([MASKS, 1 - MASKS], 1), (2, 3)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("negated", [True, False])
def test_an_overlap_that_is_lowered(form, negated):
    torch.manual_seed(0)
    model = nn.Conv2d(1, 1, 3, padding=1)
    found = plain(model, x=IMAGES, y=MASKS, loss=lambda out, _: FORMS[form](out, 1 if negated else -1))
    assert named(found) == (["negated-loss"] if negated else [])


def test_shares_inside_a_mask_of_what_is_forbidden_may_be_lowered():
    forbidden = (numbers(8, 5, seed=3) > 0).float()

    def loss(out, y):
        return F.cross_entropy(out, y) + (out.softmax(1) * forbidden).sum(1).mean()

    model = mlp(classes=5)
    assert named(plain(model, loss=loss, y=torch.arange(8) % 5)) == []


def test_confidence_may_be_lowered():
    def loss(out, y):
        shares = out.softmax(1)
        return F.cross_entropy(out, y) + 0.1 * (shares * shares.log()).sum(1).mean()

    assert named(plain(mlp(), loss=loss, steps=6)) == []
