"""Plans of one script with different arguments, as a table."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.tries import Tried, Tries
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text, seconds_text


def tries_text(tries: Tries) -> RenderableType:
    """The best arguments in one line, then all of them."""
    best = tries.tried[0]
    said = f"{best.arguments or 'as it is'} is best of what fits" if best.fits else "nothing that was tried fits"
    table = table_of("arguments", "fits", "memory", "step", "per second")
    for each in tries.tried:
        table.add_row(each.arguments or "as it is", *_cells(each))
    failed = [Text(f"{each.arguments}: {each.why}", style="red") for each in tries.tried if each.why]
    return Group(Text(f"{tries.script} on {tries.on}: {said}", style="bold"), table, *failed)


def _cells(tried: Tried) -> tuple[str, ...]:
    plan = tried.plan
    if plan is None:
        return "no plan", "", "", ""
    taken = bytes_text(plan.fit.total_bytes if plan.fit is not None else plan.live_bytes)
    fits = "" if plan.fit is None else "yes" if plan.fit.fits else "no"
    if plan.time is None:
        return fits, taken, "", ""
    return fits, taken, seconds_text(plan.time.seconds), f"{1 / tried.seconds_per_unit:,.0f} {plan.unit}s"
