"""Shapes of rows: the spellings of conversations, instructions, preferences and texts that people have.

| shape                 | a row has                                                                                   |
|-----------------------|---------------------------------------------------------------------------------------------|
| messages              | `messages`, each with `role` and `content`; `tools`                                         |
| ShareGPT              | `conversations`, each with `from` and `value`; `system`, `tools`                            |
| instruction           | `instruction`, `input`, `output` as Alpaca; `question` and `answer`; `prompt` and `response` |
| prompt and completion | `prompt` and `completion`                                                                   |
| preference            | `prompt`, `chosen`, `rejected` as texts or messages, or one of the other spellings below     |
| text                  | `text`                                                                                      |

Each becomes `messages`, `prompt` and `completion`, `prompt` with `chosen` and `rejected`, or `text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from surefoot.errors import DataError
from surefoot.records.codec import parse

Line = dict[str, Any]
MESSAGES, SHARE_GPT, INSTRUCTION, COMPLETION, PREFERENCE, TEXT = (
    "messages", "ShareGPT", "instruction", "prompt and completion", "preference", "text",
)  # fmt: skip
_LISTS = ("messages", "conversations", "conversation", "dialog", "dialogue")
_ASKED = ("instruction", "question", "query", "prompt", "problem", "input")
_ANSWER = ("output", "response", "answer", "completion", "solution")
_MORE = ("input", "context")
"""What an instruction is about, besides the instruction."""
_SYSTEM = ("system", "system_prompt")
_PAIRS = (
    ("chosen", "rejected"),
    ("chosen_response", "rejected_response"),
    ("preferred_output", "non_preferred_output"),  # OpenAI
    ("preferred", "dispreferred"),
    ("accepted", "rejected"),
    ("response_j", "response_k"),  # Stack Exchange, paired
)
_LABELLED = (
    ("response_0", "response_1", "better_response_id", 0),  # PKU-SafeRLHF
    ("human_ref_A", "human_ref_B", "labels", 1),  # SHP
)
"""Two answers, and the field whose value says that the first of them is better."""
_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"), "assistant"),
    **dict.fromkeys(("observation", "tool", "function_response", "function-response"), "tool"),
    **{name: name for name in ("system", "function_call")},
}
"""Who a turn of ShareGPT is from."""
_HUMAN = re.compile(r"\n\n(Human|Assistant):")
ALPACA = (
    "Below is an instruction that describes a task{}. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{}\n\n{}### Response:\n"
)
"""How Alpaca was trained (https://github.com/tatsu-lab/stanford_alpaca): for models without a chat template."""


def shaped(row: Any, *, templated: bool) -> tuple[str, Line]:
    """The name of a row's shape, and the line that it becomes.

    `templated`: whether the tokenizer has a chat template, by which instructions become turns.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"a line must be an object with names and values, not {row!r:.60}")
    given = {name: value for name, value in row.items() if value is not None}
    if "completion" in row and isinstance(row.get("label"), bool):
        raise DataError("a completion with a label may be a bad one, which surefoot does not learn from: make pairs")
    if answers := _pair(given):
        return PREFERENCE, _preference(given, *answers, templated)
    if name := next((each for each in _LISTS if _is_turns(given.get(each))), None):
        turns = _turns(given[name])
        shape = SHARE_GPT if any("from" in each for each in turns if isinstance(each, dict)) else MESSAGES
        return shape, {"messages": [*_system(given, turns), *map(message, turns)], **_tools(given)}
    if "prompt" in row and "completion" in row:  # also null, which is an empty answer
        return COMPLETION, _completion(row)
    if answer := next((each for each in _ANSWER if each in given), None):
        return INSTRUCTION, _instruction(given, answer, templated)
    if isinstance(given.get("text"), str):
        return TEXT, {"text": given["text"]}
    raise DataError(
        "a line needs messages, conversations, prompt and completion, instruction and output, chosen and rejected, or "
        f"text; this one has {', '.join(map(str, row)) or 'nothing'}"
    )


# ---------------------------------------------------------------------------------------- messages


def message(turn: Any) -> Line:
    """A turn as transformers' templates take it: `role` and `content`, and what else it has."""
    if not isinstance(turn, dict) or not ("from" in turn or "role" in turn):
        raise DataError(f"a message must have role and content, or from and value, not {turn!r:.80}")
    if "from" not in turn:
        made = dict(turn)
    else:
        if turn["from"] not in _ROLES:
            raise DataError(f"a turn is from {turn['from']!r}, who is none of {', '.join(_ROLES)}")
        made = {key: value for key, value in turn.items() if key not in ("from", "value")}
        made |= {"role": _ROLES[turn["from"]], "content": turn.get("value")}
        if made["role"] == "function_call":
            made |= {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": _json(
                turn.get("value"), "a function call")}]}  # fmt: skip
    if made["role"] == "assistant":
        made.setdefault("content", None)  # OpenAI leaves it out beside tool calls
    if calls := made.get("tool_calls"):
        made["tool_calls"] = [_call(each) for each in _json(calls, "tool_calls")]
    return {key: value for key, value in made.items() if value is not None or key == "content"}


