"""Command lines: made up from surefoot's own commands and options, with good and hostile values.

Commands, options and their types are read from the program itself, so a new option is tried without being listed
here. Where a value is a good one, sizes are small and steps few. A line must end within its time with 0, 1, 2 or 75,
without a traceback, and leave files only where it was told to.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from damaged import mutations
from damaged.asking import Place, ask
from damaged.runs import Runs
from damaged.trying import Verdict, ending

SCRIPT = '''"""A script of three steps."""
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.ones(8, 4) * (step + 1)
    loss = ((model(x) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
'''
CONFIG = """{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 8, "n_head": 2,
"n_positions": 16, "vocab_size": 32}
"""
RECIPES: dict[str, list[str]] = {
    "regression": ["samples=64", "max_steps=2"],
    "cruncher": ["width=8", "layers=2", "samples=64", "max_steps=2"],
    "sentiment": ["max_steps=2"],
    "gpt": [
        "layers=1",
        "width=8",
        "heads=2",
        "context=8",
        "micro_batch_size=2",
        "global_batch_tokens=16",
        "max_steps=2",
    ],
    "small.py": ["max_steps=2"],
    "small.py:small": ["width=4", "max_steps=2"],
}
STRANGE_RECIPES = [
    "", "nothing", "os:system", "os:path", "small.py:nothing", "small.py:points", "nothing.py", "folder", "noise.bin",
    "noise.py", "../..", "/etc/passwd", "surefoot.recipes.gpt:gpt", "surefoot.recipes.gpt:GPT", ":", "a:b:c", "hf",
    "fashion", "broken.py", "raises.py", "wrong.py", "🦶", "x" * 5000, ".", "small", "-", "\x1b[31m",
]  # fmt: skip
KNOBS = [
    "max_grad_norm=-1", "max_grad_norm=nan", "max_grad_norm=0", "lr=nan", "lr=-1", "lr=inf", "lr=1e400", "lr=abc",
    "lr=", "lr", "=", "==", "lr=0.1=2", "precision=bf16-mixed", "precision=64-true", "precision=",
    "precision=16-mixed", "micro_batch_size=0", "micro_batch_size=-4", "micro_batch_size=1.5",
    "micro_batch_size=99999999999999999999", "global_batch_tokens=0", "global_batch_tokens=7",
    "global_batch_tokens=-16", "max_steps=0", "max_steps=-1", "max_steps=nan", "max_steps=1.5", "max_tokens=0",
    "max_tokens=-5", "max_tokens=16", "seed=-1", "seed=99999999999999999999999", "seed=abc", "seed=1.5", "workers=-1",
    "workers=abc", "workers=1", "evaluate_every=0", "evaluate_every=-1", "evaluate_every=1", "evaluation_batches=0",
    "evaluation_batches=-1", "save_every=0", "save_every=-3", "save_every=abc", "save_every=1", "save_every=10s",
    "save_every=nan s", "save_every=", "keep_last=0", "keep_last=-1", "nonfinite=skip", "nonfinite=abc",
    "rewind=maybe", "rewind=true", "decay=all", "decay=abc", "recompute=all", "recompute=abc", "recompute=budget:",
    "recompute=-1", "compile=abc", "compile_mode=abc", "compile_dynamic=2", "dp_replicate=0", "dp_replicate=-1",
    "dp_replicate=2", "dp_shard=7", "dp_shard=0", "tp=2", "tp=0", "tp=-1", "reshard_after_forward=abc", "density=-1",
    "density=2", "density=nan", "width=0", "width=-1", "width=7", "width=3.5", "width=99999999999999999999", "heads=0",
    "heads=3", "heads=-2", "layers=0", "layers=-1", "context=0", "context=-1", "context=1", "samples=0", "samples=-1",
    "samples=1", "corpus=", "corpus=nothing", "corpus=noise.bin", "corpus=folder", "corpus=/etc/passwd",
    "corpus=small.py", "corpus=../..", "dropout=2", "dropout=nan", "dropout=-1", "hidden=0", "hidden=-1", "slope=nan",
    "nothing=1", "__class__=1", "name=x", "model=x", "loss=1", "optimizer=", "target=os:system", "knobs=1", "about=x",
    "packed=true", "size=8b", "config=hf", "config=folder", "network=abc", "folder=folder", "lr=٣", "lr=1_0",
    "width=0x10", "lr=١", "🦶=1", "a b=c", "lr=[bold]", "lr=\x1b[31m", "-lr=1", "lr = 1", "lr:1", "LR=1",
]  # fmt: skip
PATHS = [
    "", "nothing", "folder", "noise.bin", "empty", "folder/nothing/deep", "/dev/null", "/dev/full", "/proc/self/mem",
    "..", "../..", ".", "run/run.json", "x" * 300, "a/" * 400, "ünïcode", "a\nb", "link", "fifo", "run", "unfinished",
    "corpus", "plan.json", "hf", "small.py", "noise.py", "readonly/file", "run/checkpoints", "\x1b[31m", "~", "$HOME",
    "s3://nowhere/x", "file:///etc", "-",
]  # fmt: skip
WORDS = [
    "abc", "", "🦶", "x" * 5000, "os:system", "[bold]", "\x1b[31m", "-1", "0", "None", "true", "../..", "a=b", "%s",
    "--", "-",
]  # fmt: skip
NUMBERS = [
    "2", "0", "-1", "1", "nan", "inf", "-inf", "1e400", "99999999999999999999999999", "", "abc", "1.5", "0x10", "٣",
    "1_0", "-0",
]  # fmt: skip
SHORT = {"--steps": ["1", "2", "0", "-1", "abc", "1.5", "", "nan"], "--workers": ["1", "2", "0", "-1", "abc"]}
"""Where a large number is a long wait by the user's own wish."""
KNOWN: dict[str, list[str]] = {
    "--on": [
        "h100-sxm", "8xh100-sxm", "here", "cpu", "0xh100-sxm", "-1xh100-sxm", "99999999999xh100-sxm", "xh100", "h100x",
        ",", "a100-sxm-80gb,h100-sxm", "Nxh100-sxm", "4xcpu", "1e3xh100-sxm",
    ],
    "--budget": [
        "memory=76GiB", "memory=1", "memory=-1GiB", "memory=nanGiB", "days=1", "days=-1", "dollars=nan", "dollars",
        "x=1", "memory=", "days=1e400",
    ],
    "--against": [
        "lr=0.2", "run", "plan.json", "unfinished", "nothing", "noise.bin", "folder", "=", "", "small.py", "/dev/null",
        "fifo",
    ],
    "--largest": ["width", "layers", "micro_batch_size", "nothing", "", "samples"],
    "--log": ["tensorboard", "wandb", "mlflow", "nothing", ""],
    "--allow": ["one-batch", "nothing", ""],
    "--tokenizer": [
        "bytes", "bpe:300", "bpe:0", "bpe:-1", "bpe:", "bpe:abc", "bpe:99999999999", "nothing", "noise.bin", "folder",
        "",
    ],
    "--dtype": ["uint16", "uint32", "float32", "object", "", "int8"],
    "--resume": ["auto", "never", "abc"],
    "--hf": ["hf", "folder", "nothing", "noise.bin", "run", ""],
    "DEVICE": ["h100-sxm", "here", "nothing", "", "../..", "🦶"],
    "CLUSTER": ["8xh100-sxm", "h100-sxm", "0xh100-sxm", "abc", "", "1024xh100-sxm", "-3xh100-sxm", "nanxh100-sxm"],
}  # fmt: skip
SLOW = {
    ("hardware", "measure"),
    ("plan", "--fit"),
    ("plan", "--measure"),
    ("train", "--measure"),
    ("profile", "--measure"),
}
"""Half a minute or more where they are understood; drawn seldom, or only with something that is refused."""


