"""Two plans side by side: what was turned, what it changed, and which parts make up the difference."""

from surefoot.costs.plan_changes import changes_between
from surefoot.records.plan import Plan
from surefoot.records.step_time import StepTime
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Peak, Usage
from surefoot.reports.console import as_text
from surefoot.reports.plan_changes import plan_changes_text

MIB = 2**20


def plan(activations: int, *, knobs, seconds: dict[str, float] | None = None, **memory: int) -> Plan:
    amounts = {"memory/activations": activations, **{f"memory/{name}": size for name, size in memory.items()}}
    tally = Tally.of(Account(name, size * MIB, "bytes") for name, size in amounts.items())
    steady = Usage(tally, Peak(peak_bytes=int(tally.total("memory"))))
    time = None if seconds is None else StepTime(sum(seconds.values()), phases=seconds)
    return Plan(
        "r", "", knobs, parameters=10, tokens_per_step=64, micro_batches=1, steps=None, steady=steady, time=time
    )


BEFORE = plan(10, knobs={"layers": 1, "lr": 0.1}, optimizer=5)
AFTER = plan(
    30, knobs={"layers": 2, "lr": 0.1, "new": None, "size": "8b"}, seconds={"forward": 1.0}, optimizer=4, inputs=1
)


def test_what_was_turned_and_what_it_changed():
    found = changes_between(BEFORE, AFTER)
    assert [(each.name, each.before, each.after) for each in found.turned] == [("layers", 1, 2), ("size", None, "8b")]
    changes = {each.account: (each.before, each.after) for each in found.changes}
    assert changes["memory"] == (15 * MIB, 35 * MIB)
    assert changes["memory/inputs"] == (0, MIB)  # an account that the other does not have is empty
    assert changes["seconds"] == (None, 1.0)  # what a plan does not know is not 0
    assert found.reasons == ("memory +20.00 MiB: activations +20.00 MiB, optimizer -1.00 MiB, inputs +1.00 MiB",)


def test_differences_of_parts_add_up_to_that_of_the_whole():
    changes = changes_between(BEFORE, AFTER).changes
    whole = next(each for each in changes if each.account == "memory")
    assert whole.difference == sum(each.difference for each in changes if each.account.startswith("memory/"))


def test_a_plan_against_itself_has_no_difference():
    found = changes_between(AFTER, AFTER)
    assert (found.turned, found.reasons) == ((), ())
    assert {each.difference for each in found.changes} <= {0, None}
    assert "no knob differs" in as_text(plan_changes_text(found))


def test_the_text(golden):
    golden("plan_changes.txt", as_text(plan_changes_text(changes_between(BEFORE, AFTER))))
