"""A merge as text: the folder, and how far it differs from the trained model."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.merged import Merged
from surefoot.units import bytes_text


def merged_text(merged: Merged) -> RenderableType:
    """The folder, what was merged, and the proof."""
    kept = f"; with {', '.join(merged.copied)}" if merged.copied else ""
    return Group(
        Text(f"{merged.folder}: {merged.parameters:,} parameters, {bytes_text(merged.total_bytes)}{kept}"),
        Text(f"merged: {merged.method}"),
        Text(
            f"read back by transformers and compared on {', '.join(merged.inputs)}: largest difference "
            f"{merged.difference:.2g}, tolerance {merged.tolerance:.0e}, relative to the largest output"
        ),
    )
