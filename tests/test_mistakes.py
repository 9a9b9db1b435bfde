"""Mistakes that people make on the command line: the error says what they may have meant."""

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import SurefootError, known_names, near

DEVICES = ["a10", "h100-nvl", "h100-sxm", "rtx-4090", "T4"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.py").write_text(
        "from surefoot import Recipe\n\ndef reviews(hidden: int = 3) -> Recipe:\n    raise RuntimeError('executed')\n"
    )
    (tmp_path / "runs" / "first").mkdir(parents=True)
    return tmp_path


def said(*words: str) -> str:
    """What a command prints when it refuses, on one line."""
    made = CliRunner().invoke(app, words)
    if isinstance(made.exception, SurefootError):
        return str(made.exception)
    assert made.exit_code == 2, made.output
    return " ".join(made.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune", "No such command 'finetune'. It is a recipe: write `surefoot train finetune` or `surefoot plan"),
        ("reviews.py", "No such command 'reviews.py'. It is a file: write `surefoot watch reviews.py` for a script, `"),
        ("trian gpt", "No such command 'trian'. Did you mean 'train'?"),
        ("plan gtp", "no recipe 'gtp'; did you mean 'gpt'? built in: cruncher,"),
        ("plan gpt --on 409", "no datasheet for '409'; did you mean 'rtx-4090'? `surefoot hardware list` shows all"),
        ("plan gpt --on p5.48xlarg", "did you mean 'p5.48xlarge' or "),
        ("plan gpt --on h10", "no datasheet for 'h10'; did you mean 'h100-hbm2e-96gb' or 'h100-nvl' or "),
        ("plan reviews.py --hidden 3", "No such option: --hidden. Knobs are written without dashes: hidden=3"),
        ("plan reviews.py --hiden=3", "No such option: --hiden. Knobs are written without dashes: hidden=3"),
        ("train gpt --max-steps 5", "No such option: --max-steps. Knobs are written without dashes: max_steps=5"),
        ("plan gpt --jsn", "No such option: --jsn (Possible options: --json)"),
        ("watch a.py --lr 3", "--lr. Write -- before arguments of your script: surefoot watch a.py -- --lr 3"),
        ("watch shape.py --step 3", "-- --step 3 (Possible options: --steps)"),
        ("report runs/none", "there is no folder runs/none; `surefoot train RECIPE` makes a run directory"),
        ("report runs/frist", "there is no folder runs/frist; did you mean 'first'? `surefoot train RECIPE` makes"),
        ("report runs/first", "runs/first is not a run: it holds no run.json, plan.json"),
        ("export runs/frist", "there is no folder runs/frist; did you mean 'first'? "),
        ("init --like seq2sec", "no template 'seq2sec'; did you mean 'seq2seq'? known: classifier,"),
    ],
)  # fmt: skip
def test_a_mistake_gets_what_was_meant(folder, words, message):
    assert message in said(*words.split())


def test_names_that_contain_the_word_come_first_and_case_does_not_matter():
    assert near("H100", DEVICES) == ["h100-nvl", "h100-sxm"]
    assert near("4090", DEVICES) == ["rtx-4090"]
    assert near("t4", DEVICES) == ["T4"]
    assert near("", DEVICES) == near("zzz", DEVICES) == []
    assert known_names("zzz", DEVICES) == "known: a10, h100-nvl, h100-sxm, rtx-4090, T4"
