"""What of a message the chat template does not write, and which turns of the assistant are empty for that.

A template that knows no tool calls drops them without an error. What is left of such a turn is its end: a model that
learns it learns to answer nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surefoot.errors import DataError

Message = dict[str, Any]
Render = Callable[[list[Message]], str]
SPOKEN = ("tool_calls", "function_call", "reasoning_content", "thinking")
"""What an assistant says besides `content`."""


def without_null(messages: list[Message], render: Render) -> list[Message]:
    """The messages with empty content in place of null, if the template would write null as the word `None`."""
    if all(each["content"] is not None for each in messages):
        return messages
    emptied = [{**each, "content": ""} if each["content"] is None else each for each in messages]
    try:
        written = render(messages)
    except DataError:
        return emptied
    return emptied if written.count("None") > render(emptied).count("None") else messages


def unwritten(messages: list[Message], whole: str, render: Render) -> tuple[str, ...]:
    """The fields of messages without which the template writes the same text, `whole`."""
    present = [name for name in SPOKEN if any(each.get(name) for each in messages)]
    return tuple(name for name in present if _or_none(render, [_without(each, name) for each in messages]) == whole)


def empty_turns(messages: list[Message], ignored: tuple[str, ...]) -> list[int]:
    """The places of the assistant's messages of which the template writes nothing that it says."""
    return [
        number
        for number, each in enumerate(messages)
        if each["role"] == "assistant"
        and is_blank(each["content"])
        and not any(each.get(name) for name in SPOKEN if name not in ignored)
    ]


def muted(messages: list[Message]) -> list[int]:
    """The places of messages that the data itself keeps from the loss: `weight` 0 as OpenAI, or `train` false."""
    return [number for number, each in enumerate(messages) if each.get("weight") == 0 or each.get("train") is False]


def span_of(number: int, messages: list[Message], whole: str, render: Render) -> tuple[int, int]:
    """Where a message stands in the text of all. It may be anywhere in it if the template does not show where."""
    before = _or_none(render, messages[:number]) if number else ""
    after = whole if number + 1 == len(messages) else _or_none(render, messages[: number + 1])
    if before is None or after is None or not (whole.startswith(before) and whole.startswith(after)):
        return 0, len(whole)
    return len(before), len(after)


def is_blank(content: Any) -> bool:
    """Whether content says nothing. It is a text, null, or a list of parts of which some may be no texts."""
    if isinstance(content, list):
        return all(isinstance(each, dict) and is_blank(each.get("text", "not a text")) for each in content)
    return content is None or not str(content).strip()


def _without(message: Message, name: str) -> Message:
    return {key: value for key, value in message.items() if key != name}


def _or_none(render: Render, messages: list[Message]) -> str | None:
    """The text of messages; None if the template refuses them."""
    try:
        return render(messages)
    except DataError:
        return None
