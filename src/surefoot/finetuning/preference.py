"""Preferences: a line of JSON with a better and a worse answer becomes two conversations, alike up to the answer.

    {"prompt": "2 and 2? ", "chosen": "4", "rejected": "5"}
    {"prompt": [MESSAGE, ...], "chosen": [MESSAGE, ...], "rejected": [MESSAGE, ...]}
    {"chosen": [MESSAGE, ...], "rejected": [MESSAGE, ...]}       the messages that both begin with are the prompt

Only the answers bear loss. What the assistant said within the prompt does not.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

from surefoot.errors import DataError
from surefoot.finetuning.chat import ALL_ROLES, Conversation, chat, completion

ANSWERS = ("chosen", "rejected")


def is_preference(line: Any) -> bool:
    """Whether a line has a better and a worse answer."""
    return isinstance(line, dict) and any(name in line for name in ANSWERS)


def preference(line: dict[str, Any], tokenizer: Any) -> tuple[Conversation, Conversation]:
    """The conversation with the better answer, and the one with the worse."""
    if missing := [name for name in ANSWERS if name not in line]:
        raise DataError(f"a line with preferences needs prompt, chosen and rejected; this one has no {missing[0]}")
    answers = [line[name] for name in ANSWERS]
    prompt = line.get("prompt")
    if isinstance(prompt, str) and all(isinstance(each, str) for each in answers):
        made = [completion(prompt, each, tokenizer) for each in answers]
    else:
        made = [chat(messages, tokenizer, silent=shared, tools=line.get("tools"))
                for messages, shared in _messages(prompt, answers)]  # fmt: skip
    chosen, rejected = (_named(each, name) for each, name in zip(made, ANSWERS, strict=True))
    return chosen, rejected


def _messages(prompt: Any, answers: list[Any]) -> list[tuple[list[Any], int]]:
    """For each answer all messages, and how many of them are the prompt."""
    lists = [[each] if isinstance(each, dict) else each for each in answers]
    if not all(isinstance(each, list) for each in lists) or not isinstance(prompt, list | None):
        raise DataError("prompt, chosen and rejected must all be texts, or all lists of messages")
    if prompt is not None:
        return [([*prompt, *each], len(prompt)) for each in lists]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*lists, strict=False))))
    if not shared or shared == min(map(len, lists)):
        raise DataError("without a prompt, chosen and rejected must begin with the same messages and then differ")
    return [(each, shared) for each in lists]


def _named(each: Conversation, answer: str) -> Conversation:
    """The conversation, with the role of what bears loss called after the answer."""
    mark = 2 * ALL_ROLES.index(answer) + 1
    return replace(each, marks=[mark if old & 1 else old for old in each.marks])
