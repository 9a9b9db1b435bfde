"""The graph of autograd behind the loss of a step, as a record."""

from __future__ import annotations

from surefoot.debug.look.modules import Modules, form_of
from surefoot.events.phases import Phases
from surefoot.records.looked import GraphNode, form_text


def graph_of(seen: Modules, phases: Phases) -> tuple[GraphNode, ...]:
    """Every operation behind the loss of the first backward, with the operations whose results it takes."""
    names = {
        id(parameter): prefix + name
        for model, prefix in phases.models.items()
        for name, parameter in model.named_parameters()
    }
    numbers = {node: number for number, (node, _) in enumerate(seen.graph)}
    found = []
    for node, module in seen.graph:
        leaf = getattr(node, "variable", None)  # of a node that adds up the gradient of a leaf
        found.append(
            GraphNode(
                operation=node.name(),
                module=module,
                takes=tuple(numbers[each] for each, _ in node.next_functions if each is not None),
                leaf="" if leaf is None else f"{names.get(id(leaf), 'a leaf')} {form_text(form_of(leaf))}",
            )
        )
    return tuple(found)
