"""What each layer does in a step: exact on any split, free of effect on training, and read in plain words."""

import gc
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import surefoot
from surefoot.checks.engine.functions import UNHEARD
from surefoot.cli.main import main
from surefoot.costs.layers import findings_of, verdicts_of
from surefoot.data.batches import batches_of
from surefoot.data.sizes import sizes_of
from surefoot.errors import DiskError, RecipeError
from surefoot.meters import allocator
from surefoot.meters.books import Books
from surefoot.planning.fake_step import Tracing
from surefoot.randomness import seed_all
from surefoot.records.layers import Layer, LayersRow, line_of_layers, read_layers
from surefoot.reports.console import as_text
from surefoot.reports.gather import report_of
from surefoot.reports.page import page
from surefoot.reports.run import run_text
from surefoot.step import Step
from surefoot.techniques.layers import Layers
from surefoot.training.log_file import LogFile
from surefoot.world.world import World
from tests.layered import Deep, halves, layered
from tests.ranks import Case, on_ranks
from tests.resumed import final_state, told, train_in_parts
from tests.scored import loss, samples

pytestmark = pytest.mark.sweep

CHANGES = {
    "plain": {"drop": 0.1},
    "accumulated": {"drop": 0.1, "global_batch_tokens": 16, "max_grad_norm": 0.1},
    "recomputed": {"drop": 0.1, "recompute": "full"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16-true": {"precision": "bf16-true"},
    "16-mixed": {"precision": "16-mixed"},
    "skipping": {"nonfinite": "skip", "max_grad_norm": 1.0},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_no_bit_of_training_changes(changes, tmp_path):
    measured = surefoot.train(layered(layers_every=1, **changes), path=str(tmp_path / "measured"))
    plain = surefoot.train(layered(layers_every=None, **changes), path=str(tmp_path / "plain"))
    assert told(measured) == told(plain)
    assert final_state(measured) == final_state(plain)
    assert measured.weights.read_bytes() == plain.weights.read_bytes()
    assert [row.step for row in measured.layer_rows()] == list(range(1, 13))
    assert measured.findings.exists() == plain.findings.exists()
    assert not plain.layers.exists()


class Taught(nn.Module):
    """A student and a teacher in evaluation mode, which takes torch's fast path as long as nothing hooks it."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(3, 8)
        self.teacher = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.student(x)
        with torch.no_grad():
            taught = self.teacher.eval()(x[:, None])[:, 0]
        return (x + taught)[:, :3]


def test_a_frozen_teacher_keeps_its_fast_path(tmp_path, monkeypatch):
    fast, calls = torch._transformer_encoder_layer_fwd, []
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *args: calls.append(1) or fast(*args))
    runs = [
        surefoot.train(layered(layers_every=every, model=Taught), path=str(tmp_path / str(every)))
        for every in (1, None)
    ]
    assert len(calls) == 24
    assert told(runs[0]) == told(runs[1])
    assert list(runs[0].layer_rows()[0].layers) == ["student"]


# ------------------------------------------------------------------------------------------- figures


def test_the_figures_are_those_of_plain_torch(tmp_path):
    recipe = layered(nn.Sigmoid, gain=20.0, layers_every=1, max_steps=1, max_grad_norm=0.01, save_every=None)
    row = surefoot.train(recipe, path=str(tmp_path / "run")).layer_rows()[0]
    seed_all(recipe.seed)
    model = recipe.model()
    optimizer, seen = recipe.optimizer(model.parameters()), {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, _, out, name=name: seen.update({name: out.detach()}))
    summed, count = loss(model, next(batches_of(recipe)))
    (summed / count).backward()
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    gradients = {name: each.grad.clone() for name, each in model.named_parameters()}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    after = {name: each.detach() for name, each in model.named_parameters()}
    assert list(row.layers) == ["first", *(f"blocks.{i}.{j}" for i in range(3) for j in range(2)), "last"]
    for name, layer in row.layers.items():
        out = seen[name].double()
        assert layer.mean == pytest.approx(out.mean().item(), rel=1e-5)
        assert layer.deviation == pytest.approx(out.std(correction=0).item(), rel=1e-5)
        assert layer.zeros == 0.0
        if layer.kind == "Sigmoid":
            outside = ((out <= 0.01) | (out >= 0.99)).double().mean().item()
            assert layer.saturated == pytest.approx(outside) != 0.0
            assert layer.gradient_norm is layer.update_ratio is None
            continue
        both = [f"{name}.weight", f"{name}.bias"]
        norm = math.sqrt(sum(gradients[each].double().square().sum().item() for each in both))
        update = math.sqrt(sum((after[each] - before[each]).double().square().sum().item() for each in both))
        weight = math.sqrt(sum(after[each].double().square().sum().item() for each in both))
        assert layer.gradient_norm == pytest.approx(norm, rel=1e-4)
        assert layer.update_ratio == pytest.approx(update / weight, rel=1e-5)
        assert layer.saturated is None


def close(rows, others) -> bool:
    """Whether two files of layers agree up to rounding."""
    assert [row.step for row in rows] == [row.step for row in others] != []
    for row, other in zip(rows, others, strict=True):
        assert list(row.layers) == list(other.layers)
        for name, layer in row.layers.items():
            same = other.layers[name]
            assert layer.kind == same.kind
            for one, two in zip(list(vars(layer).values())[1:], list(vars(same).values())[1:], strict=True):
                assert one == (two if two is None else pytest.approx(two, rel=2e-3, abs=1e-6)), (row.step, name)
    return True


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    ranks = [
        Case("tests.layered", "layer_rows", 1, ({"micro_batch_size": 16},)),
        Case("tests.layered", "layer_rows", 1, ({"micro_batch_size": 2},)),
        Case("tests.layered", "layer_rows", 2, ({"dp_replicate": 2, "dp_shard": 1},)),
        Case("tests.layered", "layer_rows", 2, ({"dp_shard": 2},)),
        Case("tests.layered", "layer_rows", 2, ({"dp_shard": 2, "recompute": "full"},)),
        Case("tests.layered", "layer_rows", 4, ({"dp_replicate": 2, "dp_shard": 2},)),
        Case("tests.layered", "layer_rows", 2, ({"tp": 2, "dp_shard": 1, "tensor_plan": halves},)),
    ]
    return [made[0] for made in on_ranks(ranks, tmp_path_factory.mktemp("split"))]


def test_the_figures_do_not_depend_on_the_split(split):
    first, *others, halved = [rows for _, rows in split]
    assert [row.step for row in first] == [3, 6, 9, 12]
    assert all(close(first, other) for other in others)
    for row, other in zip(first, halved, strict=True):  # the ranks of a row-wise layer return summands
        assert other.layers["blocks.1.0"].mean is None
        same = replace(row.layers["blocks.1.0"], mean=None, deviation=None, zeros=None)
        row.layers["blocks.1.0"] = same
    assert close(first, halved)


def test_the_norms_of_layers_add_up_to_that_of_the_log(split):
    for rows, layers in split:
        logged = {row.step: row.grad_norm for row in rows}
        for row in layers:
            norms = [each.gradient_norm for each in row.layers.values() if each.gradient_norm is not None]
            assert math.hypot(*norms) == pytest.approx(logged[row.step], rel=1e-5)


def test_a_recomputed_forward_is_not_measured_again():
    counts = []
    for way in ("none", "full"):
        step = Step(layered(recompute=way), World())
        layers = step.measure_layers()
        with layers:
            step(iter([next(batches_of(step.recipe))]))
        counts.append(dict(layers._counts))
    assert counts[0] == counts[1]
    assert counts[0]["last"] == 4 * 3


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_code_is_measured_without_activations(tmp_path):
    recipe = layered(depth=1, compile="whole", max_steps=2, layers_every=1, save_every=None)
    row = surefoot.train(recipe, path=str(tmp_path / "run")).layer_rows()[-1]
    assert row.layers["first"].gradient_norm > 0
    assert row.layers["first"].update_ratio > 0
    assert {layer.mean for layer in row.layers.values()} == {None}


def test_code_inside_vmap_is_not_measured(tmp_path):
    def by_sample(model, batch):
        x, y = batch
        logits = torch.func.vmap(lambda each: model.last(model.first(each)), randomness="different")(x)
        return nn.functional.cross_entropy(logits, y)

    row = surefoot.train(layered(loss=by_sample, layers_every=1), path=str(tmp_path / "run")).layer_rows()[-1]
    assert row.layers["first"].gradient_norm > 0
    assert row.layers["first"].mean is None


@pytest.mark.parametrize("name", ["gan", "ppo", "distill", "sam"])
def test_own_steps_are_measured(name, small_recipe, tmp_path):
    recipe = replace(small_recipe(name), max_steps=6)
    plain = surefoot.train(recipe, path=str(tmp_path / "plain"))
    measured = surefoot.train(replace(recipe, layers_every=2), path=str(tmp_path / "measured"))
    assert final_state(plain) == final_state(measured)
    trained = [each for each in measured.layer_rows()[-1].layers.values() if each.update_ratio is not None]
    assert trained
    assert all(each.gradient_norm > 0 and 0 < each.update_ratio < 1 for each in trained)


def test_the_update_is_that_of_all_steps_of_an_optimizer(tmp_path):
    def step(network, optimizer, batch):
        for _ in range(2):
            optimizer.zero_grad()
            network.weight.sum().backward()
            optimizer.step()
        return network.weight.detach().sum()

    recipe = layered(
        model=lambda: nn.Linear(3, 3, bias=False),
        loss=None,
        step=step,
        optimizer=lambda network: torch.optim.SGD(network.parameters(), lr=0.5),
        layers_every=1,
        max_steps=1,
    )
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    layer, after = run.layer_rows()[0].layers[""], load_file(run.weights)["weight"]
    assert layer.gradient_norm == pytest.approx(3.0)
    assert layer.update_ratio == pytest.approx(3.0 / after.norm().item())


def test_checks_do_not_hear_the_measurements():
    assert Layers.__module__.startswith(UNHEARD)


def test_a_closure_computes_the_gradient(tmp_path):
    def step(network, optimizer, batch):
        def closure():
            optimizer.zero_grad()
            summed, count = loss(network, batch)
            (summed / count).backward()
            return summed / count

        return optimizer.step(closure)

    recipe = layered(
        loss=None, step=step, optimizer=lambda network: torch.optim.LBFGS(network.parameters(), max_iter=2)
    )
    row = surefoot.train(recipe, path=str(tmp_path / "run")).layer_rows()[0]
    assert row.layers["first"].gradient_norm > 0


# ------------------------------------------------------------------------------------------- stopped


def test_a_stopped_run_has_the_same_rows(tmp_path):
    whole = surefoot.train(layered(), path=str(tmp_path / "whole"))
    parts = train_in_parts(layered(), tmp_path / "parts", 5, 7)
    assert len(list(read_layers(parts.layers))) == 5  # step 6 was repeated
    assert parts.layer_rows() == whole.layer_rows()
    assert final_state(parts) == final_state(whole)


def test_a_cut_line_is_left_out_and_removed(tmp_path):
    def stop(run, row):
        if row.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        surefoot.train(layered(), path=str(tmp_path / "run"), tell=stop)
    file = tmp_path / "run" / "layers.jsonl"
    file.write_bytes(file.read_bytes() + b'{"step": 9, "lay')
    assert [row.step for row in read_layers(file)] == [3, 6]
    assert [row.step for row in surefoot.train(layered(), path=str(tmp_path / "run")).layer_rows()] == [3, 6, 9, 12]


def test_the_interval_may_change_on_resume(tmp_path):
    whole = surefoot.train(layered(layers_every=None), path=str(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        surefoot.train(
            layered(layers_every=None), path=str(tmp_path / "run"), tell=lambda run, row: interrupt(row.step == 6)
        )
    run = surefoot.train(layered(layers_every=5), path=str(tmp_path / "run"))
    assert [row.step for row in run.layer_rows()] == [5, 10]
    assert final_state(run) == final_state(whole)


def interrupt(now: bool) -> None:
    if now:
        raise KeyboardInterrupt


def test_a_disk_that_refuses_does_not_stop_the_run(tmp_path, monkeypatch):
    def refuse(path, line_of):
        if path.name == "layers.jsonl":
            raise DiskError(f"{path} could not be written")
        return LogFile(path, line_of)

    monkeypatch.setattr("surefoot.training.run_writer.LogFile", refuse)
    run = surefoot.train(layered(), path=str(tmp_path / "run"))
    assert run.status == "finished"
    assert [event.kind for event in run.happened()] == ["not-written"] * 4


# ------------------------------------------------------------------------------------------- planned


@pytest.mark.parametrize("changes", [{}, {"global_batch_tokens": 16}, {"precision": "bf16-true"}], ids=str)
@pytest.mark.parametrize("kind", [nn.Sigmoid, nn.ReLU])
def test_a_plan_knows_the_peak_of_a_measured_step(kind, changes):
    data = samples(64, 1)
    recipe = layered(kind, data=lambda: data, **changes)
    with Tracing(recipe) as tracing:
        planned = tracing.traced().layers.peak.peak_bytes
    assert planned == booked_peak(recipe)
    assert planned == pytest.approx(allocated_peak(recipe), abs=16)
    with_layers, without = surefoot.plan(recipe), surefoot.plan(replace(recipe, layers_every=None))
    assert with_layers.steady == without.steady
    assert planned > without.steady.peak.peak_bytes
    assert any("layers_every=3: a step that measures layers takes" in each for each in with_layers.choices)
    assert with_layers.reserved_bytes["classic"] >= without.reserved_bytes["classic"]


def test_a_measured_step_is_planned_with_the_largest_batch():
    rows = [(torch.zeros(length, 3), torch.zeros(length, dtype=torch.long)) for length in [4] * 30 + [400] + [4] * 33]
    recipe = layered(
        data=lambda: rows,
        collate=lambda samples: tuple(torch.cat(each) for each in zip(*samples, strict=True)),
    )
    with Tracing(recipe) as tracing:
        small = tracing.traced().layers.peak.peak_bytes
    note = next(each for each in surefoot.plan(recipe).choices if "layers_every" in each)
    steady = surefoot.plan(recipe).steady.peak.peak_bytes
    with Tracing(recipe, largest=[sizes_of(recipe).largest]) as tracing:
        assert tracing.traced().layers.peak.peak_bytes >= steady > 2 * small
    assert " 0 B more" not in note


def three_steps(recipe, world, seen=iter):
    """Takes two steps, then one that measures layers; yields before the third."""
    batches, step = batches_of(recipe), Step(recipe, world)
    for _ in range(2):
        step(seen([next(batches) for _ in range(step.micro_batches)]))
    yield step
    with step.measure_layers():
        step(seen(world.take(batches) for _ in range(step.micro_batches)))


def booked_peak(recipe) -> int:
    with World() as world, Books() as books:
        steps = three_steps(recipe, world, books.seen)
        step = next(steps)
        books.phases.find(step.model)
        books.ending = step.optimizer
        next(steps, None)
    return books.steps[-1].peak.peak_bytes


def allocated_peak(recipe) -> int:
    gc.collect()
    allocator.install()
    try:
        before = allocator.live_bytes()
        with World() as world:
            steps = three_steps(recipe, world)
            step = next(steps)
            allocator.reset_peak()
            next(steps, None)
            del step
        return allocator.peak_bytes() - before
    finally:
        allocator.uninstall()


# ------------------------------------------------------------------------------------------- read


class Wave(nn.Module):
    """A steep function with a short range: values stay small and gradients grow from layer to layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30 * x)


def words(rows) -> set[str]:
    return set(verdicts_of(rows).values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": nn.ReLU, "depth": 6}, set()),
        ({"kind": nn.GELU, "depth": 6}, set()),
        ({"kind": nn.Sigmoid, "depth": 12}, {"vanishing"}),
        ({"kind": Wave, "depth": 8, "lr": 1e-5}, {"exploding"}),
        ({"kind": nn.ReLU, "depth": 4, "lr": 3.0, "max_steps": 60}, {"dead", "no gradient"}),
        ({"kind": nn.Tanh, "depth": 2, "gain": 200.0}, {"saturated"}),
    ],
)
def test_what_is_wrong_is_named(changes, said, tmp_path):
    run = surefoot.train(layered(**{"max_steps": 24, "save_every": None, **changes}), path=str(tmp_path / "run"))
    assert words(run.layer_rows()) == said
    findings = report_of(Path(run.path)).sheets[0].findings.findings
    assert {each.check for each in findings if each.check.startswith("layers-")} == {
        f"layers-{each.replace(' ', '-')}" for each in said
    }


