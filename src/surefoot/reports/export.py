"""An export as text: the files it wrote, and how far they differ from the trained model."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.export import Export, Weights
from surefoot.records.units import bytes_text
from surefoot.reports.parts import table_of


def export_text(export: Export) -> RenderableType:
    """The weights and the program, each with its difference to the trained model."""
    table = table_of("file", "size", "difference to the trained model")
    table.add_row(export.weights, bytes_text(export.weights_bytes), f"{export.weights_difference:.2g}")
    table.add_row(export.program, bytes_text(export.program_bytes), f"{export.program_difference:.2g}")
    batch = "a batch of any size" if export.dynamic_batch else "this batch size only"
    return Group(
        table,
        Text(f"read back and compared on {', '.join(export.inputs)}; tolerance {export.tolerance:.0e}, relative"),
        Text(f"the program takes {batch}"),
    )


def weights_text(weights: Weights) -> RenderableType:
    """The files of exported weights, and what they hold."""
    files = Text("\n".join(weights.files))
    size = bytes_text(weights.total_bytes)
    damaged = [Text(f"skipped, because it is damaged: {each}", style="red") for each in weights.passed_over]
    return Group(files, Text(f"{weights.tensors} tensors, {size}, of step {weights.step} of {weights.run}"), *damaged)
