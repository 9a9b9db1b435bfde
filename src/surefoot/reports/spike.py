"""Why a step of a run stands out, as text."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from surefoot.records.spike import Attribution, Symptom
from surefoot.reports.parts import table_of
from surefoot.units import counted

_CAUSES = {
    "samples": "the samples of this batch",
    "learning-rate": "the learning rate",
    "gradient": "the update before",
    "precision": "the precision",
    "unknown": "not found",
}


def attribution_text(found: Attribution) -> RenderableType:
    """The cause in one sentence, then every change that was tried with the loss that it gave."""
    if found.symptom is None:
        none = "no NaN, and no loss far above those before it"
        return Text(f"{found.run}: nothing stands out in {counted(found.steps, 'step')}: {none}")
    parts: list[RenderableType] = [Text(f"{found.run}: {_symptom(found.symptom)}", style="bold")]
    parts.append(Text.assemble(("cause: ", "bold"), f"{_CAUSES[found.cause]}: {found.said}"))
    if found.remedy:
        parts.append(Text.assemble(("remedy: ", "bold"), found.remedy))
    if found.nonfinite:
        parts.append(Text(found.nonfinite))
    table = table_of("changed", "gradient norm" if found.symptom.in_gradient else "loss", "")
    for each in found.variations:
        table.add_row(each.change, f"{each.loss:.6g}", "ordinary" if each.cured else "")
    parts.append(Padding(table, (1, 0, 0, 0), expand=False))
    exact = "bit for bit as logged" if found.as_logged else "not bit for bit as logged"
    taken = counted(found.symptom.step - found.from_step, "step")
    parts.append(Text(f"replayed from step {found.from_step}, {taken}, {exact}", style="dim"))
    return Group(*parts)


def _symptom(symptom: Symptom) -> str:
    against = "" if symptom.usual is None else f", usual is {symptom.usual:.4g}"
    if symptom.in_gradient:
        return f"the gradients of step {symptom.step} are not finite; its loss is {symptom.loss:.4g}{against}"
    later = ""
    if symptom.shown_at > symptom.step:
        later = f"; it stands out most at step {symptom.shown_at}, and this is where it begins"
    return f"the loss of step {symptom.step} is {symptom.loss:.4g}{against}{later}"
