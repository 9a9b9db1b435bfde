"""Shapes: each spelling that people have becomes the messages, completions or pairs that it means."""

import json

import pytest

from surefoot.errors import DataError
from surefoot.finetuning.shapes import ALPACA, shaped


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


ASKED, FOUR, FIVE = said(("user", "2 and 2?")), said(("assistant", "4")), said(("assistant", "5"))
TALK = [*ASKED, *FOUR]
PAIR = {"prompt": ASKED, "chosen": FOUR, "rejected": FIVE}
TOOLS = [{"type": "function", "function": {"name": "add"}}]
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
CALL_AS_TEXT = {"type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
USES = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, *said(("tool", "4")), *FOUR]


def share_gpt(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": who, "value": text} for who, text in turns]


@pytest.mark.parametrize(
    ("row", "shape", "line"),
    [
        ({"messages": TALK, "prompt": "2 and 2?", "prompt_id": "x"}, "messages", {"messages": TALK}),
        ({"messages": json.dumps(TALK), "tools": json.dumps(TOOLS)}, "messages", {"messages": TALK, "tools": TOOLS}),
        (
            {"messages": [*ASKED, {"role": "assistant", "tool_calls": [CALL_AS_TEXT]}, *USES[2:]], "tools": None},
            "messages",
            {"messages": USES},
        ),
        ({"conversations": share_gpt(("human", "2 and 2?"), ("gpt", "4"))}, "ShareGPT", {"messages": TALK}),
        (
            {"system": "Be short.", "conversations": share_gpt(("human", "2 and 2?"), ("gpt", "4"))},
            "ShareGPT",
            {"messages": [*said(("system", "Be short.")), *TALK]},
        ),
        (
            {
                "conversations": share_gpt(
                    ("user", "2 and 2?"),
                    ("function_call", '{"name": "add", "arguments": {"a": 2}}'),
                    ("observation", "4"),
                    ("gpt", "4"),
                ),
                "tools": "",
            },
            "ShareGPT",
            {"messages": [USES[0], {**USES[1], "content": ""}, *USES[2:]]},
        ),
        ({"instruction": "2 and 2?", "input": "", "output": "4", "text": "x"}, "instruction", {"messages": TALK}),
        (
            {"instruction": "Add.", "input": "2 and 2", "output": "4", "system": "Be short.", "history": [["a", "b"]]},
            "instruction",
            {"messages": said(("system", "Be short."), ("user", "a"), ("assistant", "b"), ("user", "Add.\n\n2 and 2"),
                              ("assistant", "4"))},
        ),
        ({"instruction": "2 and 2?", "context": " ", "response": "4"}, "instruction", {"messages": TALK}),
        ({"question": "2 and 2?", "answer": "4"}, "instruction", {"messages": TALK}),
        ({"prompt": "2 and 2?", "response": "4"}, "instruction", {"messages": TALK}),
        ({"prompt": "2", "completion": None}, "prompt and completion", {"prompt": "2", "completion": None}),
        ({"prompt": ASKED, "completion": FOUR}, "prompt and completion", {"messages": TALK}),
        ({"text": "2 and 2 is 4", "meta": 1}, "text", {"text": "2 and 2 is 4"}),
    ],
)  # fmt: skip
def test_rows_of_one_answer(row, shape, line):
    assert shaped(row, templated=True) == (shape, line)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"prompt": "2", "chosen": "4", "rejected": "5"}, {"prompt": "2", "chosen": "4", "rejected": "5"}),
        (PAIR, PAIR),
        ({**PAIR, "chosen": FOUR[0], "rejected": FIVE[0]}, PAIR),
        # ultrafeedback_binarized: the prompt once more, and all messages in both
        (
            {"prompt": "2 and 2?", "messages": TALK, "chosen": TALK, "rejected": [*ASKED, *FIVE], "score_chosen": 8.0},
            {"chosen": TALK, "rejected": [*ASKED, *FIVE]},
        ),
        ({"prompt": "2 and 2?", "chosen": FOUR, "rejected": FIVE}, PAIR),
        ({"question": "2 and 2?", "chosen": "4", "rejected": "5", "system": ""}, PAIR),
        (
            {"question": "2 and 2?", "chosen": "4", "rejected": "5", "system": "Add."},
            {**PAIR, "prompt": [*said(("system", "Add.")), *ASKED]},
        ),
        ({"instruction": "2 and 2?", "input": "", "chosen": "4", "rejected": "5"}, PAIR),
        # LLaMA-Factory
        (
            {
                "conversations": share_gpt(("human", "2 and 2?")),
                "chosen": {"from": "gpt", "value": "4"},
                "rejected": {"from": "gpt", "value": "5"},
            },
            PAIR,
        ),
        ({"messages": ASKED, "chosen": "4", "rejected": "5"}, PAIR),
        # OpenAI
        (
            {"input": {"messages": ASKED, "tools": []}, "preferred_output": FOUR, "non_preferred_output": FIVE},
            PAIR,
        ),
        ({"question": "2 and 2?", "response_j": "4", "response_k": "5"}, PAIR),
        (
            {"prompt": "2", "chosen_response": "4", "rejected_response": "5"},
            {"prompt": "2", "chosen": "4", "rejected": "5"},
        ),
        (
            {"prompt": "2", "response_0": "5", "response_1": "4", "better_response_id": 1},
            {"prompt": "2", "chosen": "4", "rejected": "5"},
        ),
        ({"history": "2 and 2?", "human_ref_A": "4", "human_ref_B": "5", "labels": 1}, PAIR),
        ({"history": "2 and 2?", "human_ref_A": "5", "human_ref_B": "4", "labels": 0}, PAIR),
        # hh-rlhf
        (
            {"chosen": "\n\nHuman: 2 and 2?\n\nAssistant: 4", "rejected": "\n\nHuman: 2 and 2?\n\nAssistant: 5"},
            {"chosen": TALK, "rejected": [*ASKED, *FIVE]},
        ),
    ],
)  # fmt: skip
def test_rows_of_a_better_and_a_worse_answer(row, line):
    assert shaped(row, templated=True) == ("preference", line)


