"""Ten files as people bring them, five right and five broken: one command starts a fine-tune, or says why not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.data.formats import open_corpus
from surefoot.errors import SurefootError
from surefoot.finetuning.converted import Conversion, cache, converted
from tests import preferences

pytest.importorskip("peft", reason="pip install peft")
pyarrow = pytest.importorskip("pyarrow")
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}{{ call['function'] | tojson }}{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return preferences.model(tmp_path_factory.mktemp("models") / "llama", TEMPLATE)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "cache"))


def share_gpt(number: int, who: str = "gpt") -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": f"{number}?"}, {"from": who, "value": str(2 * number)}]}


def alpaca(number: int) -> dict[str, Any]:
    return {"instruction": "Double it.", "input": str(number), "output": str(2 * number)}


def uses_tools(arguments: str = '{"x": 2}') -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "double", "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "2?"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": "4"},
            {"role": "assistant", "content": "It is 4."},
        ]
    }


def pair(number: int) -> dict[str, Any]:
    return {"question": f"{number}?", "chosen": str(2 * number), "rejected": str(number)}


def listed(file: Path, rows: list[Any]) -> None:
    file.write_text(json.dumps(rows), encoding="utf-8")


def lines(file: Path, rows: list[Any]) -> None:
    file.write_text("".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in rows))


def parquet(file: Path, rows: list[Any]) -> None:
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file)


def saved(folder: Path, rows: list[Any]) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(folder)


NUMBERS = range(12)
TEN = {
    "ShareGPT.json": (listed, [share_gpt(n) for n in NUMBERS], (), "recognised: ShareGPT in 12 lines"),
    "ShareGPT-broken.json": (
        listed,
        [*(share_gpt(n) for n in NUMBERS), share_gpt(5, "alien")],
        (),
        "item 13: a turn is from 'alien', who is none of human",
    ),
    "alpaca.jsonl": (lines, [alpaca(n) for n in NUMBERS], (), "recognised: instruction in 12 lines"),
    "alpaca-broken.jsonl": (
        lines,
        [*(alpaca(n) for n in NUMBERS), '{"instruction": "Double it.", "inp\n', {"instruction": "x"}],
        (),
        "line 13: it is not JSON: Invalid control character",
    ),
    "tools.jsonl": (lines, [uses_tools()] * 3, (), 'double", "arguments": {"x": 2}}<|end|>'),
    "tools-broken.jsonl": (
        lines,
        [uses_tools(), uses_tools("{x: 2}")],
        (),
        "line 2: the arguments of the tool call 'double' cannot be read",
    ),
    "pairs.parquet": (parquet, [pair(n) for n in NUMBERS[1:]], ("loss=dpo",), "11 of 11 pairs kept"),
    "pairs-broken.parquet": (
        parquet,
        [*(pair(n) for n in NUMBERS[1:]), {**pair(3), "rejected": None}],
        ("loss=dpo",),
        "row 12: a line with preferences needs prompt, chosen and rejected; this one has no rejected",
    ),
    "texts": (saved, [{"text": f"{n} " * 40} for n in NUMBERS], (), "split into pieces of the context: 2 lines"),
    "texts-broken": (saved, [{"text": f"{n}"} for n in NUMBERS], (), "is damaged or was cut off"),
}


def ran(file: Path, model: Path, *words: str) -> Any:
    usual = {"context": "99", "rank": "2", "max_steps": "1", **dict(word.split("=") for word in words)}
    settings = [f"model={model}", f"data={file}", *(f"{name}={value}" for name, value in usual.items())]
    command = ["train", "finetune", *settings, "--run", str(file.with_name("run")), "--no-plan"]
    return CliRunner().invoke(app, command, env={"COLUMNS": "400"})  # no path is broken into two lines


def told(done: Any) -> str:
    assert done.exception is None or isinstance(done.exception, (SurefootError, SystemExit)), repr(done.exception)
    return done.output + str(done.exception or "")


@pytest.mark.parametrize("name", [name for name in TEN if "broken" not in name])
def test_a_right_file_starts_with_one_command(name, model, tmp_path):
    write, rows, words, said = TEN[name]
    write(tmp_path / name, rows)
    done = ran(tmp_path / name, model, *words)
    assert done.exit_code == 0, told(done)
    assert said in done.output
    assert done.output.count("tokens bear loss: those between [[ and ]]") == (6 if "pairs" in name else 3)
    again = ran(tmp_path / name, model, *words)
    assert again.exit_code == 0  # a finished run, of the corpus in the cache
    assert len(os.listdir(cache() / "corpora")) == 1


@pytest.mark.parametrize("name", [name for name in TEN if "broken" in name])
def test_a_broken_file_is_refused_in_one_sentence_and_its_right_lines_start(name, model, tmp_path):
    write, rows, words, said = TEN[name]
    write(tmp_path / name, rows)
    if name == "texts-broken":
        (part,) = (tmp_path / name).glob("*.arrow")
        part.write_bytes(part.read_bytes()[:-100])
    done = ran(tmp_path / name, model, *words)
    assert done.exit_code == 1
    assert isinstance(done.exception, SurefootError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "run").exists()
    assert not [*cache().rglob("*.ds")]
    if name != "texts-broken":
        assert "broken=skip leaves such lines out" in str(done.exception)
        done = ran(tmp_path / name, model, *words, "broken=skip")
        assert done.exit_code == 0, told(done)
        assert "skipped as broken" in done.output
        assert said.partition(": ")[2][:30] in done.output


def test_what_the_context_cuts_is_said_with_its_lines(model, tmp_path):
    lines(tmp_path / "talks.jsonl", [share_gpt(1), *(share_gpt(10**n) for n in (60, 70)), share_gpt(2)])
    done = ran(tmp_path / "talks.jsonl", model, "context=60")
    assert "2 of 4 conversations kept; 2 dropped with more than 61 tokens" in done.output
    assert f"dropped, too long: 2 lines: {tmp_path}/talks.jsonl:2, {tmp_path}/talks.jsonl:3" in done.output
    other = tmp_path / "other"
    other.mkdir()
    lines(other / "talks.jsonl", [share_gpt(1), {"prompt": "1?", "completion": "2" * 90}])
    done = ran(other / "talks.jsonl", model, "context=60", "too_long=cut")
    assert "2 of 2 conversations kept; 1 cut to 61 tokens" in done.output
    assert f"cut at the end: 1 line: {other}/talks.jsonl:2" in done.output


def test_a_validation_split_is_held_out_and_others_are_named(model, tmp_path):
    for split, numbers in (("train", NUMBERS), ("validation", (20, 21)), ("test", (30,))):
        lines(tmp_path / f"{split}.jsonl", [alpaca(n) for n in numbers])
    (tmp_path / "data").mkdir()
    for file in tmp_path.glob("*.jsonl"):
        file.rename(tmp_path / "data" / file.name)
    done = ran(tmp_path / "data", model)
    assert done.exit_code == 0, told(done)
    assert "parts: train 12, held-out 2; not read: test" in done.output.replace(
        "held-out 2, train 12", "train 12, held-out 2"
    )
    assert "held-out" in done.output.partition("step 1/1")[2]


def test_a_changed_file_is_another_corpus_and_an_unchanged_one_is_not(model, tmp_path):
    sizes = {"context": 99, "too_long": "drop", "held_out": 0.0, "broken": "stop"}
    lines(tmp_path / "talks.jsonl", [alpaca(n) for n in NUMBERS])
    first, again = (converted(str(tmp_path / "talks.jsonl"), str(model), Conversion(**sizes)) for _ in range(2))
    lines(tmp_path / "talks.jsonl", [alpaca(n + 1) for n in NUMBERS])
    changed = converted(str(tmp_path / "talks.jsonl"), str(model), Conversion(**sizes))
    cut = converted(str(tmp_path / "talks.jsonl"), str(model), Conversion(**{**sizes, "too_long": "cut"}))
    assert first == again
    assert len({first, changed, cut}) == 3
    assert open_corpus(first).identity() != open_corpus(changed).identity()


def test_preferences_say_which_loss_they_need(model, tmp_path):
    lines(tmp_path / "pairs.jsonl", [pair(n) for n in NUMBERS[1:]])
    done = ran(tmp_path / "pairs.jsonl", model)
    assert f"{tmp_path}/pairs.jsonl holds preferences, which loss=dpo learns from: set loss=dpo" in str(done.exception)


def test_a_weight_of_zero_keeps_a_turn_from_the_loss(model, tmp_path):
    talk = [
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "wrong", "weight": 0},
        {"role": "user", "content": "b?"},
        {"role": "assistant", "content": "right", "weight": 1},
    ]
    lines(tmp_path / "talks.jsonl", [{"messages": talk}])
    done = ran(tmp_path / "talks.jsonl", model)
    assert "[[right<|end|>\n]]" in done.output
    assert "[[wrong" not in done.output
