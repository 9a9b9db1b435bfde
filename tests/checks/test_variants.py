"""Other forms of a check's bug than its twin has, each beside what looks like it and is fine."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from surefoot.checks.engine.rerun import Again
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, whole
from tests.checks.twins.data import COUNT, INPUTS, LABELS, trained
from tests.checks.twins.losses import TEXT

pytestmark = pytest.mark.sweep

TEACHER = numbers(8, 2, seed=1).softmax(-1)


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def evaluated_on(*parts: TensorDataset, data: TensorDataset) -> list[str]:
    loaders = [DataLoader(part, 8) for part in parts]

    class OneByOne:
        def __iter__(self):
            return (batch for validation in loaders for batch in validation)

    return named(trained(DataLoader(data, 8, shuffle=True), evaluation=OneByOne()))


def test_a_second_loader_of_all_training_samples_is_no_evaluation():
    data = TensorDataset(INPUTS[:32], LABELS[:32])
    again, unseen = TensorDataset(INPUTS[:32], LABELS[:32]), TensorDataset(INPUTS[32:], LABELS[32:])
    assert evaluated_on(again, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(data, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(again, unseen, data=data) == []


def test_targets_that_are_alike_are_judged_by_how_alike_the_labels_are():
    few, lost = torch.zeros(COUNT, dtype=torch.long), lambda x, y: F.cross_entropy(x, torch.zeros_like(y))
    few[0] = 1  # most samples are of one class
    assert named(trained(DataLoader(TensorDataset(INPUTS, few), 8, sampler=range(8, 40)))) == []
    assert named(trained(DataLoader(TensorDataset(INPUTS, LABELS), 8, shuffle=True), loss=lost)) == ["constant-targets"]


def test_a_recipe_whose_labels_are_lost_is_named_though_few_samples_are_seen(small_recipe):
    recipe = small_recipe("fashion")

    def lost(model, batch):
        return recipe.loss(model, (batch[0], torch.zeros_like(batch[1])))

    assert "constant-targets" in named(surefoot.check(dataclasses.replace(recipe, loss=lost)))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_log_softmax_over_the_samples_right_before_the_loss(loss):
    def over(dim):
        return named(plain(mlp(classes=3), y=whole(3, 8), loss=lambda h, y: loss(h.log_softmax(dim), y)))

    assert over(0) == ["softmax-over-wrong-dimension"]
    assert over(1) == []


def test_features_in_thousands_are_unscaled_unless_the_model_normalises_them():
    raw = INPUTS[:8] * 800 + 3000
    plainly = mlp()
    assert named(plain(plainly, x=raw, optimizer=sgd(plainly, lr=1e-6))) == ["unscaled-inputs"]
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert named(plain(model, x=raw)) == []


def masked(keep) -> list[str]:
    """A model that honours its mask and gives one answer per sample, with a mask as `keep` makes it."""

    def forward(self, tokens, attention_mask):
        h = self.embed(tokens)
        scores = (h[:, :1] @ h.transpose(1, 2)).masked_fill(attention_mask[:, None] == 0, -1e9)
        return self.end((scores.softmax(-1) @ h)[:, 0])

    torch.manual_seed(0)
    model = Module(forward, embed=lambda: nn.Embedding(32, 8), end=lambda: nn.Linear(8, 2))
    real = torch.arange(12) < torch.tensor([5, 7, 9, 11])[:, None]
    tokens = torch.where(real, TEXT[:, :12] % 30 + 2, 0)
    optimizer, targets = sgd(model), whole(2, 4)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, attention_mask=keep(real).long()), targets).backward()
            optimizer.step()
        return named(seen.findings)


def test_a_mask_that_keeps_the_padding_is_named():
    assert masked(lambda real: real) == []
    assert masked(lambda real: ~real) == ["padding-in-attention"]


class TimeFirst(nn.Module):
    """A language model that is given (time, samples), and returns one row per token."""

    def __init__(self, batch_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lstm = nn.Embedding(32, 8), nn.LSTM(8, 8, batch_first=batch_first)
        self.end = nn.Linear(8, 32)

    def forward(self, tokens):
        return self.end(self.lstm(self.embed(tokens))[0]).flatten(0, 1)


@pytest.mark.parametrize(
    ("shift", "batch_first", "expected"),
    [(1, False, []), (0, False, ["targets-equal-inputs"]), (1, True, ["samples-mixed-in-batch"])],
)
def test_time_may_come_first(shift, batch_first, expected):
    text = whole(32, 13, 6)
    found = plain(TimeFirst(batch_first), x=text[:12], y=text[shift : shift + 12].flatten())
    assert named(found) == expected


def test_an_input_that_is_one_number_is_no_input():
    assert named(plain(mlp(), x=torch.zeros(8, 4))) == ["input-ignored"]


class Halves(nn.Module):
    """Two layers, of which the first may run without gradients."""

    def __init__(self, graded=False):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.graded = nn.Linear(4, 8), nn.Linear(8, 2), graded

    def forward(self, x):
        with torch.set_grad_enabled(self.graded):
            h = self.body(x).relu()
        return self.head(h)


def test_layers_that_run_without_gradients_inside_a_forward():
    assert named(plain(Halves())) == ["detached-layers"]
    assert named(plain(Halves(graded=True))) == []
    frozen = Halves()
    frozen.body.requires_grad_(False)
    assert named(plain(frozen)) == []


def test_layers_that_are_moved_by_hand_need_no_gradient():
    model = Halves()

    def follow(_):
        with torch.no_grad():
            model.body.weight.mul_(0.9)
            model.body.bias.add_(0.1)

    assert named(plain(model, after=follow)) == []


@pytest.mark.parametrize("cut", [True, False])
def test_a_graph_cut_between_two_models(cut):
    body, head = mlp(classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    with surefoot.watch() as seen:
        for step in range(3):
            optimizer.zero_grad()
            h = body(X + step)
            F.cross_entropy(head(h.detach() if cut else h), Y).backward()
            optimizer.step()
    assert named(seen.findings) == (["detached-layers"] if cut else [])


def test_factors_that_are_narrower_than_what_they_join_are_two_layers():
    assert named(plain(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 3)), y=whole(3, 8))) == []


def test_a_squared_error_of_yes_and_no_is_no_class_number():
    assert named(plain(mlp(classes=1), y=Y.float(), loss=lambda h, y: F.mse_loss(h[:, 0], y))) == []


@pytest.mark.parametrize(("beside", "expected"), [({}, ["checkpoint-without-optimizer"]), ({"acc": 0.9}, [])])
def test_weights_with_their_score_are_the_best_and_not_for_resuming(beside, expected, tmp_path):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(step):
        torch.save({"epoch": step, "net": model.state_dict(), **beside}, tmp_path / "ckpt.pth")

    assert named(plain(model, optimizer=optimizer, after=save)) == expected


def penalty(logits):
    return 4 * F.kl_div(logits.log_softmax(-1), TEACHER, reduction="batchmean")


TERMS = {
    "a number": (lambda logits: penalty(logits).item(), True),
    "detached before": (lambda logits: penalty(logits.detach()), True),
    "detached behind": (lambda logits: torch.stack([penalty(logits)]).detach().sum(), True),
    "without gradients": (torch.no_grad()(penalty), True),
    "of hard choices": (lambda logits: ((logits > logits.mean()) * TEACHER).mean(), True),
    "a tensor": (penalty, False),
    "a constant": (lambda logits: float(penalty(logits).item() > 0), False),
    "of the targets": (lambda logits: torch.rand(8).mean(), False),
    "in the place of the value": (lambda logits: penalty(logits) - penalty(logits).detach(), False),
}


@pytest.mark.parametrize("form", TERMS)
def test_a_term_of_the_loss_that_has_no_gradient_is_found_in_any_form(form):
    term, lost = TERMS[form]
    found = named(plain(mlp(), steps=6, loss=lambda logits, y: F.cross_entropy(logits, y) + term(logits)))
    assert found == (["loss-term-without-gradient"] if lost else [])


@pytest.mark.parametrize("evaluated", [True, False])
def test_recomputation_is_compared_with_the_forward_that_is_back_propagated(evaluated):
    body, head = mlp(nn.Dropout(0.5), classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    model = Module(
        lambda self, x: self.head(checkpoint(self.body, x, use_reentrant=False).relu()), body=body, head=head
    )
    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            if evaluated:
                model.eval()
                with torch.no_grad():
                    model(X + step)
                model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert named(seen.findings) == []


def attended(dim):
    """Attention written by hand, with a softmax over one of (samples, heads, queries, keys)."""

    def forward(self, x):
        query, key, value = self.mix(x).view(8, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = F.dropout((query @ key.mT / 2).softmax(dim), 0.1, self.training)
        return self.end((weights @ value).transpose(1, 2).flatten(2).mean(1))

    model = Module(forward, mix=lambda: nn.Linear(4, 24), end=lambda: nn.Linear(8, 2))
    return named(plain(model, x=numbers(8, 5, 4)))


@pytest.mark.parametrize(("dim", "wrong"), [(-1, False), (1, True), (-2, True), (0, True)])
def test_a_softmax_of_attention_over_heads_queries_or_samples(dim, wrong):
    assert attended(dim) == (["softmax-over-wrong-dimension"] if wrong else [])


def test_assignments_to_clusters_are_shared_out_over_clusters_and_added_up_over_members():
    def forward(self, x):
        shares = (self.a(x) @ self.b(x).mT @ self.c(x)).softmax(-1)
        return self.end((shares.mT @ x).flatten(1))

    layers = {name: lambda: nn.Linear(4, 4) for name in "abc"}
    model = Module(forward, **layers, end=lambda: nn.Linear(16, 2))
    assert named(plain(model, x=numbers(8, 4, 4))) == []


@pytest.mark.parametrize("loss", ["kl_div", "cross_entropy"])
@pytest.mark.parametrize("dim", [0, 1])
def test_targets_of_a_softmax_over_the_samples(loss, dim):
    target = numbers(8, 2, seed=3).softmax(dim)
    losses = {"kl_div": lambda h, y: F.kl_div(h.log_softmax(1), y, reduction="batchmean"),
              "cross_entropy": F.cross_entropy}  # fmt: skip
    expected = ["softmax-over-wrong-dimension"] if dim == 0 else []
    assert named(plain(mlp(), y=target, loss=losses[loss])) == expected


@pytest.mark.parametrize("masked", [True, False])
def test_padding_is_seen_in_outputs_of_whole_samples_too(masked):
    def forward(self, tokens, attention_mask):
        hidden = self.layer(self.embed(tokens), src_key_padding_mask=attention_mask == 0 if masked else None)
        real = attention_mask[:, :, None].float()
        return self.end((hidden * real).sum(1) / real.sum(1))

    layer = lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)  # noqa: E731
    model = Module(forward, embed=lambda: nn.Embedding(32, 8), layer=layer, end=lambda: nn.Linear(8, 2))
    optimizer, lengths = sgd(model), torch.tensor([4, 6, 9, 12])
    mask = (torch.arange(12) < lengths[:, None]).long()
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(TEXT[:, :12], attention_mask=mask), Y[:4]).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if masked else ["padding-in-attention"])


@pytest.mark.parametrize("first", [True, False])
def test_lengths_tell_which_dimension_holds_the_samples(first):
    def forward(self, tokens, lengths):
        return self.end(self.lstm(self.embed(tokens))[0])

    model = Module(forward, embed=lambda: nn.Embedding(32, 4), lstm=lambda: nn.LSTM(4, 8, batch_first=first),
                   end=lambda: nn.Linear(8, 3))  # fmt: skip
    optimizer, tags = sgd(model), whole(3, 4, 12)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            scores = model(TEXT[:, :12], torch.tensor([12, 11, 10, 9]))
            F.cross_entropy(scores.flatten(0, 1), tags.flatten()).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if first else ["samples-mixed-in-batch"])


@pytest.mark.parametrize("ignored", [True, False])
def test_columns_of_few_numbers_are_exchanged_and_not_redrawn(ignored):
    columns = torch.stack([whole(2, 8), whole(50, 8, seed=1)], 1)

    def forward(self, x):
        h = torch.cat([self.a(x[:, 0]), self.b(x[:, 1])], 1)
        return self.end(torch.zeros_like(h) if ignored else h)

    model = Module(forward, a=lambda: nn.Embedding(2, 4), b=lambda: nn.Embedding(50, 4), end=lambda: nn.Linear(8, 2))
    assert named(plain(model, x=columns)) == (["input-ignored"] if ignored else [])


class Changed(torch.autograd.Function):
    """Gives what a function of its own makes of a number, and passes the gradient on as it likes."""

    forms = {"reversed": (lambda x: x.clone(), -1.0), "rounded": (torch.round, 1.0), "doubled": (lambda x: 2 * x, 1.0)}
    form = ""

    @staticmethod
    def forward(ctx, x):
        return Changed.forms[Changed.form][0](x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Changed.forms[Changed.form][1]


@pytest.mark.parametrize(("form", "wrong"), [("reversed", False), ("rounded", False), ("doubled", True)])
def test_a_backward_that_stands_in_for_a_derivative_is_fine(form, wrong):
    Changed.form = form
    model = Module(lambda self, x: self.end(Changed.apply(self.body(x)).relu()),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    assert named(plain(model)) == (["wrong-custom-backward"] if wrong else [])


@pytest.mark.parametrize("cut", [True, False])
def test_a_penalty_on_weights_teaches_them_nothing(cut):
    def forward(self, x):
        h = self.body(x).relu()
        return self.end(h.detach() if cut else h)

    model = Module(forward, body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))

    def loss(logits, y):
        return F.cross_entropy(logits, y) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())

    assert named(plain(model, loss=loss)) == (["detached-layers"] if cut else [])


def test_a_model_that_was_frozen_after_its_training_was_cut_all_the_same():
    body, head = nn.Linear(4, 8), nn.Linear(8, 2)
    model = Module(lambda self, x: self.head(self.body(x).relu().detach()), body=body, head=head)
    assert named(plain(model, after=lambda step: model.requires_grad_(step < 3))) == ["detached-layers"]


@pytest.mark.parametrize("when", ["before the backward", "behind it", "never"])
def test_a_tensor_of_the_graph_that_is_written_through_its_data(when):
    model, head = mlp(classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            h = model(X).relu()
            if when == "before the backward":
                h.data.mul_(2)
            F.cross_entropy(head(h), Y).backward()
            if when == "behind it":
                h.data.mul_(2)
            optimizer.step()
    assert named(seen.findings) == (["overwritten-saved-tensor"] if when == "before the backward" else [])


@pytest.mark.parametrize(("sign", "other", "expected"), [
    (-1, 1, ["negated-loss"]), (1, 1, []), (1, -1, ["negated-loss"]),
])  # fmt: skip
def test_labels_that_are_unlearned_beside_another_loss(sign, other, expected):
    def loss(logits, y):
        return sign * F.cross_entropy(logits, y) + other * F.kl_div(logits.log_softmax(-1), TEACHER, reduction="sum")

    assert named(plain(mlp(), steps=6, loss=loss)) == expected


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


@pytest.mark.parametrize("squeeze", [F.gelu, torch.tanh, torch.clone])
def test_logits_of_yes_or_no_that_are_squeezed(squeeze):
    found = plain(mlp(classes=1), y=Y.float(),
                  loss=lambda h, y: F.binary_cross_entropy_with_logits(squeeze(h).squeeze(1), y))  # fmt: skip
    assert named(found) == ([] if squeeze is torch.clone else ["activation-before-cross-entropy"])


@pytest.mark.parametrize("between", [nn.Dropout(0.1), nn.Flatten(), nn.Identity(), nn.GELU()])
def test_linear_layers_with_nothing_that_bends_between_them(between):
    expected = [] if isinstance(between, nn.GELU) else ["linear-layers-in-a-row"]
    assert named(plain(nn.Sequential(nn.Linear(4, 8), between, nn.Linear(8, 2)))) == expected


@pytest.mark.parametrize(("scale", "expected"), [(1.0, []), (300.0, ["far-off-initial-loss"])])
def test_first_weights_that_are_far_too_large_for_a_regression(scale, expected):
    model = mlp(classes=1)
    with torch.no_grad():
        model[-1].weight.mul_(scale)
    optimizer = sgd(model, lr=1e-6)
    assert named(plain(model, y=Y + 0.5, optimizer=optimizer, loss=lambda h, y: F.mse_loss(h[:, 0], y))) == expected


def test_one_layer_twice_among_others_is_seen():
    torch.manual_seed(0)
    twice = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert named(plain(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), twice, twice, nn.Linear(4, 2)))) == [
        "repeated-layer-object"
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_hits_of_an_evaluation_that_are_counted_in_half_precision(dtype):
    model = mlp()

    def evaluate(step):
        hits = torch.zeros((), dtype=dtype)
        with torch.no_grad():
            for part in (X[:2], X[2:4], X[4:6], X[6:]):
                hits += (model(part).argmax(-1) == 0).sum()

    expected = ["low-precision-running-sum"] if dtype is torch.bfloat16 else []
    assert named(plain(model, after=evaluate)) == expected


@pytest.mark.parametrize(("first", "expected"), [(0, []), (1000, ["low-precision-positions"])])
def test_few_positions_that_begin_far_out(first, expected):
    def forward(self, x):
        places = torch.arange(first, first + 4, dtype=torch.bfloat16).float()
        return self.body(x + 0.001 * places)

    assert named(plain(Module(forward, body=mlp))) == expected


PARTS = {"by the whole": (lambda n, whole: whole, []), "by its own": (lambda n, whole: n, ["summed-micro-batches"]),
         "by its own and their number": (lambda n, whole: 2 * n, ["mean-of-unequal-means"])}  # fmt: skip


@pytest.mark.parametrize("divided", PARTS)
def test_sums_of_micro_batches_that_are_divided_by_counts_of_their_own(divided):
    count, expected = PARTS[divided]
    model, y = mlp(), torch.tensor([0, -100, -100, -100, 1, 0, 1, 0])
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for part, labels in zip(X.chunk(2), y.chunk(2), strict=True):
                valid = int((labels != -100).sum())
                (F.cross_entropy(model(part), labels, reduction="sum") / count(valid, 5)).backward()
            optimizer.step()
    assert named(seen.findings) == expected


@pytest.mark.parametrize(("last", "expected"), [(1, ["mean-of-unequal-means"]), (4, [])])
def test_a_last_batch_that_is_far_smaller_than_the_one_it_is_averaged_with(last, expected):
    model, x = mlp(), numbers(20, 4)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for part in (x[:16], x[16 : 16 + last]):
                (F.cross_entropy(model(part), (part[:, 0] > 0).long()) / 2).backward()
            optimizer.step()
    assert named(seen.findings) == expected


@pytest.mark.parametrize("trained", [True, False])
def test_a_teacher_that_follows_by_hand_and_is_trained_all_the_same(trained):
    student, teacher = mlp(), mlp()
    teacher.requires_grad_(trained)
    optimizer = torch.optim.SGD([*student.parameters(), *(teacher.parameters() if trained else ())], lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(5):
            optimizer.zero_grad()
            belief = teacher(X + 0.1).softmax(-1)
            F.cross_entropy(student(X), belief).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
    assert named(seen.findings) == (["gradients-into-fixed-network"] if trained else [])


def test_a_probe_that_is_fitted_inside_a_closure_is_not_taken_for_a_fresh_model():
    head, small = nn.Linear(4, 2), X / 100
    optimizer = torch.optim.LBFGS(head.parameters(), lr=1.0, max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(small), (X[:, 0] > 0).long())
        loss.backward()
        return loss

    with surefoot.watch() as seen:
        optimizer.step(closure)
        optimizer.step(closure)
    assert float(head.weight.detach().abs().max()) > 20
    assert "far-off-initial-loss" not in named(seen.findings)


def test_a_model_that_is_probed_while_training_keeps_its_running_statistics():
    """Or outputs before and after that would differ for all samples, as if these were mixed."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    call = SimpleNamespace(model=model, args=(X,), kwargs={}, autocast=None)
    again = Again(None, call)
    before = again()
    again(training=True)
    assert torch.equal(before[0], again()[0])
