"""The command `surefoot generate`: text from the trained language model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption, within
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole
from surefoot.torch_version import require_torch


def generate(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|EXPORT", help="a finished run, an export, or a Hugging Face folder")
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="the text to go on from")],
    recipe: RecipeOfRunArgument = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="how many tokens to make")] = 200,
    temperature: Annotated[
        float, typer.Option("--temperature", callback=within(0), help="0 takes the likeliest token each time")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="choose among so many tokens")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", callback=within(0, 1, above=True), help="choose among the likeliest that make up this share"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="of the random choices")] = 0,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="bytes|FILE", help="default: that of the run's corpus")
    ] = None,
    cache: Annotated[bool, typer.Option(help="keep keys and values from token to token")] = True,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Goes on from a prompt with a trained language model, and prints text as it is made.

    Example: `surefoot generate runs/first "def main"`
    """
    require_torch()
    from surefoot.exports.decode import Sampling
    from surefoot.ways.generate import generate as way

    is_begun = False

    def show(piece: str) -> None:
        nonlocal is_begun
        print(piece if is_begun else prompt + piece, end="", flush=True)
        is_begun = True

    made = way(
        str(run),
        prompt,
        recipe,
        tokens=tokens,
        sampling=Sampling(temperature, top_k, top_p, seed),
        tokenizer=tokenizer,
        cached=cache,
        trust_run=trust_run,
        tell=None if json else show,
    )
    if json:
        print(to_json(made))
        return
    print("" if is_begun else prompt)
    rate = made.tokens / made.seconds
    PlainConsole(stderr=True).print(f"{made.tokens} tokens, {rate:.0f} tokens/s", style="dim", highlight=False)