def _call(call: Any) -> Any:
    """A tool call with its arguments as values: OpenAI writes them as text, which templates would quote again."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    of = f"the arguments of the tool call {function.get('name')!r}"
    return {**call, "function": {**function, "arguments": _json(function["arguments"] or "{}", of)}}


def _json(value: Any, what: str) -> Any:
    """A value, or what its text says: columns of tables hold JSON as text."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as problem:
        raise DataError(f"{what} cannot be read: {problem}") from problem


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("[{"))


def _turns(value: Any) -> list[Any]:
    found = _json(value, "the list of messages")
    if not isinstance(found, list):
        raise DataError(f"messages must be a list, not {found!r:.60}")
    return found


def _system(given: Mapping[str, Any], turns: Iterable[Any] = ()) -> list[Line]:
    """The row's own system message, unless the turns have one."""
    has = any(isinstance(each, dict) and "system" in (each.get("role"), each.get("from")) for each in turns)
    text = next((given[name] for name in _SYSTEM if isinstance(given.get(name), str) and given[name]), "")
    return [] if has or not text else [_said("system", text)]


def _tools(given: Mapping[str, Any]) -> Line:
    tools = _json(given.get("tools") or None, "tools")
    return {"tools": tools} if tools else {}


def _said(role: str, content: Any) -> Line:
    return {"role": role, "content": content}


# ---------------------------------------------------------------------------------------- instructions


def _completion(row: Mapping[str, Any]) -> Line:
    prompt, answer = row["prompt"], row["completion"]
    if isinstance(prompt, list):
        turns = [*prompt, *(answer if isinstance(answer, list) else [answer])]
        return {"messages": list(map(message, turns)), **_tools(row)}
    return {"prompt": prompt, "completion": answer}


def _instruction(given: Mapping[str, Any], answer: str, templated: bool) -> Line:
    if not isinstance(given[answer], str):
        raise DataError(f"{answer} must be a text, not {given[answer]!r:.60}")
    asked = _question(given, templated)
    if isinstance(asked, str):
        return {"prompt": asked, "completion": given[answer]}
    return {"messages": [*asked, _said("assistant", given[answer])]}


def _question(given: Mapping[str, Any], templated: bool) -> list[Line] | str:
    """What stands before an answer: as messages, or for a model without a template as Alpaca's text."""
    name = next((each for each in _ASKED if isinstance(given.get(each), str)), None)
    if name is None:
        raise DataError(f"there is an answer, and no {' or '.join(_ASKED)}; the line has {', '.join(map(str, given))}")
    more = next((given[each] for each in _MORE if each != name and isinstance(given.get(each), str)), "").strip()
    system = _system(given)
    if templated:
        past = [_said(*turn) for pair in _history(given) for turn in zip(("user", "assistant"), pair, strict=False)]
        return [*system, *past, _said("user", f"{given[name]}\n\n{more}" if more else given[name])]
    if system or given.get("history"):
        raise DataError("system and history are turns, and the tokenizer has no chat template that could write them")
    with_more = ", paired with an input that provides further context" if more else ""
    return ALPACA.format(with_more, given[name], f"### Input:\n{more}\n\n" if more else "")