def row(step: int, **layers: Layer) -> LayersRow:
    return LayersRow(step, 0, layers)


def test_a_verdict_must_hold_three_times():
    dead, alive = Layer("ReLU", zeros=1.0), Layer("ReLU", zeros=0.98)
    assert verdicts_of([row(1, a=dead)]) == {"a": "dead"}
    assert verdicts_of([row(1, a=alive), row(2, a=dead), row(3, a=dead)]) == {}
    assert verdicts_of([row(1, a=alive), *(row(step, a=dead) for step in (2, 3, 4))]) == {"a": "dead"}
    assert verdicts_of([]) == {}
    assert list(findings_of([])) == []


@pytest.mark.parametrize(
    ("layer", "verdict"),
    [
        (Layer("Router", zeros=1.0), None),
        (Layer("Dropout", zeros=1.0), None),
        (Layer("Linear", 1.0, 0.1), None),
        (Layer("Linear", 1.0, 0.11), "exploding"),
        (Layer("Linear", None, 0.0), "no gradient"),
        (Layer("Linear", 0.0, 0.01), "no gradient"),
        (Layer("Linear", 0.0011, 0.01), None),
        (Layer("Linear", 0.0009, 0.01), "vanishing"),
        (Layer("Linear", 999.0, 0.01), None),
        (Layer("Linear", 1001.0, 0.01), "exploding"),
        (Layer("Linear", math.nan, 0.01), "not finite"),
        (Layer("Tanh", saturated=0.89), None),
        (Layer("Tanh", saturated=0.9), "saturated"),
    ],
)
def test_the_thresholds(layer, verdict):
    usual = {name: Layer("Linear", 1.0, 0.001) for name in ("b", "c", "d")}
    assert verdicts_of([row(1, a=layer, **usual)]).get("a") == verdict


