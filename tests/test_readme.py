"""The README's files are examples, its commands are replayable, and the replay notices what is not printed."""

import re
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


def test_the_readme_says_how_many_published_runs_are_of_one_framework():
    page = (ROOT / "docs" / "measured" / "public-runs.md").read_text()
    memory = page.split("## Memory", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([a-z]+)-\S+ \|(?:[^|\n]*\|){6}( yes)?", memory, flags=re.MULTILINE)
    litgpt = [held for framework, held in rows if framework == "litgpt"]
    some, held_out = (sum(bool(each) for each in kind) for kind in (litgpt, [held for _, held in rows]))
    figures = f"{some} of them, and {len(litgpt)} of all {len(rows)}, are of one framework, litgpt"
    assert f"in {held_out} held-out runs; {figures}" in README


@pytest.mark.parametrize(
    ("shown", "printed", "lost"),
    [
        (["a", "b"], ["a", "b"], ""),
        ([], ["a"], ""),
        (["...", "b", "..."], ["a", "b", "c"], ""),
        (["a ..."], ["a and more"], ""),
        (["a ..."], ["a"], ""),
        (["by ... checks."], ["by 12 checks."], ""),
        (["by ... checks."], ["by 12 rules."], "by ... checks."),
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
