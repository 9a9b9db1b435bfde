"""A backward meets a graph that an earlier backward has freed."""

import re

from surefoot.records.explanation import Cause, Place, Raised


def cause(raised: Raised) -> Cause | None:
    freed = raised.freed
    if freed is None:
        return None
    by = f" ({', '.join(map(_line, freed.earlier))})" if freed.earlier else ""
    if freed.whole:
        said = f"`{freed.name}` had its backward before{by}. That freed its graph."
        remedy = "Call backward once. If you need it twice, pass `retain_graph=True` to the first one."
        return Cause(said, remedy, freed.earlier)
    if freed.carried:
        said = f"`{freed.name}` comes from an earlier iteration with its graph, which the backward there freed{by}."
        remedy = "Detach what you keep of it for the next: `.detach()`."
        sums = re.compile(rf"{re.escape(freed.name)} (\+=|= .*\b{re.escape(freed.name)}\b)")
        if any(sums.match(each.code) for each in freed.made):
            remedy += " If it is a sum of losses, call backward once after the loop."
        return Cause(said, remedy, (*freed.made, *freed.earlier))
    if freed.name:
        said = f"The graph of `{freed.name}` was freed by an earlier backward{by}, and this loss is made from it too."
        remedy = f"Add the losses and call one backward, or compute `{freed.name}` again. If the first loss should not "
        remedy += f"reach it, use `{freed.name}.detach()` there. `retain_graph=True` keeps the graph, and its memory."
        return Cause(said, remedy, (*freed.earlier, *freed.made))
    return None


def _line(place: Place) -> str:
    return f"line {place.line}"
