"""The command `surefoot plan`: plan a step, compare it with another plan or a budget, or search for what fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from surefoot.cli.launch import launch_recipe, launch_script
from surefoot.cli.plan_script import planned_script, refuse_for_script, starts_a_script
from surefoot.cli.shared import (
    RECIPE,
    ConfigOption,
    JsonOption,
    KnobsArgument,
    agreeing,
    devices,
    goes_with,
    load,
    load_other,
    show,
    with_file,
)
from surefoot.errors import BudgetError, RecipeError, known_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from surefoot.recipe.recipe import Recipe
    from surefoot.records.plan import Plan
    from surefoot.records.search import Budget

LIMITS = ("memory", "days", "dollars")


def plan(
    recipe: Annotated[str | None, RECIPE] = None,
    knobs: KnobsArgument = None,
    config: ConfigOption = None,
    hf: Annotated[
        Path | None, typer.Option("--hf", metavar="DIR", help="plan the Hugging Face config.json in this folder")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="GPUS",
            callback=devices,
            help="plan for h100, one of 8xh100, p5.48xlarge or 4xcpu, or 'here'; you need no GPU. With --fit: several, "
            "separated by commas, or Nxh100-sxm for the fewest that fit",
        ),
    ] = None,
    reuse: Annotated[
        bool, typer.Option(help="run only a few of many repeated blocks, if the result is proved to be the same")
    ] = True,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="time each distinct operator call on this machine to predict a step's time"),
    ] = False,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="search for what fits: micro-batch, recompute, sharding; knobs you set stay fixed"),
    ] = False,
    largest: Annotated[
        str | None,
        typer.Option("--largest", metavar="KNOB", help="with --fit: find the largest value of a knob that fits"),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="LIMIT=AMOUNT", help="limits: memory=76GiB, days=14, dollars=2e6"),
    ] = None,
    ci: Annotated[
        bool, typer.Option("--ci", help="exit with 1 if the plan does not fit or exceeds the budget")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="FILE|RUN|KNOBS", help="compare with a saved plan (--json), a run or other knobs"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="also write the plan as one self-contained page")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="print all tables: by kind, phase, module and collective")
    ] = False,
    assumed: Annotated[bool, typer.Option("--assumed", help="print every assumption")] = False,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="also write every allocation for pytorch.org/memory_viz"),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="plan making text instead of training: weights, keys and values, tokens/s")
    ] = False,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="with --serve: texts at a time; default: 1")
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="ARGUMENT", help='a script\'s arguments to compare: "--batch-size 8,16,32"'),
    ] = None,
    largest_argument: Annotated[
        str | None,
        typer.Option(
            "--largest-argument", metavar="ARGUMENT", help='find the largest value that fits: "--batch-size {}"'
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="the updates of a script's run, if it does not say them")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", min=0, help="the epochs of a script's run, if it does not say them")
    ] = None,
    launch: Annotated[
        Literal["slurm"] | None,
        typer.Option("--launch", help="print the job file that trains in this layout, instead of the plan"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Predicts the memory, FLOPs and time of a step, by kind and module, without running it.

    The step runs on tensors that have a shape but no memory, so you can plan a model far larger than this machine.
    `--fit` searches for settings that fit. `--against` shows what differs between two plans.

    Examples:

    `surefoot plan train.py --on rtx-4090 -- --batch-size 8`

    `surefoot plan --on 8xh100-sxm -- torchrun --nproc-per-node 8 train.py`

    `surefoot plan gpt layers=24 width=1024 heads=16 --on h100-sxm`

    `surefoot plan llama size=8b --on 8xh100-sxm --fit`

    `surefoot plan llama size=8b --on h100-sxm --serve --batch 8`
    """
    goes_with("--fit", fit, {"--largest": largest})
    goes_with("--serve", serve, {"--batch": batch})
    if serve and (fit or measure or budget or ci or against or html or snapshot):
        raise typer.BadParameter("--serve plans no training step: use it with --on, --batch and --json only")
    goes_with("--on or --budget", on is not None or budget is not None, {"--ci": ci or None})
    if fit and measure:
        raise typer.BadParameter("--measure times one setting and --fit searches many: use only one of them")
    for name, file in (("--html", html), ("--snapshot", snapshot)):
        if file is not None and fit:
            raise typer.BadParameter(f"{name} writes one plan and --fit searches many: use only one of them")
    if launch and (fit or serve or ci or against or json or tries or largest_argument):
        raise typer.BadParameter(
            "--launch prints a job file: leave out --fit, --serve, --ci, --against, --try and --json"
        )
    if against is not None and (fit or budget):
        raise typer.BadParameter("--against compares two plans: leave out --fit and --budget")
    target, words, limits = _asked(recipe, knobs, hf, budget)
    if starts_a_script(target):
        others = {"--fit": fit, "--largest": largest, "--measure": measure, "--serve": serve, "--against": against}
        refuse_for_script({**others, "--snapshot": snapshot, "--hf": hf, "--config": config})
        found = planned_script([target, *words], on, tries or (), largest_argument, steps, epochs, json=json)
        if found is None:
            return
        if html is not None:
            from surefoot.reports.plan_page import write_plan_page

            write_plan_page(found, html)
        if launch:
            launch_script(found, [target, *words])
            return
        _show(found, limits, partial(_text, tables=tables, assumed=assumed), json=json)
        if ci and not _holds(found, limits):
            raise typer.Exit(1)
        return
    for name, given in (("--try", tries), ("--largest-argument", largest_argument), ("--epochs", epochs)):
        if given:
            raise typer.BadParameter(f"{name} is for a script; a recipe has knobs: use --fit")
    if steps is not None:
        raise typer.BadParameter("--steps is for a script; a recipe has the knob max_steps")
    words = with_file(target, words, config)
    if serve:
        from surefoot.exports.serve import plan_serving
        from surefoot.reports.serving import serving_text

        show(plan_serving(load(target, words), on=on, batch=batch or 1), serving_text, json=json)
        return
    if fit:
        _fit(load(target, words), words, on, limits, largest, ci=ci, json=json)
        return
    from surefoot.ways.plan import plan as way

    written = None if snapshot is None else str(snapshot)
    loaded = load(target, words)
    record = way(loaded, on=on, reuse=reuse, measure=measure, snapshot=written, loader=against is None)
    if html is not None:
        from surefoot.reports.plan_page import write_plan_page

        write_plan_page(record, html)
    if launch:
        launch_recipe(record, target, words, loaded)
        return
    if against is None:
        _show(record, limits, partial(_text, tables=tables, assumed=assumed), json=json)
    else:
        _compare(_kept(against) or way(load_other(target, words, against), on=on, reuse=reuse), record, json=json)
    if ci and not _holds(record, limits):
        raise typer.Exit(1)


