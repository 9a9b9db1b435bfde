"""`watch --overhead`: where looking costs too much, fewer updates are looked at, and the report says how many."""

import gc
import runpy
import sys
import time

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from surefoot.checks.engine.functions import Functions
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import LOOKED_AT, Scene
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.script_throttle import FEWEST, FEWEST_READ, LEAST, LEAST_READ
from surefoot.cli.main import app
from surefoot.events.failsafe import Failsafe
from surefoot.events.frozen_heap import frozen_heap
from surefoot.events.phases import Phases
from surefoot.events.watch_budget import ALWAYS, OVERHEAD, Budget
from surefoot.meters.flops import FlopsMeter
from surefoot.watch import MEASURING, watch_call, watch_script
from surefoot.world.kernels import Kernels

# ------------------------------------------------------------------------------------------- the budget itself


def test_a_budget_is_a_second_and_a_share_of_the_loops_own_time():
    clock = [10.0]
    budget = Budget(0.25, now=lambda: clock[0], cpu=lambda: clock[0])
    assert not budget.is_spent(ALWAYS)
    assert budget.is_spent(ALWAYS + 0.01)
    clock[0] += 8.0 + 2.9  # of which the loop took 8
    assert not budget.is_spent(ALWAYS + 1.9)
    clock[0] += 0.2
    assert budget.is_spent(ALWAYS + 2.1)


@pytest.mark.parametrize(("clock_runs", "works"), [(3.0, 1.0), (1.0, 8.0)], ids=["busy machine", "many threads"])
def test_a_loop_has_lasted_as_long_as_it_worked_or_as_the_clock_ran(clock_runs, works):
    passed = [0.0]
    budget = Budget(0.25, now=lambda: clock_runs * passed[0], cpu=lambda: works * passed[0])
    passed[0] = 8.0 + ALWAYS + 2.0
    assert not budget.is_spent(ALWAYS + 1.9)
    assert budget.is_spent(ALWAYS + 2.1)


def work(seconds: float) -> None:
    """Uses the processor for as long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_cpu_seconds_of_callbacks_are_added_up_and_nested_ones_count_once():
    failsafe = Failsafe(on=True)
    inner = failsafe.callback(lambda: work(0.02))
    failsafe.callback(lambda: (inner(), inner()))()
    assert 0.04 <= failsafe.seconds < 0.06
    work(0.03)  # outside of callbacks
    failsafe.callback(lambda: time.sleep(0.03))()  # time itself: waiting takes no CPU
    assert failsafe.seconds < 0.06


# ------------------------------------------------------------------------------------------- who hears of a function


class _All(Observer):
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.heard: list[str] = []

    def called(self, function, args, kwargs, out):
        self.heard.append(function.__name__)


class _Some(_All):
    functions = {"relu", "exp"}


class _Reading(_All):
    reads = True


def test_observers_hear_of_the_functions_that_they_name():
    scene = Scene(Phases())
    observers = [_All(scene), _Some(scene), _Reading(scene)]
    functions = Functions(scene, [each.called for each in observers])

    def call():
        for each in observers:
            each.heard.clear()
        with functions:
            torch.relu(torch.ones(2)).tanh()
        return [[name for name in each.heard if name != "ones"] for each in observers]

    assert scene.close
    assert call() == [["relu", "tanh"], ["relu"], ["relu", "tanh"]]
    scene.look_away()
    assert not scene.close
    assert call() == [["relu", "tanh"], ["relu"], []]
    scene.look_closely()
    assert call() == [["relu", "tanh"], ["relu"], ["relu", "tanh"]]


# ------------------------------------------------------------------------------------------- watching within it


def train(updates: int) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(updates):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
        optimizer.step()


@pytest.fixture
def nothing_allowed(monkeypatch):
    """Whatever watching takes is too much."""
    shares = []

    def budget(share, **_):
        shares.append(share)
        return Budget(share, always=0.0)

    monkeypatch.setattr(sys.modules["surefoot.watch"], "Budget", budget)
    return shares


@pytest.fixture
def read(monkeypatch):
    """For each look at a loss: whether tensors were read."""
    plain, looks = Losses.called, []

    def called(self, function, *call):
        if function is nn.functional.cross_entropy:
            looks.append(self.scene.close)
        plain(self, function, *call)

    monkeypatch.setattr(Losses, "called", called)
    return looks


def look_at_less(read, watched: int, most_read: int) -> None:
    found = watch_call(lambda: train(FEWEST + 6), name=__file__, overhead=0.0).findings
    assert f"{watched} of {FEWEST + 6} updates" in found.examined
    assert f"updates after the first {watched}" in found.not_examined
    assert len(read) == watched
    assert sum(read) == most_read


@pytest.mark.usefixtures("nothing_allowed")
def test_checks_that_take_far_more_than_their_budget_look_at_few_updates(read):
    look_at_less(read, LEAST, LEAST_READ)


def test_checks_that_take_their_budget_look_at_fewer_updates(read, monkeypatch):
    monkeypatch.setattr(Budget, "is_spent", lambda _, seconds: seconds > 1.3)
    monkeypatch.setattr(Failsafe, "seconds", property(lambda _: 1.0, lambda *_: None), raising=False)
    look_at_less(read, FEWEST, FEWEST_READ)


@pytest.mark.usefixtures("nothing_allowed")
def test_a_larger_budget_looks_at_more(read):
    found = watch_call(lambda: train(FEWEST + 6), name=__file__, overhead=1e9).findings
    assert f"{FEWEST + 6} updates" in found.examined
    assert sum(read) == LOOKED_AT


@pytest.mark.usefixtures("nothing_allowed")
def test_check_all_has_no_budget(read):
    found = watch_call(lambda: train(FEWEST + 6), name=__file__, overhead=0.0, check_all=True).findings
    assert f"{FEWEST + 6} updates" in found.examined
    assert sum(read) == LOOKED_AT


def test_quick_checks_look_at_a_hundred_updates_by_default(monkeypatch):
    monkeypatch.setattr(Budget, "is_spent", lambda *_: False)  # on a busy machine it may be
    assert "100 of 104 updates" in watch_call(lambda: train(104), name=__file__).findings.examined


def slow_meter(monkeypatch, event):
    """A meter that takes more than its budget in each event of this name."""
    monkeypatch.setattr(FlopsMeter, event, lambda *_: work(1.2 * MEASURING))


def test_long_steps_are_measured_less_often(monkeypatch):
    slow_meter(monkeypatch, "update_begins")
    record = watch_call(lambda: train(5), name=__file__, overhead=0.0, sparing=True)
    assert record.steps == 5
    assert record.first is not None
    assert record.first is record.steady  # the first one only
    assert "backwards/all" in {each.name for each in record.counted.accounts}


@pytest.mark.usefixtures("nothing_allowed")
def test_three_steps_are_measured_unless_sparing():
    record = watch_call(lambda: train(5), name=__file__, overhead=0.0)
    assert record.first is not None
    assert record.first is not record.steady


def test_a_step_that_is_too_long_to_measure_is_not_measured(monkeypatch, tmp_path):
    slow_meter(monkeypatch, "forward_ends")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "for _ in range(2):\n    loss = sum(model(torch.randn(2, 4)).mean() for _ in range(3))\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    done = CliRunner().invoke(app, ["watch", str(script), "--overhead", "0"])
    said = " ".join(done.output.split())
    assert "2 steps of Linear" in said
    assert "its first step was too long to measure" in said


# ------------------------------------------------------------------------------------------- what a script needs


@pytest.fixture
def nothing_frozen():
    """The tests' own start has frozen what it loaded."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_collections_leave_out_what_was_loaded_before_the_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import gc\nfrozen, seen = gc.get_freeze_count(), len(gc.get_objects())\n")
    held = []

    def kept(path, *_):
        held.append(runpy.run_path(path))

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(sys.modules["surefoot.watch"], "run_script", kept)
        watch_script(str(script))
    assert held[0]["frozen"] > 10 * held[0]["seen"]
    assert gc.get_freeze_count() == 0


