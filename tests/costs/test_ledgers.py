"""The ledger of a run: two sides, and where a difference comes from."""

from dataclasses import replace

from surefoot.costs.ledgers import ledger_of
from surefoot.records.event import Event, append_event
from surefoot.records.plan import Plan, RunCost
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.records.step_time import Interval, StepTime
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Peak, Usage
from surefoot.reports.html import difference_text

MIB = 2**20
PEAK = Peak(16 * MIB, "backward", "head", "aten.mm.default")
USAGE = Usage(
    Tally.of([Account("memory/activations/a", 10 * MIB, "bytes"), Account("memory/activations/b", 6 * MIB, "bytes")]),
    PEAK,
    {"backward": PEAK},
)
PLAN = Plan("gpt", "", {}, 10, 100, 1, 5, steady=USAGE, checkpoint_bytes=32 * MIB)
PROFILE = Profile("gpt", {}, "cpu", 10, USAGE, USAGE, 1, (1.0,), Tally(), allocated_peak_bytes=16 * MIB)


def entry(ledger, account: str):
    return next(each for each in ledger.entries if each.account == account)


def test_what_agrees_needs_no_words():
    ledger = ledger_of(PLAN, PROFILE)
    assert ledger.disagreements == ()
    assert entry(ledger, "peak/backward").agrees
    assert entry(ledger, "step/seconds").predicted is None


def test_a_difference_names_the_module_that_makes_it():
    more = Usage(USAGE.tally + Tally.of([Account("memory/activations/b", MIB, "bytes")]), PEAK, {"backward": PEAK})
    off = entry(ledger_of(PLAN, replace(PROFILE, steady=more)), "memory/activations")
    assert (off.agrees, off.attribution) == (False, "b 1.00 MiB")


def test_another_peak_of_a_phase_names_both_operators():
    moved = Usage(USAGE.tally, PEAK, {"backward": Peak(17 * MIB, "backward", "body", "aten.gelu.default")})
    off = entry(ledger_of(PLAN, replace(PROFILE, steady=moved)), "peak/backward")
    assert off.attribution == "planned in head after aten.mm.default; measured in body after aten.gelu.default"


def test_the_allocator_may_differ_by_two_percent_and_no_more():
    near = ledger_of(PLAN, replace(PROFILE, allocated_peak_bytes=round(16.3 * MIB)))
    assert near.disagreements == ()
    noted = replace(PLAN, assumptions=("no workspace inside 3 kernels too large to try",))
    off = entry(ledger_of(noted, replace(PROFILE, allocated_peak_bytes=17 * MIB)), "allocated/peak")
    assert off.attribution == "backward of head, after aten.mm.default"
    assert off.cause == "no workspace inside 3 kernels too large to try"


def test_a_run_that_stopped_early_says_so(tmp_path):
    run = Run(str(tmp_path), "gpt", "", "gpt", {}, "interrupted", 10, "cpu", "2.13", steps=3, tokens=300, seconds=6.0)
    ledger = ledger_of(PLAN, run=replace(run, reason="stopped by SIGTERM after step 3"))
    off = entry(ledger, "run/tokens")
    assert (off.predicted, off.measured, off.attribution) == (500, 300, "after step 3")
    assert off.cause == "the run is interrupted. stopped by SIGTERM after step 3"
    assert off.agrees is None
    assert entry(ledger, "run/step seconds").measured == 2.0


def test_seconds_and_dollars_have_two_sides_where_the_plan_knows_the_device(tmp_path):
    cost = RunCost(
        steps=5, tokens=500, devices=8, step_seconds=2.0, evaluation_seconds=0.0, save_seconds=0.0, seconds=10.0,
        goodput=1.0, failures=0.0, save_interval_seconds=None, device_hours=8 * 10 / 3600, dollars=8 * 10 / 3600 * 3.0,
        dollars_per_hour=3.0, kilowatt_hours=None,
    )  # fmt: skip
    plan = replace(PLAN, time=StepTime(2.0, {"forward": 0.5, "backward": 1.5}), cost=cost)
    run = Run(str(tmp_path), "gpt", "", "gpt", {}, "finished", 10, "cuda", "2.13", steps=5, tokens=500, seconds=10.5)
    profile = replace(PROFILE, step_seconds=(2.1,), clock=Tally.of([Account("seconds/backward", 1.9, "seconds")]))
    ledger = ledger_of(plan, profile, run)
    step, of_run, dollars = (entry(ledger, name) for name in ("step/seconds", "run/step seconds", "run/dollars"))
    assert (step.predicted, step.measured, step.agrees) == (2.0, 2.1, True)
    assert (of_run.predicted, of_run.measured, of_run.agrees) == (2.0, 2.1, True)
    assert (dollars.predicted, dollars.measured) == (cost.dollars, 10.5 / 3600 * 8 * 3.0)
    assert entry(ledger, "seconds/backward").agrees is False
    slow = replace(run, seconds=14.0)
    assert {each.account for each in ledger_of(plan, run=slow).disagreements} == {"run/dollars", "run/step seconds"}
    wide = replace(
        plan, time=replace(plan.time, interval=Interval(1.5, 3.0, "")), cost=replace(cost, low=0.75, high=1.5)
    )
    assert ledger_of(wide, run=slow).disagreements == ()


def test_early_stopping_that_the_recipe_asked_for_is_no_difference(tmp_path):
    run = Run(str(tmp_path), "gpt", "", "gpt", {}, "finished", 10, "cpu", "2.13", steps=3, tokens=300, seconds=6.0)
    assert {each.account for each in ledger_of(PLAN, run=run).disagreements} == {"run/steps", "run/tokens"}
    append_event(run.events, Event(3, "stopped-early", "2 evaluations were no better than loss 1 at step 1", "now"))
    ledger = ledger_of(PLAN, run=run)
    assert ledger.disagreements == ()
    assert entry(ledger, "run/steps").cause.startswith("stopped early, as the recipe asked: 2 evaluations")


def test_tiny_amounts_differ_by_nothing_that_means_something(tmp_path):
    plan = replace(PLAN, checkpoint_bytes=2775, time=StepTime(1e-4))
    run = Run(str(tmp_path), "gpt", "", "gpt", {}, "finished", 10, "cpu", "2.13", steps=5, tokens=500, seconds=2.5e-3)
    saved = tmp_path / "checkpoints" / "step-00000005"
    saved.mkdir(parents=True)
    (saved / "state").write_bytes(bytes(55_000))
    ledger = ledger_of(plan, run=run)
    checkpoint = entry(ledger, "checkpoint/bytes")
    assert (ledger.disagreements, checkpoint.cause) == ((), "")
    assert difference_text(checkpoint) == "+51.00 KiB"
    assert difference_text(entry(ledger, "run/step seconds")) == "+400 us"


def test_bytes_moved_have_two_sides_or_none():
    moved = Tally.of([Account("moved/forward/a", 5 * MIB, "bytes")])
    profile = replace(PROFILE, counted=moved)
    assert not [each for each in ledger_of(PLAN, profile).entries if each.account.startswith("moved")]
    plan = replace(PLAN, steady=replace(USAGE, tally=USAGE.tally + moved))
    assert entry(ledger_of(plan, profile), "moved/forward").agrees
