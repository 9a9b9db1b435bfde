"""Conversations: a line of JSON becomes tokens, by the tokenizer's own chat template, with a mark for each token.

A mark says who speaks and whether the token bears loss. Only what the assistant says bears loss, and the end of its
turn. If the template has `{% generation %}`, transformers says which tokens those are. Without it, transformers marks
none and raises nothing; then the conversation is rendered turn by turn, and what a turn adds is the assistant's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from surefoot.errors import DataError
from surefoot.finetuning.empty_turns import Message, empty_turns, is_blank, muted, span_of, unwritten, without_null
from surefoot.finetuning.template_limits import TemplateLimit, limited_template

ROLES = ("template", "system", "user", "assistant", "tool", "prompt", "completion")
"""Who speaks. What only the template writes, and a role that is not in this list, count as `template`."""
ALL_ROLES = (*ROLES, "chosen", "rejected", "text")
"""In preferences, the answers have roles of their own. In plain text, everything is `text`."""
_NAME = "the chat template"


@dataclass(frozen=True)
class Conversation:
    """The tokens of one line, and for each token `2 * role + bears_loss`."""

    tokens: list[int]
    marks: list[int]
    empty_turns: int = 0
    """How many answers say nothing. They bear no loss."""
    unwritten: tuple[str, ...] = ()
    """What the line has and the chat template does not write, for example `tool_calls`."""

    @property
    def bearing(self) -> int:
        """The number of tokens that bear loss."""
        return sum(mark & 1 for mark in self.marks)


def conversation(line: Any, tokenizer: Any) -> Conversation:
    """The tokens and marks of one line."""
    if not isinstance(line, dict):
        raise DataError(f"a line must be an object with messages, or with prompt and completion, not {line!r:.60}")
    if "messages" in line:
        return chat(line["messages"], tokenizer, tools=line.get("tools"))
    if "prompt" in line and "completion" in line:
        if isinstance(line["prompt"], list):
            answer = line["completion"]
            return chat([*line["prompt"], *(answer if isinstance(answer, list) else [answer])], tokenizer)
        prompt, answer = ("" if line[name] is None else str(line[name]) for name in ("prompt", "completion"))
        return completion(prompt, answer, tokenizer)
    raise DataError(
        f"a line needs messages, or prompt and completion; this one has {', '.join(map(str, line)) or 'nothing'}"
    )


def role_of(mark: int) -> str:
    return ALL_ROLES[mark >> 1]


def _mark(role: str, bears: bool) -> int:
    return 2 * (ROLES.index(role) if role in ROLES else 0) + bears


# ---------------------------------------------------------------------------------------- prompt and completion


def completion(prompt: str, answer: str, tokenizer: Any) -> Conversation:
    """The prompt as the tokenizer begins texts, then the answer and the end of the text."""
    end = tokenizer.eos_token_id
    if end is None:
        raise DataError("the tokenizer has no end-of-text token, so a model could not learn to stop; add an eos_token")
    before = prompt_tokens(prompt, tokenizer)
    after = [*tokenizer(answer, add_special_tokens=False)["input_ids"], end]
    bears = not is_blank(answer)
    return Conversation(
        [*before, *after],
        [_mark("prompt", False)] * len(before) + [_mark("completion", bears)] * len(after),
        empty_turns=int(not bears),
    )


def prompt_tokens(prompt: str, tokenizer: Any) -> list[int]:
    """A prompt as the tokenizer begins texts, without the end that some tokenizers add."""
    tokens = list(tokenizer(prompt)["input_ids"])
    while tokens and tokens[-1] == tokenizer.eos_token_id:
        tokens.pop()
    return tokens


def text_pieces(text: str, tokenizer: Any, context: int) -> list[Conversation]:
    """Plain text, in which every token bears loss, in pieces of at most `context` tokens.

    A piece begins with the last token of the one before it, so that each token is predicted once.
    """
    begin = tokenizer.bos_token
    if begin and text.startswith(begin):  # the text has its start token: a second one would be a mistake
        tokens = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    else:
        tokens = prompt_tokens(text, tokenizer)
    if tokenizer.eos_token_id is not None and tokens[-1:] != [tokenizer.eos_token_id]:
        tokens.append(tokenizer.eos_token_id)
    mark = 2 * ALL_ROLES.index("text") + (not is_blank(text))
    pieces = (tokens[first : first + context] for first in range(0, max(1, len(tokens) - 1), context - 1))
    return [Conversation(each, [mark] * len(each), empty_turns=int(is_blank(text))) for each in pieces]


# ---------------------------------------------------------------------------------------- messages


def has_template(tokenizer: Any) -> bool:
    return bool(_template(tokenizer))


def rendered_prompt(text: str, tokenizer: Any) -> str:
    """What stands before the answer to one message of a user."""
    return rendered_talk([{"role": "user", "content": text}], tokenizer)


def rendered_talk(messages: list[Message], tokenizer: Any) -> str:
    """What stands before the next answer of a conversation."""
    return _rendered(messages, tokenizer, prompt=True)


def end_of_turn(tokenizer: Any) -> int | None:
    """The special token that the template writes after an answer; None if it writes none."""
    answer = "Yes."
    asked: Message = {"role": "user", "content": "Is it?"}
    whole = _rendered([asked, {"role": "assistant", "content": answer}], tokenizer)
    after = whole.rpartition(answer)[2].strip()
    tokens = tokenizer(after, add_special_tokens=False)["input_ids"]
    return tokens[0] if tokens and tokens[0] in tokenizer.added_tokens_decoder else None


def end_of_turn_if_any(tokenizer: Any) -> int | None:
    """The same; None too without a template, and for one that refuses a question and its answer."""
    try:
        return end_of_turn(tokenizer) if has_template(tokenizer) else None
    except DataError:
        return None


def chat(messages: Any, tokenizer: Any, *, tools: Any = None, silent: int = 0) -> Conversation:
    """The tokens and marks of a list of messages. The first `silent` ones bear no loss, whoever speaks."""
    _refuse_unsound(messages, tokenizer)
    render = partial(_rendered, tokenizer=tokenizer, tools=tools)
    messages = without_null(messages, render)
    whole = render(messages)
    spans = _turns(messages, tokenizer, whole, tools)
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    tokens, places = list(encoded["input_ids"]), [first for first, _ in encoded["offset_mapping"]]
    roles = [next((role for role, first, end in spans if first <= place < end), "template") for place in places]
    if "{% generation %}" in _template(tokenizer).replace("{%-", "{%").replace("-%}", "%}"):
        bears = _by_generation(messages, tokenizer, tokens, tools)
    else:
        answers = _answers(messages, tokenizer, whole, tools)
        bears = [any(first <= place < end for first, end in answers) for place in places]
    begin = _end_of(messages[:silent], tokenizer, whole, tools) if silent else 0
    ignored = unwritten(messages, whole, render)
    empty = [number for number in empty_turns(messages, ignored) if number >= silent]
    mute = [(0, begin), *(span_of(number, messages, whole, render) for number in {*empty, *muted(messages)})]
    heard = [
        bool(bear) and not any(first <= place < end for first, end in mute)
        for bear, place in zip(bears, places, strict=True)
    ]
    marks = [_mark(role, bear) for role, bear in zip(roles, heard, strict=True)]
    if tools and _rendered(messages, tokenizer) == whole:
        ignored = (*ignored, "tools")
    return Conversation(tokens, marks, len(empty), ignored)


def _end_of(messages: list[Message], tokenizer: Any, whole: str, tools: Any) -> int:
    """Where the first messages end in the text of all."""
    text = _rendered(messages, tokenizer, tools=tools)
    if not whole.startswith(text):
        raise DataError(
            "the chat template writes the prompt differently once an answer follows, so it does not show which tokens "
            "are the answer's; change the template, or write prompt, chosen and rejected as texts"
        )
    return len(text)


def _refuse_unsound(messages: Any, tokenizer: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise DataError("messages must be a list of at least one message")
    for each in messages:
        if not isinstance(each, dict) or "role" not in each or "content" not in each:
            raise DataError(f"a message must have role and content, not {each!r:.80}")
    if not _template(tokenizer):
        raise DataError(
            "the tokenizer has no chat template, which says how messages become text; add chat_template.jinja to its "
            "folder, or write prompt and completion instead of messages"
        )
    if not tokenizer.is_fast:
        raise DataError("the tokenizer has no tokenizer.json, without which tokens cannot be matched with messages")


def _template(tokenizer: Any) -> str:
    found = tokenizer.chat_template
    return str(found.get("default", "") if isinstance(found, dict) else found or "")


def _rendered(messages: list[Message], tokenizer: Any, *, prompt: bool = False, tools: Any = None) -> str:
    try:
        with limited_template(_NAME):
            made = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, tools=tools)
        return str(made)
    except TemplateLimit:
        raise
    except Exception as error:  # templates raise errors of their own
        raise DataError(f"the chat template refuses the messages: {error}") from error


def _by_generation(messages: list[Message], tokenizer: Any, tokens: list[int], tools: Any) -> list[int]:
    """The mask that transformers makes from `{% generation %}`."""
    with limited_template(_NAME):
        made = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, tools=tools
        )
    if list(made["input_ids"]) != tokens:
        raise DataError(
            "the tokenizer gives other tokens for the conversation than for its text; report this tokenizer"
        )
    return list(made["assistant_masks"])


def _turns(messages: list[Message], tokenizer: Any, whole: str, tools: Any) -> list[tuple[str, int, int]]:
    """Role, first and last place of each message in the text, as far as the template writes one after the other."""
    found, first = list[tuple[str, int, int]](), 0
    for count in range(1, len(messages) + 1):
        if count == len(messages):
            text = whole
        else:
            try:
                text = _rendered(messages[:count], tokenizer, tools=tools)
            except TemplateLimit:
                raise
            except DataError:
                continue  # a template may refuse a conversation that ends here
        if whole.startswith(text):
            found.append((str(messages[count - 1]["role"]), first, len(text)))
            first = len(text)
    return found


def _answers(messages: list[Message], tokenizer: Any, whole: str, tools: Any) -> list[tuple[int, int]]:
    """Where the assistant speaks in the text: from after the generation prompt to the end of its turn."""
    found = list[tuple[int, int]]()
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = _rendered(messages[:number], tokenizer, prompt=True, tools=tools)
        after = whole if number + 1 == len(messages) else _rendered(messages[: number + 1], tokenizer, tools=tools)
        if not (after.startswith(before) and whole.startswith(after)):
            raise DataError(
                f"the chat template has no {{% generation %}} and writes message {number + 1} differently once others "
                "follow, so it does not show which tokens are the assistant's; put {% generation %} and "
                "{% endgeneration %} around them in the template"
            )
        found.append((len(before), len(after)))
    return found