def test_without_a_template_an_instruction_is_the_text_that_alpaca_was_trained_on():
    row = {"instruction": "Add.", "input": "2 and 2", "output": "4"}
    _, line = shaped(row, templated=False)
    assert line["completion"] == "4"
    assert line["prompt"].endswith("### Instruction:\nAdd.\n\n### Input:\n2 and 2\n\n### Response:\n")
    assert "paired with an input" in line["prompt"]
    _, plain = shaped({**row, "input": ""}, templated=False)
    assert plain["prompt"] == ALPACA.format("", "Add.", "")
    talks = {name: f"\n\nHuman: 2?\n\nAssistant: {name}" for name in ("chosen", "rejected")}
    assert shaped(talks, templated=False)[1] == {
        "prompt": "\n\nHuman: 2?\n\nAssistant:",
        "chosen": " chosen",
        "rejected": " rejected",
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1, "b": 2}, "chosen and rejected, or text; this one has a, b"),
        ("x", "a line must be an object"),
        ({"conversations": share_gpt(("alien", "2"))}, "a turn is from 'alien', who is none of human, user, prompter"),
        ({"conversations": ["2"]}, "a message must have role and content, or from and value, not '2'"),
        ({"messages": '[{"role"'}, "the list of messages cannot be read: it is not JSON"),
        ({"output": "4"}, "there is an answer, and no instruction or question"),
        ({"instruction": "2", "output": 4}, "output must be a text, not 4"),
        ({"prompt": "2", "completion": "5", "label": False}, "a completion with a label may be a bad one"),
        ({"prompt": "2", "chosen": "4"}, "this one has no rejected"),
        ({"chosen": "4", "rejected": "5"}, "no prompt says what they answer"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": "{"}}]}]},
            "the arguments of the tool call 'add' cannot be read",
        ),
    ],
)
def test_a_row_that_means_nothing_certain_is_refused(row, message):
    with pytest.raises(DataError, match=message):
        shaped(row, templated=True)
