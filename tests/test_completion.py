"""Completion in a shell: recipes and knobs, without torch and without running a recipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = "from surefoot.cli.main import main; import sys; sys.argv = ['surefoot']; main()"


def completed(*words: str, cwd: Path | None = None, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """What bash would offer for the last of these words."""
    asked = {"_SUREFOOT_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(
        [sys.executable, *flags, "-c", RUN], env={**os.environ, **asked}, cwd=cwd, capture_output=True, text=True
    )


def test_built_in_recipes_are_offered_and_torch_is_not_imported():
    done = completed("surefoot", "plan", "", flags=("-X", "importtime"))
    assert {"gpt", "llama", "regression"} <= set(done.stdout.split())
    assert " torch\n" not in done.stderr
    assert "surefoot.recipe.builtin" in done.stderr


@pytest.mark.parametrize("command", ["plan", "check", "train", "profile"])
def test_knobs_are_offered_with_their_defaults(command: str):
    assert completed("surefoot", command, "gpt", "micro").stdout.split() == ["micro_batch_size=8"]


def test_knobs_of_a_file_are_read_and_not_run(tmp_path):
    source = "raise SystemExit\ndef mine(width: int, *, rate=1e-3, kind='a', depth=None, more=print) -> Recipe: ...\n"
    (tmp_path / "mine.py").write_text(source)
    for target in ("mine.py", "mine.py:mine"):
        words = completed("surefoot", "plan", target, "", cwd=tmp_path).stdout.split()
        assert words[:5] == ["width=", "rate=0.001", "kind=a", "depth=", "more="]
        assert "precision=" in words


def test_a_given_knob_is_not_offered_again_and_a_broken_file_offers_the_settings(tmp_path):
    (tmp_path / "broken.py").write_text("def (")
    assert "seed=" in completed("surefoot", "plan", "broken.py", "se", cwd=tmp_path).stdout.split()
    words = completed("surefoot", "plan", "gpt", "layers=2", "").stdout.split()
    assert "layers=" not in words
    assert "width=" in words


def test_the_shell_script_can_be_printed():
    shown = [sys.executable, "-m", "surefoot", "--help"]
    assert "--install-completion" in subprocess.run(shown, capture_output=True, text=True).stdout
