"""What the commands that let a model write have in common: whose text it is, and how its tokens are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import within

WriterArgument = Annotated[
    Path, typer.Argument(metavar="RUN|EXPORT", help="a finished run, an export, or a Hugging Face folder")
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", callback=within(0), help="0 takes the likeliest token each time")
]
TopKOption = Annotated[int | None, typer.Option("--top-k", min=1, help="choose among so many tokens")]
TopPOption = Annotated[
    float | None,
    typer.Option(
        "--top-p", callback=within(0, 1, above=True), help="choose among the likeliest that make up this share"
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="of the random choices")]
