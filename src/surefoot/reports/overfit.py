"""An overfit test as text: whether the model learned one batch by heart."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.overfit import Overfit
from surefoot.reports.findings import findings_text
from surefoot.reports.parts import table_of, title
from surefoot.units import counted


def overfit_text(overfit: Overfit) -> RenderableType:
    """The verdict, the attempts, what was switched off, the findings."""
    table = table_of("lr", "steps", "first loss", "last loss", "")
    for attempt in overfit.attempts:
        ends = attempt.losses[:1] + attempt.losses[-1:]
        first, last = (f"{loss:.4g}" for loss in ends) if ends else ("-", "-")
        table.add_row(f"{attempt.lr:.3g}", str(len(attempt.losses)), first, last, attempt.outcome)
    return Group(
        title(overfit.recipe, overfit.knobs),
        _verdict(overfit),
        table,
        *(Text(f"off: {what}, since {why}", style="dim") for what, why in overfit.switched_off.items()),
        Text(),
        findings_text(overfit.findings),
    )


def _verdict(overfit: Overfit) -> Text:
    batch = f"one batch of {counted(overfit.samples, 'sample')}; near zero is a loss of {overfit.target_loss:.3g}"
    return Text.assemble((overfit.verdict, f"bold {'green' if overfit.verdict == 'learned' else 'red'}"), ": ", batch)
