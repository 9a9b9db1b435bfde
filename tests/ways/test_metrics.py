"""Metrics, the best checkpoint, early stopping and test data: exact over any split, and the same after a stop."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import IterableDataset

import surefoot
from surefoot import Recipe, read_run
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import RecipeError, RunError
from surefoot.records.log import LogRow, line_of
from surefoot.reports.console import as_text
from surefoot.reports.gather import report_of
from surefoot.reports.run import run_text
from surefoot.training.selection import Selection
from tests.mirrors import s3_server, wipe
from tests.ranks import Case, on_ranks
from tests.resumed import told, train_in_parts, train_to
from tests.scored import accuracy, samples, scored


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody stops."""
    return surefoot.train(scored(), path=str(tmp_path_factory.mktemp("whole") / "run"))


def kinds(run) -> list[str]:
    return [event.kind for event in run.happened()]


# ------------------------------------------------------------------------------------------- exact figures


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """The same model, scored in other micro-batches and on other ranks."""
    ways = [(size, ranks) for size in (1, 7, 64) for ranks in (1, 2, 4) if 448 % (size * ranks) == 0]
    cases = [
        Case("tests.scored", "metrics_of", ranks, (size, {"dp_replicate": ranks, "dp_shard": 1} if ranks > 1 else {}))
        for size, ranks in ways
    ]
    sharded = Case("tests.scored", "metrics_of", 2, (7, {"dp_shard": 2}))
    return [made[0] for made in on_ranks([*cases, sharded], tmp_path_factory.mktemp("split"))]


def test_metrics_do_not_depend_on_the_split(split):
    assert len(split) == 8
    losses, accuracies, tests = zip(*split, strict=True)
    assert len(set(accuracies)) == 1
    assert round(accuracies[0] * 101, 6) == round(accuracies[0] * 101)
    assert len({test["accuracy"] for test in tests}) == 1
    assert round(tests[0]["accuracy"] * 77, 6) == round(tests[0]["accuracy"] * 77)
    assert max(losses) - min(losses) < 1e-6


def test_each_held_out_sample_counts_once(whole):
    recipe = scored()
    model = recipe.model()
    model.load_state_dict(load_file(whole.weights))
    x, y = samples(101, 2).tensors
    with torch.no_grad():
        expected = (model.eval()(x).argmax(1) == y).float().mean().item()
    best = next(row for row in whole.rows() if row.step == whole.best_step)
    assert best.metrics["accuracy"] == pytest.approx(expected, abs=1e-7)


def test_torchmetrics_objects_are_merged(tmp_path):
    torchmetrics = pytest.importorskip("torchmetrics")

    def f1(model: nn.Module, batch):
        x, y = batch
        metric = torchmetrics.classification.MulticlassF1Score(3, average="macro")
        metric.update(model(x), y)
        return {"f1": metric, **accuracy(model, batch)}

    still = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0)}  # dropout draws by micro-batch
    runs = [
        surefoot.train(
            scored(metrics=f1, micro_batch_size=size, global_batch_tokens=28, max_steps=5, best="f1", **still),
            path=str(tmp_path / str(size)),
        )
        for size in (4, 7, 28)
    ]
    assert len({round(run.metrics["f1"], 6) for run in runs}) == 1
    assert runs[0].metrics["f1"] != runs[0].metrics["accuracy"]


def test_metrics_of_training_batches(tmp_path):
    run = surefoot.train(scored(metrics_every=3, max_steps=10), path=str(tmp_path / "run"))
    measured = {row.step: row.train_metrics for row in run.rows() if row.train_metrics}
    assert list(measured) == [3, 6, 9]
    assert all(0 <= each["accuracy"] <= 1 for each in measured.values())


def test_metrics_change_no_bit_of_training(tmp_path):
    without = scored(metrics=None, best=None, test=None, evaluate_every=None, evaluation=None)
    plain = surefoot.train(without, path=str(tmp_path / "plain"))
    measured = surefoot.train(scored(metrics_every=1, best=None), path=str(tmp_path / "measured"))
    assert told(plain) == told(measured)
    assert plain.weights.read_bytes() == measured.weights.read_bytes()


