"""An evaluation as text: one row of figures for each data set."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.evaluation import Evaluation
from surefoot.reports.parts import table_of, title
from surefoot.units import counted, seconds_text


def evaluation_text(evaluation: Evaluation) -> RenderableType:
    """The scores, and how they were measured."""
    scores = evaluation.scores
    figures = {name: [each.figures.get(name) for each in scores] for each in scores for name in each.figures}
    table = table_of("data", "samples", *figures)
    for place, score in enumerate(scores):
        samples = "-" if score.samples is None else f"{score.samples:,}"
        values = (column[place] for column in figures.values())
        table.add_row(score.data, samples, *("-" if each is None else f"{each:.6g}" for each in values))
    ranks = counted(evaluation.ranks, "rank")
    return Group(
        title(evaluation.recipe, evaluation.knobs, evaluation.about),
        table,
        Text(
            f"{evaluation.file}, {evaluation.micro_batch_size} at a time on {ranks} of {evaluation.device}, "
            f"{seconds_text(evaluation.seconds)}"
        ),
        *(Text(line, style="yellow") for line in _notes(evaluation)),
    )


def _notes(evaluation: Evaluation) -> list[str]:
    notes = []
    if evaluation.loss_is_mean:
        notes.append("the loss is a mean of each micro-batch, so it depends on their size; return a sum and a count")
    if any(each.samples is None for each in evaluation.scores):
        notes.append("a stream has no end: only the first evaluation_batches micro-batches count")
    return notes
