"""Two runs compared, as text."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.records.compared import Compared, PartedAt, Replayed, Scripts, Unlike
from surefoot.units import counted

_CAUSES = {
    "batch": "the batch differs",
    "parameters": "the parameters before the step differ",
    "arithmetic": "only the arithmetic differs",
    "update": "only the update differs",
    "none": "no difference in the replay",
}
_IN = {"forward": "forward", "loss": "the loss", "backward": "backward", "evaluate": "a forward without gradients"}


def compared_text(compared: Compared) -> RenderableType:
    """One line if the runs agree; else where they part, how they were made, and what replaying the step showed."""
    how = "bit for bit" if not compared.tolerance else f"within {compared.tolerance:g}"
    asked = f"{counted(compared.steps, 'step')} compared {how} ({compared.why})"
    if compared.difference is None:
        near = f"; largest difference {compared.largest:.2g}" if compared.tolerance else ""
        return Text(f"{compared.first} and {compared.second} agree: {asked}{near}")
    parts: list[RenderableType] = [
        Text(
            f"{compared.first} and {compared.second} differ from step {compared.difference.step} on", style="bold red"
        ),
        Text(asked, style="dim"),
        _table(compared, f"step {compared.difference.step}", compared.difference.fields),
    ]
    if compared.unlike:
        parts.append(_table(compared, "made with", compared.unlike))
    else:
        parts.append(Text("\nboth were made alike: same recipe, settings, data, versions and machine"))
    if compared.replayed is not None:
        parts += _replayed(compared, compared.replayed)
    elif compared.not_replayed:
        parts.append(Text(f"\nThe step was not replayed: {compared.not_replayed}", style="yellow"))
    return Group(*parts)


def scripts_text(scripts: Scripts) -> RenderableType:
    """One line if two scripts compute the same; else the first update, module, operator and lines that differ."""
    if not scripts.first:
        return Text(f"{scripts.second}: {counted(scripts.updates, 'update')} traced")
    if scripts.agrees:
        return Text(f"{scripts.first} and {scripts.second} agree: {counted(scripts.updates, 'update')}, bit for bit")
    return Group(
        Text(f"{scripts.first} and {scripts.second} differ from update {scripts.step} on", style="bold red"),
        Text(f"update {scripts.step}: {_CAUSES[scripts.cause]}", style="bold"),
        Text(scripts.said),
        *map(Text, _parted(scripts, scripts.parted) if scripts.parted is not None else ()),
    )


def _table(compared: Compared, title: str, fields: tuple[Unlike, ...]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in (title, compared.first, compared.second):
        table.add_column(column, overflow="fold")
    for each in fields:
        table.add_row(each.what, each.first, each.second)
    return Padding(table, (1, 0, 0, 0), expand=False)


def _replayed(compared: Compared, replayed: Replayed) -> Iterator[RenderableType]:
    yield Text(f"\nreplayed step {replayed.step}: {_CAUSES[replayed.cause]}", style="bold")
    if replayed.step != compared.difference.step:  # type: ignore[union-attr]
        yield Text(f"the logs part only later: the update of step {replayed.step} shows in the next loss", style="dim")
    yield Text(replayed.said)
    if replayed.parted is not None:
        yield from map(Text, _parted(compared, replayed.parted))
    taken = counted(replayed.step - replayed.from_step, "step")
    yield Text(
        f"both replayed from step {replayed.from_step}, {taken}, in one process; {_fidelity(compared, replayed)}",
        style="dim",
    )


def _parted(compared: Compared | Scripts, parted: PartedAt) -> Iterator[str]:
    module = f"module `{parted.module}`, " if parted.module else "outside of any module, "
    by = (
        ""
        if parted.largest is None
        else f": by at most {parted.largest:.3g}, {parted.relative:.2g} of the largest value"
    )
    yield f"first in {_IN.get(parted.phase, parted.phase)}: {module}operator `{parted.operation}`{by}"
    lines = dict.fromkeys(filter(None, (parted.first_line, parted.second_line)))
    if lines:
        yield f"  at {' and '.join(lines)}"
    for run, only in ((compared.first, parted.only_first), (compared.second, parted.only_second)):
        if only:
            yield f"  before that, only {run} runs {', '.join(only)}"


def _fidelity(compared: Compared, replayed: Replayed) -> str:
    """Whether the replay reproduces the logs."""
    unlike = [run for run, same in zip((compared.first, compared.second), replayed.as_logged, strict=True) if not same]
    if not unlike:
        return "both gave the numbers of their logs, bit for bit"
    return f"the numbers are not bit for bit those that {' and '.join(unlike)} logged"