def _holds(record: Plan, budget: Budget) -> bool:
    """Whether a plan keeps within all limits."""
    from surefoot.costs.budget import limits_of

    return all(limit.holds for limit in limits_of(record, budget))


def _asked(
    recipe: str | None, knobs: list[str] | None, hf: Path | None, budget: list[str] | None
) -> tuple[str, list[str], Budget]:
    """The target, its knobs and the budget. Limits that follow `--budget memory=76GiB` arrive among the knobs."""
    words = list(knobs or ())
    if hf is not None:
        target, words = "hf", [f"config={hf}", *([recipe] if recipe else []), *words]
    elif recipe is None:
        raise RecipeError("no recipe to plan: name one, or a folder with --hf")
    else:
        target = recipe
    limits = [word for word in words if budget and word.partition("=")[0] in LIMITS]
    return target, [word for word in words if word not in limits], budget_of([*(budget or ()), *limits])


def budget_of(words: list[str]) -> Budget:
    """The limits that `--budget` gives."""
    from surefoot.recipe.knobs import convert, parse_words
    from surefoot.recipe.ranges import Range
    from surefoot.recipe.recipe import UNITS, bytes_of
    from surefoot.records.search import Budget

    given = parse_words(part for word in words for part in word.split())
    for name in given:
        if name not in LIMITS:
            raise BudgetError(f"a budget has no limit {name!r}; {known_names(name, LIMITS)}")
    memory = None
    if "memory" in given and (memory := bytes_of(given.pop("memory"))) is None:
        raise BudgetError(f"memory is a number and a unit, such as memory=76GiB; units: {', '.join(UNITS)}")
    more = Range(float, 0, 1e30, above=True)
    return Budget(memory, **{name: more.check(name, convert(name, text, float)) for name, text in given.items()})


def _text(record: Plan, *, tables: bool, assumed: bool) -> RenderableType:
    from surefoot.reports.plan import plan_text

    return plan_text(record, tables=tables, assumed=assumed)


def _show(record: Plan, budget: Budget, text: Callable[[Plan], RenderableType], *, json: bool) -> None:
    """Prints the plan and, if there is a budget, a line for each limit."""
    from rich.console import Group

    from surefoot.records.search import Budget
    from surefoot.reports.budget import limits_text

    if budget == Budget():
        show(record, text, json=json)
        return
    from surefoot.costs.budget import limits_of

    limits = limits_of(record, budget)
    show({"plan": record, "limits": limits}, lambda _: Group(text(record), limits_text(limits)), json=json)


def _compare(before: Plan, after: Plan, *, json: bool) -> None:
    from surefoot.costs.plan_changes import changes_between
    from surefoot.reports.plan_changes import plan_changes_text

    with agreeing("both plans"):
        show(changes_between(before, after), plan_changes_text, json=json)


def _kept(against: str) -> Plan | None:
    """The plan in this file or run directory; None if neither exists."""
    from surefoot.records.codec import from_json, read_plain_file
    from surefoot.records.plan import Plan, read_plan

    path = Path(against)
    if path.is_dir():
        if (found := read_plan(path)) is None:
            raise RecipeError(f"{against} holds no plan; `surefoot train` and `surefoot profile --run` write one")
        return found
    if not path.is_file():
        if "=" not in against:
            raise RecipeError(f"{against} is not a file, a run directory or a knob such as layers=12")
        return None
    try:
        return from_json(Plan, read_plain_file(path))
    except ValueError as error:
        raise RecipeError(f"{against} is not a plan printed by `surefoot plan --json`: {error}") from error


def _fit(
    loaded: Recipe, words: list[str], on: str | None, budget: Budget, largest: str | None, *, ci: bool, json: bool
) -> None:
    from surefoot.planning.fit.search import what_fits
    from surefoot.reports.search import search_text

    names = on.split(",") if on else None
    fixed = {word.partition("=")[0] for word in words}
    record = what_fits(loaded, on=names, budget=budget, fixed=fixed, largest=largest)
    show(record, search_text, json=json)
    if ci and not record.answers:
        raise typer.Exit(1)
