"""The command `surefoot generate`: text from the trained language model of a run."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption
from surefoot.cli.writing import SeedOption, TemperatureOption, TopKOption, TopPOption, WriterArgument
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole, print_text
from surefoot.torch_inside.version import require_torch
from surefoot.units import counted


def generate(
    run: WriterArgument,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="the text to go on from, or a message to a chat model")
    ],
    recipe: RecipeOfRunArgument = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="how many tokens to make")] = 200,
    temperature: TemperatureOption = 0.8,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = 0,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="bytes|FILE", help="default: that of the run's corpus or first model"),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="take the prompt as plain text, without a chat template")] = False,
    cache: Annotated[bool, typer.Option(help="keep keys and values from token to token")] = True,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Goes on from a prompt with a trained language model, and prints text as it is made.

    A model that learned conversations answers the prompt: it is put into their chat template as a user's message.

    Example: `surefoot generate runs/first "def main"`
    """
    require_torch()
    from surefoot.exports.decode import Sampling
    from surefoot.exports.generate import generate as way

    show = None if json else partial(print_text, end="")
    made = way(
        str(run),
        prompt,
        recipe,
        tokens=tokens,
        sampling=Sampling(temperature, top_k, top_p, seed),
        tokenizer=tokenizer,
        cached=cache,
        raw=raw,
        trust_run=trust_run,
        echo=show,
        tell=show,
    )
    if json:
        print(to_json(made))
        return
    print_text("")
    how = "; prompt in the chat template, --raw for plain text" if made.chat else ""
    said = f"{counted(made.tokens, 'token')}, {made.tokens / made.seconds:.0f} tokens/s{how}"
    PlainConsole(stderr=True).print(said, style="dim", highlight=False)