def test_objects_that_somebody_else_froze_stay_frozen():
    gc.freeze()
    with frozen_heap():
        pass
    assert gc.get_freeze_count() > 0


@pytest.fixture
def measured(monkeypatch):
    """The operators that were run once more, to see what they allocate."""
    plain, names = Kernels._measure, []

    def measure(self, func, args, kwargs):
        names.append(func.overloadpacket.__name__)
        return plain(self, func, args, kwargs)

    monkeypatch.setattr(Kernels, "_measure", measure)
    return names


@pytest.mark.parametrize("sparing", [True, False])
def test_operators_of_training_run_twice_only_where_memory_is_shown(sparing, measured):
    record = watch_call(lambda: train(2), name=__file__, sparing=sparing)
    assert record.first.tally.total("flops") > 0
    assert ("addmm" in measured) is not sparing


def test_the_memory_of_a_script_that_only_evaluates_is_measured_in_full(measured):
    @torch.no_grad()
    def evaluate():
        nn.Linear(4, 2)(torch.randn(8, 4))

    in_full, sparing = (watch_call(evaluate, name=__file__, sparing=each).steady for each in (False, True))
    assert measured.count("addmm") == 2
    assert sparing.peak == in_full.peak


# ------------------------------------------------------------------------------------------- the option


@pytest.mark.parametrize("given", ["a lot", "-3%", "nan", "inf"])
def test_a_share_that_is_none_is_refused(given, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    done = CliRunner().invoke(app, ["watch", str(script), "--overhead", given])
    assert done.exit_code == 2
    assert "25%" in done.output


@pytest.mark.parametrize(("given", "share"), [("40%", 0.4), ("0.4", 0.4), ("0", 0.0), (None, OVERHEAD)])
def test_the_share_is_handed_on(given, share, nothing_allowed, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    CliRunner().invoke(app, ["watch", str(script), *([] if given is None else ["--overhead", given])])
    assert nothing_allowed == [share, share]  # of measuring and of checking
    nothing_allowed.clear()
    CliRunner().invoke(app, ["watch", str(script), "--tables"])
    assert nothing_allowed == [OVERHEAD]  # of checking: what the tables show is measured in full


def test_the_help_states_the_default():
    assert f"{OVERHEAD:.0%}" in CliRunner().invoke(app, ["watch", "--help"], env={"COLUMNS": "200"}).output


def test_torchs_writes_to_views_without_gradients_are_not_refused(tmp_path):
    """An embedding with padding fills a row that it took without gradients: the first thing that a script does here."""
    (tmp_path / "train.py").write_text("import torch\nembedding = torch.nn.Embedding(8, 4, padding_idx=0)\n")
    watch_script(str(tmp_path / "train.py"))
