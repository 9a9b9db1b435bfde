"""The options of a script are read from its command line and its source, and can be set on a command line."""

import pytest

from surefoot.source.options import Option, options_of, with_option

SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=64)
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--name", default="run")
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--debug", action="store_true", default=False)
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return str(file)


def test_what_was_given_comes_first_then_defaults_then_flags(script):
    assert options_of(script, ["--length", "32", "--debug", "--layers=4"]) == [
        Option("--layers", 4),
        Option("--length", 32),
        Option("--batch-size", 64),
        Option("--checkpointing"),
    ]


def test_without_a_source_only_what_was_given_is_known(tmp_path):
    assert options_of(str(tmp_path / "none.py"), ["--batch", "8", "--lr", "0.1", "--name=7b"]) == [Option("--batch", 8)]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ["--batch", "4"]),
        (["--batch", "8", "--lr", "1"], ["--batch", "4", "--lr", "1"]),
        (["--lr", "1", "--batch=8"], ["--lr", "1", "--batch=4"]),
        (["--batch-size", "8"], ["--batch-size", "8", "--batch", "4"]),
    ],
)
def test_a_number_takes_the_place_of_the_one_that_was_given(args, expected):
    assert with_option(args, Option("--batch", 4)) == expected


def test_a_flag_is_added():
    assert with_option(["--batch", "8"], Option("--fast")) == ["--batch", "8", "--fast"]