# ------------------------------------------------------------------------------------------- the best step


def test_the_weights_are_those_of_the_best_step(whole):
    losses = {row.step: row.evaluation_loss for row in whole.rows() if row.evaluation_loss is not None}
    assert whole.best_step == min(losses, key=losses.get)
    assert whole.best_value == min(losses.values())
    assert 0 < whole.best_step < 60
    assert whole.weights_step == whole.best_step
    saved = {each.step: each for each in Checkpoints(whole.checkpoints)}
    assert set(saved) == {whole.best_step, 60}
    kept = saved[whole.best_step].load()["model"]
    weights = load_file(whole.weights)
    assert all(torch.equal(weights[name], kept[name]) for name in weights)


@pytest.mark.parametrize("stops", [(11,), (16, 17, 43), (58, 59)])
def test_the_same_step_is_best_after_stops(whole, tmp_path, stops):
    run = train_in_parts(scored(), tmp_path / "run", *stops)
    assert told(run) == told(whole)
    assert (run.best_step, run.best_value) == (whole.best_step, whole.best_value)
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert run.tests == whole.tests


def test_the_best_step_survives_a_wiped_disk(whole, tmp_path, monkeypatch):
    with s3_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        recipe = scored(mirror="s3://bucket/best")
        train_to(recipe, tmp_path / "run", 50)
        assert whole.best_step < 44
        wipe(tmp_path / "run")
        run = surefoot.train(recipe, path=str(tmp_path / "other"))
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert "best-lost" not in kinds(run)


def test_a_lost_best_checkpoint_is_said(tmp_path, whole):
    train_to(scored(), tmp_path / "run", 50)
    for each in Checkpoints(tmp_path / "run" / "checkpoints"):
        if each.step == whole.best_step:
            wipe(each.path)
    run = surefoot.train(scored(), path=str(tmp_path / "run"))
    assert "best-lost" in kinds(run)
    assert (run.best_step, run.weights_step) == (whole.best_step, 60)


def test_damaged_weights_are_those_of_the_best_step_again(tmp_path, whole):
    run = surefoot.train(scored(), path=str(tmp_path / "run"))
    run.weights.write_bytes(run.weights.read_bytes()[:-4])
    again = surefoot.train(scored(), path=str(tmp_path / "run"))
    assert again.weights.read_bytes() == whole.weights.read_bytes()


def test_patience_ends_the_run(tmp_path, whole):
    run = surefoot.train(scored(patience=3), path=str(tmp_path / "run"))
    assert (run.status, run.steps) == ("finished", whole.best_step + 15)
    assert "stopped-early" in kinds(run)
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    stopped = train_in_parts(scored(patience=3), tmp_path / "parts", whole.best_step + 12)
    assert (stopped.status, stopped.steps) == ("finished", run.steps)
    assert stopped.weights.read_bytes() == run.weights.read_bytes()


def test_a_run_may_not_change_what_decides(tmp_path):
    train_to(scored(), tmp_path / "run", 12)
    with pytest.raises(RunError, match="evaluate_every was 5 and is 6"):
        surefoot.train(scored(evaluate_every=6), path=str(tmp_path / "run"))


def test_not_a_number_is_never_best():
    rows = [_row(step, loss) for step, loss in ((1, math.nan), (2, 3.0), (3, math.nan), (4, 2.0), (5, 2.0))]
    selection = Selection(scored(patience=2), rows)
    assert (selection.step, selection.value, selection.since, selection.gives_up) == (4, 2.0, 1, False)
    assert Selection(scored(best="accuracy"), rows[:0]).step == 0


# ------------------------------------------------------------------------------------------- test data


