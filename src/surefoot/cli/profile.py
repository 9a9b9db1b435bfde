"""The command `surefoot profile`: measure a few steps against the plan, or time two recipes in turns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import (
    ConfigOption,
    JsonOption,
    KnobsArgument,
    RecipeArgument,
    TrustOption,
    goes_with,
    load,
    load_other,
    rank,
    rank_count,
    show,
    with_file,
)

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe


def profile(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    config: ConfigOption = None,
    steps: Annotated[int, typer.Option(min=1, help="how many steps to time; with --against, rounds (at least 15)")] = 5,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN|KNOBS", help="compare with a run's recipe or other knobs, in turns"),
    ] = None,
    trust_run: TrustOption = False,
    run: Annotated[
        Path | None, typer.Option("--run", "--dir", metavar="DIR", help="write the profile into this run directory")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="also predict the seconds of a step: time each distinct operator once")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="write the trace for Perfetto or chrome://tracing")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measures a few real steps: where time and memory went, and how they compare with the plan.

    With `--against`, it times both sides in turns and reports the difference with its confidence interval.

    Examples:

    `surefoot profile gpt precision=bf16-mixed`

    `surefoot profile gpt compile=whole --against compile=off`
    """
    goes_with("--against", against is not None, {"--trust-run": trust_run or None})
    knobs = with_file(recipe, knobs, config)
    loaded = load(recipe, knobs)
    if against is not None:
        _compare(loaded, recipe, knobs, against, steps, trust_run=trust_run, json=json)
        return
    from surefoot.costs.ledgers import ledger_of
    from surefoot.records.plan import read_plan, write_plan
    from surefoot.records.profile import write_profile
    from surefoot.reports.profile import profile_text
    from surefoot.ways.plan import plan as plan_way
    from surefoot.ways.profile import profile as way
    from surefoot.world.this_machine import present

    if measure and rank_count() > 1:
        raise typer.BadParameter("--measure predicts the seconds of one process: leave it out under torchrun")
    predicted = plan_way(loaded, on=None if measure else present(rank_count()), measure=measure)
    record = way(loaded, timed_steps=steps, trace=str(trace) if trace else None)
    if run is not None and rank() == 0:
        if read_plan(run) is None:
            write_plan(run, predicted)
        write_profile(run, record)
    ledger = ledger_of(predicted, record)
    show(
        {"plan": predicted, "profile": record, "ledger": ledger},
        lambda _: profile_text(record, ledger),
        json=json,
    )


def _compare(
    loaded: Recipe,
    target: str,
    knobs: list[str] | None,
    against: str,
    rounds: int,
    *,
    trust_run: bool,
    json: bool,
) -> None:
    """Times the recipe in turns with the recipe of a run, or with the same recipe and other knobs."""
    from surefoot.reports.profile import comparison_text
    from surefoot.ways.profile import compare as way

    if Path(against).is_dir():
        from surefoot.recipe.builtin import builtin_recipes
        from surefoot.records.profile import read_profile
        from surefoot.records.run import read_run
        from surefoot.training.trust import recipe_of

        kept = read_profile(Path(against)) or read_run(against)
        own = None if kept.target in builtin_recipes() else target
        other = recipe_of(kept, against, own, trust_run=trust_run)
    else:
        other = load_other(target, knobs, against)
    show(way(other, loaded, rounds=max(rounds, 15)), comparison_text, json=json)
