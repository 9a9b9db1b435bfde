"""A run as text: its status, its log from the first step to the last, and its last events."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.reports.data import token_ledger_text
from surefoot.reports.layers import layers_text
from surefoot.reports.live import held_out_text, metric_text
from surefoot.reports.parts import table_of, title
from surefoot.units import counted, seconds_text


def run_text(run: Run) -> RenderableType:
    """What a run did, and its loss from the first step to the last."""
    rows = _shown(run.rows(), 12)
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    table = table_of("step", "loss", "held-out", *metrics, "grad norm", "lr", f"{run.unit}s/s", "data")
    for row in rows:
        table.add_row(
            str(row.step),
            _or_dash(row.loss, ".4f"),
            "-" if row.evaluation_loss is None else held_out_text(run, row.evaluation_loss),
            *(metric_text(row.metrics[name]) if name in row.metrics else "-" for name in metrics),
            _or_dash(row.grad_norm, ".3f"),
            f"{row.lr:.3g}",
            f"{row.tokens / row.seconds:,.0f}",
            f"{row.data_seconds / row.seconds:.0%}",
        )
    events = run.happened()
    return Group(
        title(run.recipe, run.knobs, run.about),
        Text(
            f"{run.status} after {counted(run.steps, 'step')}, {counted(run.tokens, run.unit)}, "
            f"{seconds_text(run.seconds)} on {run.device} with torch {run.torch_version}; "
            f"{counted(run.parameters, 'parameter')}"
        ),
        *([Text(run.reason, style="red")] if run.reason else []),
        *map(Text, run.choices),
        table,
        Text(_loss_line(run)),
        *map(Text, _chosen_lines(run)),
        *layers_text(run.layer_rows()),
        *([] if run.token_ledger is None else [token_ledger_text(run.token_ledger, run.parameters)]),
        *(Text(f"{event.at}  after step {event.step}  {event.kind}: {event.text}") for event in events[-8:]),
        Text(f"run: {run.path}", style="dim"),
    )


def _or_dash(number: float | None, form: str) -> str:
    return "-" if number is None else format(number, form)


def _loss_line(run: Run) -> str:
    if run.first_loss is None or run.last_loss is None:
        return "no step was logged"
    held_out = "" if run.evaluation_loss is None else f", held-out {held_out_text(run, run.evaluation_loss)}"
    left_out = f"; {counted(run.updates_left_out, 'update')} skipped" if run.updates_left_out else ""
    return f"loss {run.first_loss:.4f} -> {run.last_loss:.4f}{held_out}{left_out}"


def _chosen_lines(run: Run) -> list[str]:
    """Which step was best, which one the weights are of, and how they did on test data."""
    lines = []
    best = run.settings.get("best")
    if run.best_step and run.best_value is not None and isinstance(best, str):
        weights = f"; the weights are of step {run.weights_step}" if run.status == "finished" else ""
        lines.append(f"best {best.removeprefix('-')}: {metric_text(run.best_value)} at step {run.best_step}{weights}")
    for name, scores in run.tests.items():
        told = "  ".join(f"{metric} {metric_text(value)}" for metric, value in scores.items())
        lines.append(f"{name}: {told}")
    return lines


def _shown(rows: list[LogRow], most: int) -> list[LogRow]:
    """At most `most` rows: the first, the last, and between them those with an evaluation, if there are any."""
    evaluated = [row for row in rows[1:-1] if row.evaluation_loss is not None]
    return [rows[0], *_spread(evaluated, most - 2), rows[-1]] if evaluated else _spread(rows, most)


def _spread(rows: list[LogRow], most: int) -> list[LogRow]:
    """At most `most` rows, evenly spread, including the first and the last."""
    if len(rows) <= most:
        return rows
    return [rows[round(index * (len(rows) - 1) / (most - 1))] for index in range(most)]
