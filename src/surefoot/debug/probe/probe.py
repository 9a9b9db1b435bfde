"""probe: experiments on an unchanged script: each runs it again with one thing changed, and says what responds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from surefoot.debug.probe.order import Change, Order, Ran, Roles
from surefoot.debug.probe.results import PERMUTED, Results, Verdict, name_of
from surefoot.debug.probe.runs import Answer, Runs, runs
from surefoot.debug.probe.verdicts import augmentation, evaluation, one_batch, pairs, parts, samples, seeds, terms
from surefoot.errors import RunError
from surefoot.recipe.run_script import no_script
from surefoot.records.finding import Findings
from surefoot.records.probed import Probed

UPDATES = 200
"""Of the whole run, if the script makes so many."""
OF_PAIRS = 100
"""Of the runs with permuted targets: more, and wrong pairs are learned by heart."""
LOOK = 12
OTHER_SEED = 1000
OVERHEAD = 1.8
"""What evaluations and their copies add to the updates: between 1.3 and 2.3 on the scripts it was measured on."""
CONTROLS = (Change("none"), Change("none"))
VERDICTS = (
    evaluation.evaluation,
    pairs.pairs,
    parts.parts,
    samples.samples,
    one_batch.one_batch,
    augmentation.augmentation,
    terms.terms,
    seeds.seeds,
)
CHECKS = (
    "evaluation-at-chance",
    "metric-below-chance",
    "nothing-learned-from-pairs",
    "unused-part-of-input",
    "samples-mix",
    "loss-and-metric-disagree",
    "target-stays-where-it-was",
    "loss-term-without-effect",
)
OF_COPIES = 8.0
"""CPU seconds that the copies of an evaluation may always take, and half of what all runs are expected to take."""
Tell = Callable[[str], object]


def probe(
    script: str,
    args: Sequence[str] = (),
    *,
    updates: int = UPDATES,
    jobs: int = 1,
    tell: Tell = lambda text: None,
    called: str = "",
) -> Probed:
    """Runs a script several times, each time with one thing changed, and says what its training responds to.

    `updates` is the most that a run makes before its last evaluation; `jobs` is how many run at once, each on one
    thread. `tell` hears the expected cost before the runs begin, and the answer names the script as it is `called`. The
    script writes nothing outside of folders of ours.
    """
    if not Path(script).is_file():
        raise RunError(no_script(script))
    with runs(jobs) as started:
        order = Order("look", os.path.abspath(script), "", tuple(args), LOOK, looks=True)
        look = started.start(order).result().ran
        if not look.updates:
            raise RunError(_no_training(called or script, look))
        expected = _expected(look, updates)
        tell(_cost(look, updates, expected, jobs))
        known = replace(order, looks=False, roles=look.roles, modules=look.modules)
        results = _all(started, replace(known, copy_seconds=max(OF_COPIES, expected / 2)), look, updates)
        return _probed(called or script, results, started, expected)


def probe_recipe(target: str, knobs: Sequence[str] = (), *, jobs: int = 1, tell: Tell = lambda text: None) -> Probed:
    """Probes a recipe: its steps on batches of its data, with its evaluation after each pass."""
    loop = str(Path(__file__).with_name("recipe_loop.py"))
    return probe(loop, (target, *knobs), jobs=jobs, tell=tell, called=target)


def _no_training(script: str, look: Ran) -> str:
    why = f": {look.error}" if look.error else ""
    return (
        f"{script} made no update of an optimizer in this process, so there is nothing to change{why}. If it trains "
        "only with arguments, write them after --"
    )


def _all(started: Runs, order: Order, look: Ran, updates: int) -> Results:
    """The runs whose results every verdict needs, then those that depend on them."""
    two = look.facts.get("optimizers", 1) > 1
    copies = _copies(look)
    whole_run = replace(order, name="whole run", updates=updates, evaluates=True, copies=copies)
    base = started.start(replace(whole_run, measures_terms=not two))
    seed = started.start(replace(order, name="another seed", updates=OF_PAIRS, seed=OTHER_SEED))
    fixed = None if two else started.start(replace(order, name="fixed", updates=OF_PAIRS, train="fixed"))
    again = order.roles.loader and order.roles.named("loader", "target") and not two
    repeats = replace(order, updates=max(OF_PAIRS, updates // 2), evaluates=True, train="one batch", copies=copies[:22])
    one = started.start(replace(repeats, name="one batch")) if again else None
    frozen = [
        started.start(replace(order, name=f"frozen {number}", updates=updates, train=f"frozen {number}"))
        for number in ((1, 3) if not augmentation.applies(Results(look)) else ())
    ]
    whole = base.result()
    results = Results(
        look,
        whole.ran,
        whole.copies,
        seed.result().ran,
        _ran(fixed),
        frozen=tuple(each.result().ran for each in frozen),
    )
    if one is not None:
        results = replace(results, one_batch=one.result().ran, one_batch_copies=one.result().copies)
    return _with_shifts(started, order, results)


def _ran(future: Future[Answer] | None) -> Ran | None:
    return None if future is None else future.result().ran


def _with_shifts(started: Runs, order: Order, results: Results) -> Results:
    """If nothing was learned from the pairs: the runs that tell whether they are shifted by one."""
    if pairs.pairs(results).finding is None or order.roles.entry != "loader":
        return results
    shifts = {
        shift: started.start(replace(order, name=f"shift {shift:+d}", updates=OF_PAIRS, train=f"shift {shift:+d}"))
        for shift in (1, -1)
    }
    return replace(results, shifted={shift: each.result().ran for shift, each in shifts.items()})


def _copies(look: Ran) -> tuple[Change, ...]:
    """What copies of the last evaluation undergo, the most telling first."""
    permuted = tuple(Change("targets", seed=number) for number in range(PERMUTED))
    return (*CONTROLS, *permuted, Change("sample"), *parts.planned(look))


def _expected(look: Ran, updates: int) -> float:
    """CPU seconds, if the script makes all updates of every run: a start for each, its updates, and evaluations."""
    each = look.facts.get("update_seconds", 0.0)
    start = max(0.0, look.cpu_seconds - LOOK * each)
    count = updates + OF_PAIRS + (0 if look.facts.get("optimizers", 1) > 1 else OF_PAIRS)
    started = 3
    if look.roles.named("loader", "target"):
        count, started = count + max(OF_PAIRS, updates // 2), started + 1
    if not augmentation.applies(Results(look)):
        count, started = count + 2 * updates, started + 2
    return round(started * start + OVERHEAD * count * each, 1)


def _cost(look: Ran, updates: int, expected: float, jobs: int) -> str:
    each = look.facts.get("update_seconds", 0.0)
    return (
        f"about {expected:.0f} CPU seconds: runs of up to {updates} updates at {1000 * each:.1f} ms, "
        f"{jobs} at once, and copies of the last evaluation"
    )


def _probed(script: str, results: Results, started: Runs, expected: float) -> Probed:
    verdicts: list[Verdict] = [verdict(results) for verdict in VERDICTS]
    found = tuple(each.finding for each in verdicts if each.finding is not None)
    roles = results.roles
    base = results.base
    return Probed(
        script=script,
        updates=base.updates if base is not None else 0,
        runs=started.count,
        copies=started.copies,
        expected_cpu_seconds=expected,
        cpu_seconds=round(started.cpu_seconds, 1),
        inputs=_names(roles, roles.inputs_enter, "input", "both"),
        targets=_names(roles, roles.entry, "target"),
        experiments=tuple(each.experiment for each in verdicts),
        findings=_marked(Findings(script, CHECKS, found), script),
        notes=tuple(_notes(results)),
    )


def _marked(found: Findings, script: str) -> Findings:
    """The findings with the lines of the script, which are read by code that loads torch: only if there are any."""
    if not found.findings:
        return found
    from surefoot.checks.marks import marked

    return marked(found, script)


def _names(roles: Roles, entry: str, *kinds: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(path, roles, entry) for path in roles.named(entry, *kinds)))


def _notes(results: Results) -> list[str]:
    roles, base = results.roles, results.base
    notes = []
    if results.look.facts.get("workers"):
        notes.append("loaders read in the process itself, without workers")
    if roles.entry == "operation":
        notes.append("no part of a batch is a target alone: targets are the constants that meet the model's outputs")
    if roles.named("loader", "none"):
        names = ", ".join(name_of(path, roles, "loader") for path in roles.named("loader", "none"))
        notes.append(f"reach no loss: {names}")
    if base is not None and not base.evaluations and not base.error:
        notes.append(
            "an evaluation is a pass over another loader than that of training, or a call of the model without "
            "gradients after an update; there was none"
        )
    if base is not None and base.no_copies:
        notes.append(base.no_copies)
    return notes