@dataclass(frozen=True)
class Command:
    """One command of the program, and what it takes."""

    words: tuple[str, ...]
    parameters: tuple[Any, ...]


def commands() -> list[Command]:
    """Every command that the program has."""
    import typer

    from surefoot.cli.main import app

    return list(_commands(typer.main.get_command(app), ()))


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[Command]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _commands(each, (*words, name))
    else:
        yield Command(words, tuple(command.params))


class CommandLines:
    """Command lines that nobody would type, and some that anybody would."""

    name = "command-lines"

    def __init__(self, place: Place, seconds: float, runs: Runs) -> None:
        self.place, self.seconds, self.runs = place, seconds, runs
        self.commands = commands()
        self.template = place.root / "lines"
        self._build()

    def _build(self) -> None:
        folder, runs = self.template, self.runs.templates
        folder.mkdir()
        shutil.copytree(runs / "finished", folder / "run")
        shutil.copytree(runs / "unfinished", folder / "unfinished")
        shutil.copy(runs / "finished" / "plan.json", folder / "plan.json")
        if (made := self.place.root / "corpora" / "made").exists():
            shutil.copytree(made, folder / "corpus")
        (folder / "folder").mkdir()
        (folder / "folder" / "text.txt").write_text("some words to learn from\n" * 20)
        (folder / "noise.bin").write_bytes(random.Random(0).randbytes(5000))
        (folder / "noise.py").write_bytes(random.Random(1).randbytes(500))
        (folder / "empty").touch()
        (folder / "script.py").write_text(SCRIPT)
        shutil.copy(self.place.work.parent / "small.py", folder / "small.py")
        (folder / "broken.py").write_text("def small(:\n")
        (folder / "raises.py").write_text(
            "from surefoot import Recipe\n\ndef it() -> Recipe:\n    raise ValueError('no')\n"
        )
        (folder / "wrong.py").write_text("from surefoot import Recipe\n\ndef it() -> Recipe:\n    return 7\n")
        (folder / "hf").mkdir()
        (folder / "hf" / "config.json").write_text(CONFIG)
        (folder / "link").symlink_to("nowhere")

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        words = made_up(self.commands, draw)
        mutations.empty_folder(self.place.work)
        shutil.copytree(self.template, self.place.work, symlinks=True)
        os.mkfifo(self.place.work / "fifo")
        answer = ask(self.place, words, seconds=self.seconds)
        kind = "same" if answer.code == 0 else "refused"
        return " ".join(map(repr, words))[:400], [ending(answer) or Verdict(kind, "", answer)]


