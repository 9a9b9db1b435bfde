"""An export as text: the files it wrote, and how far they differ from the trained model."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.export import Export, Weights
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text, counted


def export_text(export: Export) -> RenderableType:
    """The weights and the program, each with its difference to the trained model."""
    table = table_of("file", "size", "difference to the trained model")
    table.add_row(export.weights, bytes_text(export.weights_bytes), f"{export.weights_difference:.2g}")
    if export.program:
        table.add_row(export.program, bytes_text(export.program_bytes), f"{export.program_difference:.2g}")
    for each in export.formats:
        if not each.reason:
            table.add_row(each.path, bytes_text(each.bytes), f"{each.difference:.2g}")
    if export.adapter:
        table.add_row(export.adapter, bytes_text(export.adapter_bytes), f"{export.adapter_difference:.2g}")
    if export.quantised:
        quantised = export.quantised
        table.add_row(quantised.path, bytes_text(quantised.bytes), f"{quantised.output_difference:.2g}")
    for small in export.quantised_gguf:
        if small.path:
            table.add_row(small.path, bytes_text(small.bytes), f"{small.difference:.2g}")
    inputs = ", ".join(export.inputs)
    return Group(
        table,
        Text(f"read back and compared on {inputs}; tolerance {export.tolerance:.0e}, relative"),
        *(
            Text(line, style=style)
            for line, style in (
                *_about_program(export),
                *_about_formats(export),
                *_about_quantised(export),
                *_about_gguf(export),
            )
        ),
    )


def _about_program(export: Export) -> Iterator[tuple[str, str]]:
    if export.why_no_program:
        yield f"no program: torch.export cannot make one: {export.why_no_program}", "yellow"
    takers = ["the program"] if export.program else []
    takers += [each.format for each in export.formats if each.program_sizes and not each.reason]
    if not takers:
        return
    batch = "a batch of any size" if export.dynamic_batch else "this batch size only"
    limits = {each.dimension: f" of {each.input} is free up to {each.most:,}" for each in export.limits}
    others = sorted({dim for dims in export.free for dim in dims} - {0})
    also = "".join(f"; dimension {dim}{limits.get(dim, ' may have any size too')}" for dim in others)
    yield f"{' and '.join(takers)} {'takes' if len(takers) == 1 else 'take'} {batch}{also}", ""
    for (size, why), places in _fixed(export).items():
        yield f"fixed: {' and '.join(places)} at {size:,}: {why}", ""
    if export.left_out:
        yield f"not among its outputs, because they are no tensors: {', '.join(export.left_out)}", "yellow"


def _fixed(export: Export) -> dict[tuple[int, str], list[str]]:
    """The fixed dimensions by size and reason."""
    found: dict[tuple[int, str], list[str]] = {}
    for each in export.fixed:
        found.setdefault((each.size, each.why), []).append(f"dimension {each.dimension} of {each.input}")
    return found


def _about_formats(export: Export) -> Iterator[tuple[str, str]]:
    for each in export.formats:
        if each.reason:
            yield f"no {each.format}: {each.reason}", "yellow"
        else:
            note = f"; {each.note}" if each.note else ""
            yield f"{each.format}: run in {each.compared}, tolerance {each.tolerance:.0e}{note}", ""


def _about_quantised(export: Export) -> Iterator[tuple[str, str]]:
    made = export.quantised
    if made is None:
        return
    share = f"{bytes_text(export.weights_bytes)} to {bytes_text(made.bytes)}"
    yield (
        f"{made.kind}: {counted(made.layers, 'linear layer')}, {made.parameters / made.of_parameters:.0%} of the "
        + (f"parameters; {share}"),
        "",
    )
    for name, before in made.before.items():
        after = made.after[name]
        yield f"{name} on {made.data}: {before:.6g} before, {after:.6g} after, {after - before:+.3g}", ""
    if not made.data:
        yield (
            "its cost is not known: the recipe has no held-out and no test data; `surefoot evaluate` scores it",
            "yellow",
        )


def _about_gguf(export: Export) -> Iterator[tuple[str, str]]:
    for made in export.quantised_gguf:
        if made.reason:
            yield f"no {made.kind}: {made.reason}", "yellow"
            continue
        types = ", ".join(f"{count} in {name}" for name, count in made.types.items())
        yield (
            f"{made.kind}: by {made.quantiser}; tensors: {types}; {made.rounded_most} is rounded most, by "
            f"{made.rounding:.2g} of its norm",
            "",
        )
        if made.before is None or made.after is None:
            yield f"the perplexity of {made.kind} is not known: {made.no_score}", "yellow"
        else:
            yield (
                f"perplexity in llama.cpp on {made.tokens:,} tokens of {made.data}: {made.before:.6g} in float32, "
                f"{made.after:.6g} in {made.kind}, {made.after / made.before - 1:+.3%}",
                "",
            )


def weights_text(weights: Weights) -> RenderableType:
    """The files of exported weights, and what they hold."""
    files = Text("\n".join(weights.files))
    size = bytes_text(weights.total_bytes)
    damaged = [Text(f"skipped, because it is damaged: {each}", style="red") for each in weights.passed_over]
    after = weights.steps_after
    said = f"{counted(after, 'later step')} of the log {'is' if after == 1 else 'are'} not in these weights"
    later = [Text(said, style="yellow")] if after else []
    held = Text(f"{weights.tensors} tensors, {size}, of step {weights.step} of {weights.run}")
    return Group(files, held, *later, *damaged)
