"""The command `surefoot chat`: a conversation with a trained model, in the terminal or from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption
from surefoot.cli.writing import SeedOption, TemperatureOption, TopKOption, TopPOption, WriterArgument
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole, print_text
from surefoot.torch_inside.version import require_torch
from surefoot.units import counted

NEW, END = "/new", "/end"


def chat(
    run: WriterArgument,
    recipe: RecipeOfRunArgument = None,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="a system message, which comes first")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="the most tokens of an answer")] = 500,
    temperature: TemperatureOption = 0.8,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = 0,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Talks with a model, by its chat template. It remembers what was said; answers appear as they are made.

    Each line that you type is a message. `/new` begins a new conversation, `/end` or Ctrl-D ends. Ctrl-C ends an
    answer. Lines from a pipe are messages too: `surefoot chat runs/tuned < questions.txt`.

    Example: `surefoot chat runs/tuned --system "Answer with a number."`
    """
    require_torch()
    from surefoot.exports.chat import Chat
    from surefoot.exports.decode import Sampling

    talk = Chat(
        str(run),
        recipe,
        system=system,
        tokens=tokens,
        sampling=Sampling(temperature, top_k, top_p, seed),
        trust_run=trust_run,
    )
    show = None if json else partial(print_text, end="")
    console = PlainConsole(stderr=True)
    for message in _messages():
        if message == NEW:
            talk.forget()
            console.print("a new conversation", style="dim")
            continue
        before = len(talk.turns)
        made = talk.answer(message, show)
        if json:
            print(to_json(made, indent=None), flush=True)
            continue
        print_text("")
        gone = before + 2 - len(talk.turns)
        forgot = f"; the context is full, so the oldest {counted(gone, 'message')} were forgotten" if gone else ""
        if sys.stdin.isatty() or gone:
            speed = made.tokens / made.seconds
            console.print(
                f"{counted(made.tokens, 'token')}, {speed:.0f} tokens/s{forgot}", style="dim", highlight=False
            )


def _messages() -> Iterator[str]:
    """Lines of the terminal, or of a pipe, until the end. Blank ones are none."""
    typed = sys.stdin.isatty()
    while True:
        if typed:
            print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            return
        if not line or line.strip() == END:
            return
        if line.strip():
            yield line.strip()
