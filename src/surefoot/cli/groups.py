"""Every command by what a person wants to do, each with its line in the list of commands."""

from typing import Any

GROUPS = {
    "Find bugs": {
        "watch": "Run your own script, unchanged, and find its silent bugs",
        "probe": "Run it again with one thing changed: what does it respond to?",
        "check": "Run a recipe for a few tiny steps and find its silent bugs",
        "look": "Show shapes, activations and gradients of one step",
        "compare": "Find the first step at which two runs differ, and why",
        "replay": "Tell why the loss jumped or became NaN",
        "stuck": "Tell why a training hangs: rank, line, lock",
        "explain": "Tell what held the memory when it ran out",
    },
    "Plan": {
        "plan": "Tell whether it fits, how long it takes, what it costs",
        "hardware": "Look up devices, estimate a run, measure this machine",
    },
    "Train": {
        "init": "Write a first recipe for you to change",
        "data": "Turn text into tokens on disk, and check them",
        "train": "Train a recipe; a killed run resumes bit for bit",
        "sweep": "Try settings; those whose plan does not fit never run",
        "profile": "Measure where time and memory go",
        "report": "Show how a run went, and what to change first",
    },
    "After training": {
        "evaluate": "Score a trained model on held-out data",
        "generate": "Let a trained language model write",
        "chat": "Talk with a model that learned conversations",
        "predict": "Ask a trained model about new inputs",
        "export": "Write weights and a program, compared with the model",
        "merge": "Add trained adapters to the weights",
    },
    "This machine": {
        "doctor": "Report what is installed, and test it in a few seconds",
        "validate": "Compare plans with measurements on this device",
        "mcp": "Answer coding assistants: plan, watch, explain, look, compare",
    },
}
ORDER = [name for names in GROUPS.values() for name in names]


def in_list(name: str) -> dict[str, Any]:
    """How typer shows a command in the list: its line, and the group that it stands in."""
    group = next(group for group, names in GROUPS.items() if name in names)
    return {"short_help": GROUPS[group][name], "rich_help_panel": group}
