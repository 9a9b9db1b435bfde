"""A search for what fits, as text for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.search import Answer, Search, Trial
from surefoot.reports.budget import limit_line
from surefoot.reports.parts import table_of
from surefoot.units import amount_text, between, bytes_text, count_text, counted, knobs_text, seconds_text


def search_text(search: Search) -> RenderableType:
    """The answers, the choices, and a command for each."""
    planned = counted(len(search.trials), "setting")
    return Group(
        *(_answers(search) if search.answers else _none(search)),
        *_choices(search),
        *(Text(note, style="yellow") for note in search.notes),
        Text(
            f"\n{planned} planned, {sum(each.holds for each in search.trials)} of them fit; nothing was run",
            style="dim",
        ),
    )


def _answers(search: Search) -> list[RenderableType]:
    return [line for answer in search.answers for line in _answer(answer)]


def _answer(answer: Answer) -> list[RenderableType]:
    trial = answer.trial
    each = f" on each of {trial.devices} devices" if trial.devices > 1 else ""
    took = [f"{bytes_text(trial.memory_bytes)}{each}"]
    took += [] if trial.step_seconds is None else [f"{_step(trial)} a step"]
    lines = [Text.assemble((answer.question, "bold"), f": {_setting(trial)} on {trial.on}; {', '.join(took)}")]
    if answer.beyond is not None:
        lines.append(Text(f"  beyond it, {_difference(trial, answer.beyond)}: {_refused(answer.beyond)}"))
    return [*lines, Text(f"  {trial.command}", style="cyan")]


def _none(search: Search) -> list[RenderableType]:
    nearest = min(search.trials, key=lambda each: each.memory_bytes, default=None)
    said = "" if nearest is None else f"; the nearest, {_setting(nearest)} on {nearest.on}: {_refused(nearest)}"
    return [Text(f"{search.recipe}: nothing that was planned fits{said}", style="bold red")]


def _choices(search: Search) -> list[RenderableType]:
    """Memory, time and cost of the settings that no other setting beats, and the command for each."""
    if not search.front:
        return []
    several = len({each.on for each in search.front}) > 1
    table = table_of("to choose from", "micro-batch", "memory", "step", "tokens/s", "run", "costs")
    for each in search.front:
        set_to = knobs_text({name: value for name, value in each.knobs.items() if name != "micro_batch_size"})
        table.add_row(
            " ".join(filter(None, (each.on if several else "", set_to))) or "as it is",
            f"{each.micro_batch_size} x {each.micro_batches}",
            bytes_text(each.memory_bytes),
            _step(each),
            "-" if each.token_seconds is None else count_text(1 / each.token_seconds),
            "-" if each.days is None else amount_text(each.days, "days"),
            "-" if each.dollars is None else amount_text(each.dollars, "dollars"),
        )
    return [Text(), table, Text(), *(Text(each.command, style="cyan") for each in search.front)]


def _step(trial: Trial) -> str:
    if trial.step_seconds is None:
        return "-"
    ends = trial.interval
    told = "" if ends is None else f" ({between(ends.low_seconds, ends.high_seconds, seconds_text)})"
    return f"{seconds_text(trial.step_seconds)}{told}"


def _setting(trial: Trial) -> str:
    return knobs_text({"micro_batch_size": trial.micro_batch_size, **trial.knobs})


def _difference(trial: Trial, beyond: Trial) -> str:
    return knobs_text({name: value for name, value in beyond.knobs.items() if trial.knobs.get(name) != value})


def _refused(trial: Trial) -> str:
    return "; ".join(limit_line(limit) for limit in trial.limits if not limit.holds) or "it fits"
