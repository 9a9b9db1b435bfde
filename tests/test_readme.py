"""The README's files are examples, its commands are replayable, and the replay notices what is not printed."""

from pathlib import Path

import pytest

from tests.replay import commands, files, missing, replay

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", files(README))
def test_a_file_of_the_readme_is_an_example(name: str):
    assert files(README)[name] == (ROOT / "examples" / name).read_text()


def test_the_readme_has_files_and_commands():
    assert len(files(README)) >= 2
    assert {command.split()[1] for command, *_ in commands(README)} >= {"watch", "plan", "check", "train", "report"}


@pytest.mark.parametrize(
    ("shown", "printed", "lost"),
    [
        (["a", "b"], ["a", "b"], ""),
        ([], ["a"], ""),
        (["...", "b", "..."], ["a", "b", "c"], ""),
        (["a ..."], ["a and more"], ""),
        (["a"], ["b"], "a"),
        (["...", "b", "a", "..."], ["a", "b"], "a"),
        (["a", "c"], ["a", "b", "c"], "c"),
        (["a"], ["a", "b"], "after that: b"),
        (["a"], ["a and more"], "a"),
    ],
)
def test_a_line_that_was_not_printed_is_named(shown: list[str], printed: list[str], lost: str):
    assert missing(shown, printed) == lost


@pytest.mark.parametrize("command", ["echo other", "exit 3"])
def test_a_page_that_is_wrong_is_refused(command: str, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"```console\n$ {command}\nshown\n```\n")
    with pytest.raises(SystemExit, match=command):
        replay(page, tmp_path)
    page.write_text("```console\n$ echo shown\nshown\n```\n")
    assert replay(page, tmp_path) > 0
