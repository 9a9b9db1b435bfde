"""compare: runs that agree are said to agree; where two part, step, module, operator and line are named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.debug.runs.compare import compare
from surefoot.errors import RunError
from surefoot.records.codec import from_json
from surefoot.records.compared import Compared, first_step, relative
from surefoot.records.log import LogRow, line_of, read_rows
from surefoot.records.trace import Operation, Trace, parting
from surefoot.reports.compared import compared_text
from surefoot.reports.console import as_text
from tests.layered import layered
from tests.made import recipe as made_recipe
from tests.ranks import Case, on_ranks
from tests.ways.ranks import SMALL

FILE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        x = self.body(x)
        x = torch.tanh(x)  # activation
        return self.head(x)


def loss(model, batch):
    x, y = batch
    return (model(x)[:, 0] - y).square().sum(), len(y)


def mine(lr: float = 0.01) -> Recipe:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return Recipe(
        model=Net,
        data=lambda: TensorDataset(x, x.sum(1)),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=8,
        max_steps=6,
        save_every=2,
        seed=0,
    )
"""
LINE = next(number for number, line in enumerate(FILE.splitlines(), 1) if "# activation" in line)


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Trains a recipe in a directory of this name, and returns its path."""

    monkeypatch.chdir(tmp_path)

    def train(name: str, recipe) -> str:
        return surefoot.train(recipe, path=name).path

    return train


def from_file(folder: Path, name: str, source: str = FILE, **changes) -> str:
    file = folder / f"{name}.py"
    file.write_text(source)
    recipe = surefoot.load_recipe(f"{file}:mine", [f"{knob}={value}" for knob, value in changes.items()])
    surefoot.train(recipe, path=str(folder / name))
    return str(folder / name)


def told(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


# ------------------------------------------------------------------------------------------- runs that agree


def test_two_runs_of_the_same_recipe_agree_in_one_line(trained):
    paths = [trained(name, layered()) for name in "ab"]
    code, said = told(*paths)
    assert (code, said.count("\n")) == (0, 1)
    assert "12 steps compared bit for bit" in said
    assert compare(*paths).unlike == ()


def test_a_run_on_2_ranks_agrees_with_one_on_4_and_one_that_differs_does_not(tmp_path, monkeypatch):
    layouts = {"two": (2, ["dp_replicate=2", "dp_shard=1"]), "four": (4, ["dp_shard=4"])}
    cases = [
        Case("tests.ways.ranks", "trained", ranks, (str(tmp_path / name), words))
        for name, (ranks, words) in layouts.items()
    ]
    on_ranks(cases, tmp_path)
    monkeypatch.chdir(tmp_path)
    agreed = compare("two", "four")
    assert (agreed.agrees, agreed.tolerance) == (True, 1e-4)
    assert agreed.largest < 1e-5
    assert "within 0.0001 (rounding differs: layout)" in as_text(compared_text(agreed))
    rounded = compare("two", "four", tolerance=0.0)
    assert (rounded.agrees, rounded.replayed.cause) == (False, "none")
    assert "where they ran" in rounded.replayed.said
    surefoot.train(surefoot.load_recipe("gpt", [*SMALL, "max_steps=11", "lr=0.01"]), path="other")
    parted = compare("four", "other")
    assert (parted.difference.step, parted.replayed.cause) == (1, "update")
    assert "lr 0.0001 and 0.0005" in parted.replayed.said


# ------------------------------------------------------------------------------------------- runs that differ


def test_other_code_is_named_with_module_operator_and_line(tmp_path):
    before = from_file(tmp_path, "before")
    after = from_file(tmp_path, "after", FILE.replace("torch.tanh(x)", "x.tanh().mul(1.0001)"))
    code, said = told(before, after, "--trust-run")
    assert code == 1
    assert "differ from step 1 on" in said
    assert "code of the recipe" in said
    assert "only the arithmetic differs" in said
    assert f"only {after} runs `mul`" in said
    assert f"recipe.py:{LINE}" in said
    record = compare(before, after, trust_run=True)
    assert record.replayed.as_logged == (True, True)
    assert (record.replayed.parted.module, record.replayed.parted.operation) == ("head", "addmm")
    assert 1e-6 < record.replayed.parted.largest < 1e-2
    assert record.replayed.parted.first_line.endswith(f":{LINE + 1}")


def test_without_trust_the_logs_are_compared_and_no_code_of_a_run_is_executed(tmp_path):
    before, after = from_file(tmp_path, "before"), from_file(tmp_path, "after", lr=0.02)
    for path in (before, after):
        (Path(path) / "recipe.py").write_text("raise SystemExit('executed')")
    code, said = told(before, after)
    assert code == 1
    assert "lr" in said
    assert "not replayed" in said
    assert "--trust-run" in said
    assert "not replayed" not in told(before, after, "--no-replay")[1]


def test_an_update_that_differs_is_found_in_the_step_before_its_loss(trained):
    def with_decay(decay: float):
        return layered(optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.003, weight_decay=decay))

    recipes = with_decay(0.1), with_decay(0.2)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert record.difference.step == 2
    assert (record.replayed.step, record.replayed.cause, record.replayed.parted) == (1, "update", None)
    assert "weight_decay 0.1 and 0.2" in record.replayed.said
    assert "shows in the next loss" in as_text(compared_text(record))


def test_a_late_difference_is_replayed_from_the_last_checkpoint_that_both_share(trained):
    def stepping(at: int):
        return layered(schedule=lambda step, steps: 0.5 if step >= at else 1.0, save_every=4, keep_last=9)

    recipes = stepping(99), stepping(6)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert (record.difference.step, record.difference.fields[0].what) == (7, "lr")
    assert (record.replayed.from_step, record.replayed.step, record.replayed.cause) == (4, 7, "update")


@pytest.mark.sweep
def test_other_values_of_the_same_samples_are_a_batch_that_differs(trained):
    def shifted(by: float):
        def line(number: int, size: int):
            x = torch.full((size, 4), number / 10.0) + by
            return x, x.sum(1)

        return made_recipe(lambda: line)

    recipes = shifted(0.0), shifted(1e-3)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert record.replayed.cause == "batch"
    assert "the same samples have other values" in record.replayed.said
    assert record.replayed.parted.module == "0"


@pytest.mark.sweep
def test_other_first_weights_are_parameters_that_differ(trained):
    recipes = layered(), layered(gain=1.01)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert (record.replayed.step, record.replayed.cause) == (1, "parameters")
    assert "`blocks.0.0.weight` differs by at most" in record.replayed.said
    assert record.replayed.parted.module == "blocks.0.0"


@pytest.mark.sweep
def test_dropout_of_another_share_is_arithmetic_in_that_module(trained):
    recipes = layered(drop=0.1), layered(drop=0.2)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert record.replayed.cause == "arithmetic"
    assert (record.replayed.parted.phase, record.replayed.parted.module) == ("forward", "drop")


@pytest.mark.sweep
def test_a_backward_that_differs_is_named_after_a_forward_that_does_not(trained):
    class Scaled(torch.nn.Tanh):
        factor = 1.0

        def forward(self, x):
            out, factor = super().forward(x), self.factor
            if out.requires_grad:
                out.register_hook(lambda gradient: gradient * factor)
            return out

    class Wrong(Scaled):
        factor = 1.5

    recipes = layered(Scaled), layered(Wrong)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert (record.replayed.cause, record.replayed.parted.phase) == ("arithmetic", "backward")
    assert record.replayed.parted.operation == "mul"


def test_a_log_that_no_replay_gives_is_said_to_come_from_elsewhere(trained):
    recipe = layered()
    paths = [trained(name, recipe) for name in "ab"]
    log = Path(paths[1]) / "log.jsonl"
    rows = [replace(row, loss=row.loss + 1e-3) if row.step == 5 else row for row in read_rows(log)]
    log.write_text("".join(map(line_of, rows)))
    record = compare(*paths, recipe)
    assert record.difference.step == 5
    assert record.replayed.cause == "none"
    assert record.replayed.as_logged == (True, False)
    assert f"not bit for bit those that {paths[1]} logged" in as_text(compared_text(record), width=400)


@pytest.mark.sweep
def test_a_step_of_the_recipes_own_is_replayed_too(trained):
    def of(factor: float):
        def step(network, optimizer, batch):
            x, y = batch
            optimizer.zero_grad()
            loss = (network(x).squeeze(1) * factor - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return made_recipe(loss=None, step=step, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.01))

    recipes = of(1.0), of(1.01)
    record = compare(trained("a", recipes[0]), trained("b", recipes[1]), recipes)
    assert record.replayed.cause == "arithmetic"
    assert (record.replayed.parted.phase, record.replayed.parted.operation) == ("loss", "mul")
    assert "test_compare.py:" in record.replayed.parted.first_line


# ------------------------------------------------------------------------------------------- runs that cannot agree


def test_models_of_other_shapes_are_refused_with_2(trained):
    paths = trained("a", layered(depth=3)), trained("b", layered(depth=4))
    with pytest.raises(RunError, match="other shapes"):
        compare(*paths)
    paths = paths[0], trained("c", layered(micro_batch_size=8))
    with pytest.raises(RunError, match="steps of other sizes"):
        compare(*paths)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a run"):
        compare(str(tmp_path), str(tmp_path))


def test_the_record_is_json(trained):
    paths = [trained(name, layered(seed=seed)) for seed, name in enumerate("ab")]
    code, said = told(*paths, "--json")
    record = from_json(Compared, said)
    assert (code, record.difference.step) == (1, 1)
    assert json.loads(said)["unlike"][0] == {"what": "seed", "first": "0", "second": "1"}


# ------------------------------------------------------------------------------------------- on made-up records


def row(step: int, loss: float, **changes) -> LogRow:
    usual = {"grad_norm": 1.0, "clipped_norm": 1.0, "lr": 0.1, "tokens": 8, "samples": None, "samples_digest": "s"}
    times = {"updated": True, "seconds": 1.0, "data_seconds": 0.0, "batch_digest": "b"}
    return LogRow(step=step, loss=loss, **{**usual, **times, **changes})


def test_the_first_step_is_that_beyond_the_tolerance():
    one = [row(1, 2.0), row(2, 1.0), row(3, 0.5)]
    other = [row(1, 2.0), row(2, 1.00001), row(3, 0.6), row(4, 0.1)]
    assert first_step(one, other, 0.0)[2].step == 2
    steps, largest, found = first_step(one, other, 1e-4)
    assert (steps, found.step, found.fields[0].what) == (3, 3, "loss")
    assert largest == pytest.approx(1e-5, rel=1e-3)
    assert first_step(one, one, 0.0) == (3, 0.0, None)
    cut = [row(1, 2.0, batch_digest="other")]
    assert first_step(one, cut, 0.0)[2].fields[0].what == "batch_digest"
    assert first_step(one, cut, 0.0, same_cut=False)[2] is None


def test_two_nan_are_the_same_and_one_is_infinitely_far():
    assert relative(float("nan"), float("nan")) == 0
    assert relative(float("nan"), 1.0) == float("inf")
    assert relative(None, 1.0) == 0


def operation(name: str, value: str, module: str = "m") -> Operation:
    return Operation("forward", module, name, "", ("2x2",), ("float32",), (value,))


def test_traces_part_at_the_first_result_that_differs():
    one = Trace(1, operations=(operation("mm", "1"), operation("add", "2"), operation("mul", "3")))
    assert parting(one, one) is None
    assert parting(one, Trace(1, operations=(*one.operations[:2], operation("mul", "4")))).first == 2
    more = Trace(1, operations=(one.operations[0], operation("clone", "1"), *one.operations[1:]))
    assert (parting(one, more).first, len(parting(one, more).only_second)) == (None, 1)
    other = Trace(1, operations=(one.operations[0], operation("sub", "9"), operation("mul", "4")))
    found = parting(one, other)
    assert (found.first, found.only_first[0].name, found.only_second[0].name) == (2, "add", "sub")
