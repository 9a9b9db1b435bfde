"""A sweep as text: the best trial, then all of them, best first."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.sweep import Sweep, SweepTrial
from surefoot.reports.parts import table_of
from surefoot.units import amount_text, bytes_text, counted, knobs_text, seconds_text


def sweep_text(sweep: Sweep) -> RenderableType:
    """The answer in a line, then a table."""
    table = table_of(*columns(sweep))
    for each in sweep.ranked():
        table.add_row(*cells(sweep, each))
    style = "bold" if sweep.winner is not None else "bold red"
    return Group(Text(headline(sweep), style=style), table, *(Text(each) for each in notes(sweep)))


def headline(sweep: Sweep) -> str:
    """What was best, and how many trials ended how."""
    states = Counter(each.state for each in sweep.trials)
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    winner = sweep.winner
    if winner is None:
        return f"{sweep.target}: no trial finished; {told or 'none was made'}"
    return f"{sweep.target}: {sweep.metric} {winner.value:.6g} with {knobs_text(winner.knobs)}; {told}"


def columns(sweep: Sweep) -> list[str]:
    priced = any(each.dollars is not None for each in sweep.trials)
    timed = any(each.days is not None for each in sweep.trials)
    names = dict.fromkeys(name for each in sweep.trials for name in each.knobs)
    return [
        "trial",
        *names,
        sweep.metric,
        "steps",
        "took",
        "planned memory",
        *(["planned time"] if timed else []),
        *(["planned dollars"] if priced else []),
        "state",
    ]


def cells(sweep: Sweep, trial: SweepTrial) -> list[str]:
    """One row of the table."""
    made = {
        "trial": str(trial.number),
        **{name: knobs_text({name: value}).partition("=")[2] for name, value in trial.knobs.items()},
        sweep.metric: "-" if trial.value is None else f"{trial.value:.6g}",
        "steps": str(trial.steps) if trial.run else "-",
        "took": seconds_text(trial.seconds) if trial.run else "-",
        "planned memory": "-" if trial.memory_bytes is None else bytes_text(trial.memory_bytes),
        "planned time": "-" if trial.days is None else amount_text(trial.days, "days"),
        "planned dollars": "-" if trial.dollars is None else amount_text(trial.dollars, "dollars"),
        "state": trial.state + (f", {trial.reason}" if trial.reason.startswith("as trial") else ""),
    }
    return [made.get(name, "-") for name in columns(sweep)]


def notes(sweep: Sweep) -> Iterator[str]:
    """Why trials did not run, each reason once; and where the best one is."""
    reasons: dict[str, list[int]] = {}
    for each in sweep.trials:
        if each.reason and not each.reason.startswith("as trial"):
            reasons.setdefault(f"{each.state}: {each.reason}", []).append(each.number)
    for reason, numbers in reasons.items():
        yield f"trial {', '.join(map(str, numbers))} {reason}"
    if sweep.winner is not None:
        yield f"the best: {sweep.winner.run}"


def trial_line(sweep_trial: SweepTrial, metric: str) -> str:
    """What became of a trial, in a line."""
    value = "" if sweep_trial.value is None else f"  {metric} {sweep_trial.value:.6g}"
    why = f": {sweep_trial.reason}" if sweep_trial.reason else ""
    ran = f" after {counted(sweep_trial.steps, 'step')}" if sweep_trial.run else ""
    return f"trial {sweep_trial.number}  {knobs_text(sweep_trial.knobs)}{value}  {sweep_trial.state}{ran}{why}"
