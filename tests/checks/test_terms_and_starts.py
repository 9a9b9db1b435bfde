"""Terms of a loss, squeezed predictions and first weights, in forms that their twins do not have."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

import surefoot
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, whole

pytestmark = pytest.mark.sweep

SHARES = numbers(8, 2, seed=3).softmax(-1)


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


@pytest.mark.parametrize("sign", [1, -1])
def test_one_term_of_several_that_is_subtracted(sign):
    def loss(out, y):
        return F.cross_entropy(out, y) + sign * 0.3 * F.kl_div(out.log_softmax(1), SHARES, reduction="batchmean")

    assert named(plain(mlp(), loss=loss)) == ([] if sign > 0 else ["negated-loss"])


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


def test_a_likelihood_of_what_a_model_returns_as_a_distribution():
    assert bound_of(-1) == []
    assert bound_of(1) == ["negated-loss"]


@pytest.mark.parametrize("cut", [True, False])
def test_a_term_of_each_sample_that_has_no_gradient(cut):
    def loss(out, y):
        spread = (out.detach() if cut else out).square().sum(1)
        return (F.cross_entropy(out, y, reduction="none") + 0.1 * spread).mean()

    assert named(plain(mlp(), loss=loss, steps=5)) == (["loss-term-without-gradient"] if cut else [])


def test_what_keeps_an_exponential_small_is_no_term():
    def loss(out, y):
        largest = out.detach().amax(1)
        everything = largest + (out - largest[:, None]).exp().sum(1).log()
        return (everything - out[torch.arange(8), y]).mean()

    assert named(plain(mlp(), loss=loss, steps=5)) == []


def test_a_number_that_hardly_changes_is_a_term_all_the_same():
    model = mlp()

    def loss(out, y):
        return F.cross_entropy(out, y) + 1e-3 * sum(each.square().sum() for each in model.parameters()).item()

    assert named(plain(model, loss=loss, optimizer=sgd(model, lr=1e-2), steps=5)) == ["loss-term-without-gradient"]


def _binary_by_hand(share, y):
    return -(y * share.log() + (1 - y) * (1 - share).log()).mean()


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid().clamp(1e-6, 1 - 1e-6), y),
        lambda out, y: F.binary_cross_entropy(out.sigmoid().sigmoid(), y),
        lambda out, y: _binary_by_hand(out.sigmoid().sigmoid(), y),
    ],
)
def test_a_sigmoid_of_a_sigmoid(loss):
    assert named(plain(mlp(classes=1), loss=loss, y=(X[:, :1] > 0).float())) == ["sigmoid-before-bce-with-logits"]


def test_a_gate_of_gates_is_no_double_sigmoid():
    gated = Module(
        lambda self, x: self.b(self.a(x).sigmoid()).sigmoid(), a=lambda: nn.Linear(4, 8), b=lambda: nn.Linear(8, 1)
    )
    assert named(plain(gated, loss=F.binary_cross_entropy, y=(X[:, :1] > 0).float())) == []


@pytest.mark.parametrize("expected", [True, False])
def test_class_numbers_that_are_subtracted_by_hand(expected):
    y = whole(4, 8, seed=2)

    def loss(out, y):
        guess = (out.softmax(1) * torch.arange(4)).sum(1) if expected else out[:, 0]
        return (guess - y).abs().mean()

    assert named(plain(mlp(classes=4), loss=loss, y=y)) == ["regression-on-class-numbers"]


def wide(start) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            start(layer.weight)
    return named(plain(model, optimizer=sgd(model, lr=1e-4)))


@pytest.mark.parametrize(
    ("start", "far"),
    [
        (nn.init.normal_, True),
        (nn.init.uniform_, True),
        (lambda weight: nn.init.normal_(weight, 0.2, 0.2), True),
        (nn.init.xavier_uniform_, False),
        (nn.init.kaiming_normal_, False),
        (nn.init.orthogonal_, False),
    ],
)
def test_first_weights_of_most_layers(start, far):
    assert wide(start) == (["far-off-initial-loss"] if far else [])


def test_matrices_of_one_s_own_that_are_drawn_without_a_scale():
    def own(scale: float) -> list[str]:
        model = Module(lambda self, x: (x @ self.a).relu() @ self.b)
        model.a, model.b = nn.Parameter(scale * numbers(32, 48)), nn.Parameter(scale * numbers(48, 32, seed=1))
        return named(
            plain(model, x=numbers(8, 32), loss=lambda out, y: out.square().mean(), optimizer=sgd(model, lr=1e-6))
        )

    assert own(1.0) == ["far-off-initial-loss"]
    assert own(0.1) == []


class Graph(nn.Module):
    """Messages along edges, weighed by a softmax over those that end at the same node, or over all."""

    def __init__(self, *, over_all: bool):
        super().__init__()
        torch.manual_seed(0)
        self.over_all, self.score, self.end = over_all, nn.Linear(8, 1), nn.Linear(4, 2)

    def forward(self, x, edges):
        source, target = edges
        score = self.score(torch.cat([x[source], x[target]], 1))
        share = score.softmax(0) if self.over_all else score.exp() / score.exp().new_zeros(len(x), 1).index_add(
            0, target, score.exp()
        )[target]  # fmt: skip
        return self.end(torch.zeros_like(x).index_add(0, target, share * x[source]))


@pytest.mark.parametrize("over_all", [True, False])
def test_messages_that_share_one_softmax(over_all):
    edges = torch.stack([torch.arange(8).repeat(2), torch.cat([torch.arange(8).roll(1), torch.arange(8).roll(3)])])
    model = Graph(over_all=over_all)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X, edges), Y).backward()
            optimizer.step()
        assert named(seen.findings) == (["softmax-over-wrong-dimension"] if over_all else [])


@pytest.mark.parametrize(("dim", "wrong"), [(1, False), (None, True), (2, True)])
def test_a_softmax_that_pools_steps(dim, wrong):
    def forward(self, x):
        steps = x[:, :, None] * self.scale
        with_weights = (F.softmax(self.query(steps), dim=dim, _stacklevel=3) * steps).sum(1)
        return self.end(torch.cat([x, with_weights], 1))

    model = Module(forward, query=lambda: nn.Linear(8, 1), end=lambda: nn.Linear(12, 2))
    model.scale = nn.Parameter(numbers(4, 8))
    with pytest.warns(UserWarning, match="Implicit dimension") if dim is None else torch.enable_grad():
        assert named(plain(model)) == (["softmax-over-wrong-dimension"] if wrong else [])


@pytest.mark.parametrize("filled", [True, False])
def test_an_output_beside_a_state_that_does_not_depend_on_the_input(filled):
    def forward(self, x):
        out, state = self.rnn(x)
        return self.end(out if filled else torch.zeros_like(out)), state

    model = Module(forward, rnn=lambda: nn.GRU(3, 8, batch_first=True), end=lambda: nn.Linear(8, 1))
    loss = lambda out, y: F.mse_loss(out[0], y)  # noqa: E731
    findings = named(plain(model, loss=loss, x=numbers(6, 5, 3), y=numbers(6, 5, 1, seed=1)))
    assert findings == ([] if filled else ["input-ignored"])


@pytest.mark.parametrize("batch_first", [True, False])
def test_steps_that_follow_upon_each_other_tell_which_dimension_is_time(batch_first):
    waves = torch.sin(numbers(6, 1, 1) * 9 + torch.arange(21)[None, :, None] / 5 + torch.arange(3))
    model = Module(
        lambda self, x: self.end(self.rnn(x)[0]),
        rnn=lambda: nn.GRU(3, 8, batch_first=batch_first),
        end=lambda: nn.Linear(8, 1),
    )
    findings = named(plain(model, loss=F.mse_loss, x=waves[:, :-1], y=waves[:, 1:, :1]))
    assert findings == ([] if batch_first else ["samples-mixed-in-batch"])


@pytest.mark.parametrize("masked", [True, False])
def test_packed_rows_whose_attention_counts_their_padding(masked):
    lengths = torch.tensor([9, 7, 6, 4, 3, 8])
    tokens = whole(11, 6, 9, seed=4) + 1
    padded = torch.arange(9) >= lengths[:, None]
    tokens = tokens.masked_fill(padded, 0)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        hidden = torch.arange(tokens.shape[1]) >= lengths[:, None]
        scores = self.query(states).squeeze(-1)
        scores = scores.masked_fill(hidden, -torch.inf) if masked else scores * ~hidden
        return self.end((scores.softmax(1)[:, :, None] * states).sum(1))

    model = Module(
        forward,
        table=lambda: nn.Embedding(12, 8, padding_idx=0), rnn=lambda: nn.GRU(8, 8, batch_first=True),
        query=lambda: nn.Linear(8, 1), end=lambda: nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, lengths), torch.tensor([0, 1] * 3)).backward()
            optimizer.step()
        assert named(seen.findings) == ([] if masked else ["padding-in-attention"])


@pytest.mark.parametrize("batch_first", [True, False])
def test_samples_that_are_mixed_by_little(batch_first):
    def forward(self, x):
        h = self.begin(x)
        return self.end(h + 1e-3 * self.mix(h, h, h, need_weights=False)[0]).mean(1)

    model = Module(
        forward, begin=lambda: nn.Linear(3, 8), end=lambda: nn.Linear(8, 2),
        mix=lambda: nn.MultiheadAttention(8, 2, batch_first=batch_first),
    )  # fmt: skip
    findings = named(plain(model, x=numbers(8, 5, 3)))
    assert findings == ([] if batch_first else ["samples-mixed-in-batch"])


@pytest.mark.parametrize(("width", "found"), [(10.0, ["far-off-initial-loss"]), (1.0, [])])
def test_numbers_that_are_looked_up_begin_small(width, found):
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 2))
    nn.init.normal_(model[0].weight, std=width, generator=torch.Generator().manual_seed(0))
    assert named(plain(model, x=whole(12, 8), loss=lambda h, y: 0.01 * F.cross_entropy(0.01 * h, y))) == found


@pytest.mark.parametrize("dim", [-1, 1])
def test_what_is_picked_from_a_softmax_is_picked_along_its_own_dimension(dim):
    chances = Module(lambda self, x: F.log_softmax(self.layer(x), dim=dim), layer=lambda: nn.Linear(4, 3))
    worth, taken = numbers(5, 8, seed=2), whole(3, 5, 8)

    def loss(h, _):
        return -(h.gather(2, taken.unsqueeze(2)).squeeze(2) * worth).mean()

    found = named(plain(chances, x=numbers(5, 8, 4), loss=loss))
    assert found == ([] if dim == -1 else ["softmax-over-wrong-dimension"])


MASKS = {
    "multiplied": lambda h, y, mask: (F.cross_entropy(h, y, reduction="none") * mask).sum() / mask.sum().clamp(min=1),
    "mean over nothing": lambda h, y, mask: (F.cross_entropy(h, y, reduction="none") * mask).sum() / mask.sum(),
    "picked": lambda h, y, mask: F.cross_entropy(h[mask > 0], y[mask > 0]),
}


@pytest.mark.parametrize("how", MASKS)
def test_masks_by_hand_that_leave_nothing_of_a_loss(how):
    def found(label):
        return named(plain(mlp(), loss=lambda h, y: MASKS[how](h, y, (y == label).float())))

    assert found(7) == ["all-targets-ignored"]
    assert "all-targets-ignored" not in found(1)