def _history(given: Mapping[str, Any]) -> list[Any]:
    """Earlier questions and answers, as pairs."""
    found = given.get("history", [])
    return [pair for pair in found if isinstance(pair, list) and len(pair) == 2] if isinstance(found, list) else []


# ---------------------------------------------------------------------------------------- preferences


def _pair(given: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """The better and the worse answer, if the row has two."""
    for better, worse in _PAIRS:
        if better in given and worse in given:
            return given[better], given[worse]
    for first, second, which, value in _LABELLED:
        if all(name in given for name in (first, second, which)):
            answers = given[first], given[second]
            return answers if given[which] == value else answers[::-1]
    if alone := [name for name in ("chosen", "rejected") if name in given]:
        missing = "rejected" if alone == ["chosen"] else "chosen"
        raise DataError(f"a line with preferences needs prompt, chosen and rejected; this one has no {missing}")
    return None


def _preference(given: Mapping[str, Any], better: Any, worse: Any, templated: bool) -> Line:
    inner = given["input"] if isinstance(given.get("input"), dict) else {}  # OpenAI keeps the prompt there
    given = {**given, **inner}
    answers = {"chosen": better, "rejected": worse}
    before = given["prompt"] if isinstance(given.get("prompt"), list) else None
    listed = next((_turns(given[each]) for each in _LISTS if _is_turns(given.get(each))), None)
    if all(isinstance(each, str) for each in answers.values()):
        before = listed if before is None else before
        return _of_texts(given, answers, templated) if before is None else _after(before, _assistants(answers), given)
    turned = {key: list(map(message, _listed(each))) for key, each in answers.items()}
    if before is None and all(each and each[0]["role"] != "assistant" for each in turned.values()):
        return {**turned, **_tools(given)}  # each holds the whole talk
    if before is None:
        text = next((given[each] for each in _ASKED if isinstance(given.get(each), str)), None)
        before = listed if listed is not None or text is None else [_said("user", text)]
    return {**turned, **_tools(given)} if before is None else _after(before, turned, given)


def _after(before: list[Any], answers: Line, given: Mapping[str, Any]) -> Line:
    return {"prompt": [*_system(given, before), *map(message, before)], **answers, **_tools(given)}


def _of_texts(given: Mapping[str, Any], answers: Mapping[str, str], templated: bool) -> Line:
    """Answers that are texts."""
    if isinstance(given.get("prompt"), str) and not _system(given):
        return {"prompt": given["prompt"], **answers}
    if isinstance(given.get("history"), str):  # SHP
        given = {**given, "question": given["history"], "history": None}
    if any(isinstance(given.get(name), str) for name in _ASKED):
        asked = _question(given, templated)
        return {"prompt": asked, **(answers if isinstance(asked, str) else _assistants(answers))}
    if all(each.startswith("\n\nHuman:") for each in answers.values()):  # hh-rlhf
        return _of_transcripts(answers, templated)
    raise DataError("chosen and rejected are texts, and no prompt says what they answer")


def _of_transcripts(answers: Mapping[str, str], templated: bool) -> Line:
    """Whole talks as one text each, with `Human:` and `Assistant:` before what each says."""
    if templated:
        return {key: [_said(_ROLES["human" if who == "Human" else "gpt"], said.strip())
                      for who, said in zip(*[iter(_HUMAN.split(text)[1:])] * 2, strict=True)]
                for key, text in answers.items()}  # fmt: skip
    cuts = {text.rindex("\n\nAssistant:") + len("\n\nAssistant:") if "\n\nAssistant:" in text else 0
            for text in answers.values()}  # fmt: skip
    prompts = {text[: max(cuts)] for text in answers.values()}
    if len(cuts) > 1 or len(prompts) > 1:
        raise DataError("chosen and rejected differ before their last `Assistant:`, so no prompt is the same in both")
    return {"prompt": prompts.pop(), **{key: text[max(cuts) :] for key, text in answers.items()}}


def _assistants(answers: Mapping[str, Any]) -> Line:
    return {key: [_said("assistant", each)] for key, each in answers.items()}


def _listed(value: Any) -> list[Any]:
    """One answer as a list of turns."""
    return _turns(value) if _is_turns(value) else [value]