# ------------------------------------------------------------------------------------------- one line


def made_up(known: list[Command], draw: random.Random) -> list[str]:
    """A command, its arguments and some of its options; now and then a word too much, twice or missing."""
    command = draw.choice(known)
    words = [word for parameter in _arguments(command) for word in _argument(command, parameter, draw)]
    for option in (each for each in command.parameters if each.param_type_name == "option"):
        if option.name != "help" and draw.random() < _share(command, option):
            words += _option(option, draw)
    if draw.random() < 0.15:
        words = _disturbed(words, draw)
    words = [] if "\0" in "".join(words) else words  # no command line can hold it
    if command.words in (("hardware", "measure"), ("validate",)) and "--help" not in words:  # they measure for minutes
        words.append("--nothing")
    return [*command.words, *words]


def _arguments(command: Command) -> list[Any]:
    return [each for each in command.parameters if each.param_type_name == "argument"]


def _share(command: Command, option: Any) -> float:
    slow = any((command.words[-1], word) in SLOW for word in option.opts)
    return 0.02 if slow else 0.9 if option.required else 0.2


def _argument(command: Command, parameter: Any, draw: random.Random) -> list[str]:
    """Values of one argument. Recipes come with knobs that keep them small."""
    name = parameter.name
    if name == "recipe":
        return _recipe(draw)
    if name == "knobs":
        return []
    if draw.random() < 0.05:
        return []
    if name == "script":
        return [draw.choice(["script.py"] * 3 + PATHS)]
    if name == "args":
        return ["--", draw.choice(WORDS)] if draw.random() < 0.2 else []
    good = {"run": "run", "runs": "run", "corpus": "corpus", "paths": "folder"}.get(name)
    if good is not None:
        some = [good if draw.random() < 0.6 else draw.choice(PATHS)]
        return some + ([draw.choice(PATHS)] if name in ("runs", "paths") and draw.random() < 0.3 else [])
    return [draw.choice(KNOWN.get(parameter.metavar or "", WORDS))]


def _recipe(draw: random.Random) -> list[str]:
    if draw.random() < 0.2:
        return [draw.choice(STRANGE_RECIPES), "max_steps=2"]
    name = draw.choice(sorted(RECIPES))
    knobs = list(RECIPES[name])
    fitting = [each for each in KNOBS if each.partition("=")[0] in _known(name)]
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        knobs.append(draw.choice(fitting if draw.random() < 0.8 else KNOBS))
    return [name, *dict.fromkeys(knobs)]


def _known(recipe: str) -> set[str]:
    """The knobs of a recipe. Those of small.py stand in for any file's."""
    from surefoot.recipe.builtin import builtin_recipes
    from surefoot.recipe.knobs import hints_of
    from surefoot.recipe.load import SETTINGS, find_function

    own = hints_of(find_function(recipe)) if recipe in builtin_recipes() else {"width": int, "lr": float}
    return {*SETTINGS, *own}


def _option(option: Any, draw: random.Random) -> list[str]:
    name = draw.choice([*option.opts, *option.secondary_opts])
    if getattr(option, "is_flag", False):
        return [name]
    values = next((KNOWN[each] for each in option.opts if each in KNOWN), None)
    values = values or next((SHORT[each] for each in option.opts if each in SHORT), None) or _by_type(option, draw)
    value = values[0] if draw.random() < 0.5 else draw.choice(values)
    return [f"{name}={value}"] if draw.random() < 0.1 else [name, value]


def _by_type(option: Any, draw: random.Random) -> list[str]:
    # newer versions of typer have a description in place of click's type
    described = getattr(option, "type_descriptor", None)
    kind = repr(getattr(option, "type", None) if described is None else described.annotation).lower()
    if "int" in kind or "float" in kind:
        return NUMBERS
    if "path" in kind:
        return ["new", "new/deep", "out.json", "out.svg", *PATHS]
    return WORDS


def _disturbed(words: list[str], draw: random.Random) -> list[str]:
    how, at = draw.choice(["more", "twice", "less", "swapped"]), draw.randrange(len(words) + 1)
    if how == "more" or not words:
        return [*words[:at], draw.choice([*WORDS, "--nothing", "-x", "--help", "--json=1"]), *words[at:]]
    at %= len(words)
    if how == "twice":
        return [*words[:at], words[at], *words[at:]]
    if how == "less":
        left = [*words[:at], *words[at + 1 :]]
        return left if words[at] != "max_steps=2" else words
    return draw.sample(words, len(words))
