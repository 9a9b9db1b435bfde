"""The formats that export writes on request, one line for each; no torch, so that `--help` can list them."""

from collections.abc import Sequence
from dataclasses import dataclass

WEIGHTS, PROGRAM = "safetensors", "pt2"
"""Written by `ways/export.py` itself."""


@dataclass(frozen=True)
class Row:
    """A format by the file that writes and runs it: `exports/formats.py` says what that file defines."""

    module: str
    from_program: bool = False
    """Whether it is made from what torch.export makes."""
    program_sizes: bool = False
    """Whether it takes every size that the program takes."""


FORMATS = {
    "hf": Row("hugging_face"),
    "onnx": Row("onnx_file", from_program=True, program_sizes=True),
    "aoti": Row("aoti", from_program=True, program_sizes=True),
    "gguf": Row("gguf_file"),
    "pte": Row("executorch_file", from_program=True),
}

GGUF = "gguf"
GGUF_KINDS = ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_M")
"""The types that llama.cpp's quantiser makes of a GGUF file, by its own names; the most bits first."""


def format_names() -> str:
    """What `--format` takes, for a sentence."""
    *most, last = PROGRAM, *FORMATS
    return f"{', '.join(most)} or {last}"


def begins_with_program(names: Sequence[str]) -> bool:
    """Whether torch.export is asked for any of these formats; it is without names, too."""
    return not names or any(name == PROGRAM or (name in FORMATS and FORMATS[name].from_program) for name in names)