def test_a_row_reads_back(tmp_path):
    written = row(7, a=Layer("Linear", math.inf, 0.1, math.nan, 1.0, 0.5, None))
    file = tmp_path / "layers.jsonl"
    file.write_text(line_of_layers(written))
    (read,) = read_layers(file)
    assert repr(read) == repr(written)


def test_the_report_shows_the_layers(tmp_path):
    run = surefoot.train(layered(nn.Sigmoid, 12, max_steps=24), path=str(tmp_path / "run"))
    text = as_text(run_text(run))
    assert "layers at step 24, 12 of 26; 8 measured steps" in text
    assert "vanishing: first, blocks.0.0" in text
    html = page(report_of(Path(run.path)))
    assert "<h2>Layers</h2>" in html
    assert "Gradient norm by layer" in html
    assert "layers-vanishing" in html
    assert "1/1,000 of that of the median and the last layer" in html
    plain = surefoot.train(layered(layers_every=None), path=str(tmp_path / "plain"))
    assert "layers at step" not in as_text(run_text(plain))
    assert "<h2>Layers</h2>" not in page(report_of(Path(plain.path)))


def test_it_works_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in ("train regression layers_every=10 max_steps=20 samples=64 --run run", "report run --html page.html"):
        monkeypatch.setattr("sys.argv", ["surefoot", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert "layers at step 20" in capsys.readouterr().out
    assert "<h2>Layers</h2>" in Path("page.html").read_text()


def test_an_interval_must_be_a_count():
    with pytest.raises(RecipeError, match="layers_every=0 must be at least 1"):
        layered(layers_every=0)


def test_a_shared_parameter_counts_once():
    model = Deep(nn.ReLU, 1)
    model.blocks[0][0].weight = nn.Parameter(torch.eye(16))
    model.last = model.blocks[0][0]
    step = Step(layered(model=lambda: model, loss=lambda model, batch: model(batch[0]).square().mean()), World())
    layers = step.measure_layers()
    with layers:
        step(iter([samples(4, 1)[:]]))
    assert list(layers.figures()) == ["first", "blocks.0.0", "blocks.0.1"]