def test_test_data_is_scored_once_with_the_weights(whole, tmp_path):
    model = scored().model()
    model.load_state_dict(load_file(whole.weights))
    x, y = samples(77, 3).tensors
    with torch.no_grad():
        said = model.eval()(x)
    assert whole.tests["test"]["accuracy"] == pytest.approx((said.argmax(1) == y).float().mean().item(), abs=1e-7)
    assert whole.tests["test"]["loss"] == pytest.approx(nn.functional.cross_entropy(said, y).item(), rel=1e-5)
    made = []

    def counted():
        made.append(1)
        return samples(9, 4)

    recipe = scored(max_steps=5, test={"near": counted, "far": lambda: samples(9, 4, noise=9.0)})
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert list(run.tests) == ["near", "far"]
    assert surefoot.train(recipe, path=str(tmp_path / "run")).tests == run.tests
    assert made == [1]


# ------------------------------------------------------------------------------------------- shown


def test_metrics_are_shown(whole):
    text = as_text(run_text(whole))
    assert "accuracy" in text
    assert f"best loss: {whole.best_value:.4f} at step {whole.best_step}" in text
    assert f"the weights are of step {whole.best_step}" in text
    assert f"test: loss {whole.tests['test']['loss']:.4f}  accuracy {whole.tests['test']['accuracy']:.4f}" in text
    sheet = report_of(Path(whole.path)).sheets[0]
    assert "held-out accuracy" in [curve.name for curve in sheet.curves]
    assert sheet.facts["accuracy"] == f"{whole.metrics['accuracy']:.4f}"


def test_a_run_reads_back(whole):
    assert read_run(whole.path).tests == whole.tests
    row = _row(1, math.inf)
    assert '"metrics": {"accuracy": "nan"}' in line_of(row)


def test_a_plan_runs_the_metrics():
    plan = surefoot.plan(scored())
    twice = plan.evaluate.tally.total("flops")
    assert twice == 2 * surefoot.plan(scored(metrics=None)).evaluate.tally.total("flops")


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"best": "loss"}, "write best='-loss'"),
        ({"best": "accuracy", "metrics": None}, "best='accuracy' needs metrics"),
        ({"best": ""}, "must be the name of a metric"),
        ({"best": "-loss", "evaluate_every": None}, "needs evaluation and evaluate_every"),
        ({"best": None, "patience": 2}, "patience=2 needs best"),
        ({"patience": 0}, "patience=0 must be at least 1"),
        ({"metrics": None, "metrics_every": 2}, "metrics_every=2 needs metrics"),
        ({"test": 3}, "test must be a function"),
        ({"metrics": 3}, "metrics must be a function"),
    ],
)
def test_what_a_recipe_cannot_ask_for(changes, said):
    with pytest.raises(RecipeError, match=said):
        scored(**changes)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: None, "returned None; is a `return` missing"),
        (lambda x: {"accuracy": 0.5}, "expected a tuple of a sum and a count"),
        (lambda x: {"accuracy": (x, 4)}, "sum and count must be one number each"),
        (lambda x: {"loss": (1, 1)}, "other than 'loss'"),
        (lambda x: {"f1": (1, 1)}, "best='accuracy' is not among the metrics of the recipe: f1"),
    ],
)
def test_what_metrics_may_not_return(made, said, tmp_path):
    recipe = scored(metrics=lambda model, batch: made(batch[0]), best="accuracy")
    with pytest.raises(RecipeError, match=said):
        surefoot.train(recipe, path=str(tmp_path / "run"))


def test_a_stream_cannot_be_scored_whole(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(samples(20, 1))

    recipe: Recipe = scored(evaluation=Stream)
    with pytest.raises(RecipeError, match="set evaluation_batches"):
        surefoot.train(recipe, path=str(tmp_path / "run"))


def _row(step: int, loss: float) -> LogRow:
    told = {"grad_norm": 1.0, "clipped_norm": 1.0, "lr": 0.1, "tokens": 1, "samples": None, "samples_digest": ""}
    rest = {"updated": True, "seconds": 1.0, "data_seconds": 0.0}
    return LogRow(step, 1.0, **told, **rest, evaluation_loss=loss, metrics={"accuracy": math.nan})
