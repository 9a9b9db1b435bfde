"""A sample of bench/damage.py, and whether it would notice what it looks for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
SAMPLE = {"runs": 20, "links": 10, "corpora": 8, "folders": 12, "pages": 3, "command-lines": 15, "checkpoints": 40}


def said_by(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_damage_is_accepted_executed_or_ends_in_a_traceback():
    """The seed is fixed, so that a failure is one of the change that is tested."""
    counts = [word for part, number in SAMPLE.items() for word in ("--tries", f"{part}={number}")]
    said = said_by("damage.py", "--quick", "--seed", "3", *counts)
    tries = sum(SAMPLE.values())
    assert said.splitlines()[-1] == f"RESULT tries={tries} accepted=0 executed=0 tracebacks=0 hangs=0", said
    wrong = {who: sum(map(int, re.findall(rf"^{who} +\w+ +\d+ +(\d+)", said, re.M))) for who in ("dcp", "torch.load")}
    assert all(wrong.values()), f"the damage was too mild, the others noticed all of it: {wrong}"


ASKED = """
import os, sys, tempfile, time
from pathlib import Path
from damaged.asking import Place, ask
from damaged.trying import ending

with tempfile.TemporaryDirectory() as name:
    place = Place(Path(name))
    place.make()
    def do():
        {}
    found = ending(ask(place, ["train"], seconds=5, do=do))
    print("nothing" if found is None else f"{{found.kind}}: {{found.why}}")
"""


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ("print('fine')", "nothing"),
        ("sys.exit(75)", "nothing"),
        ("sys.exit(3)", "traceback: train: ended with 3"),
        ("os.abort()", "traceback: train: ended with -6"),
        ("{}['missing']", "traceback: train: KeyError: 'missing'"),
        ("place.canary.touch()", "executed: train executed what it read"),
        ("place.secret.write_text('mine')", "accepted: train: a file outside was overwritten"),
        ("(place.home / 'stray').touch()", "accepted: train: stray was written outside"),
        ("time.sleep(60)", "hang: train took more than 5 s"),
    ],
)
def test_the_bench_notices(what, verdict):
    assert said_by("-c", ASKED.format(what)).strip() == verdict


LINKED = """
import random, tempfile
from pathlib import Path
from damaged.asking import Place
from damaged.links import Links
from damaged.runs import Runs
import surefoot.ways.train

surefoot.ways.train.place_checkpoints = lambda *_: None
with tempfile.TemporaryDirectory() as name:
    place = Place(Path(name).resolve())
    place.make()
    found = Links(Runs(place, 60.0))._read("unfinished", "checkpoints", "train")
    print(f"{found.kind}: {found.why}")
"""


def test_a_run_that_prunes_through_a_link_is_noticed():
    verdict = "accepted: train wrote or removed what a link leads to: checkpoints"
    assert said_by("-c", LINKED).splitlines()[-1] == verdict


def test_a_record_of_other_types_does_not_conform(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from damaged.conforming import fits

    from surefoot.records.event import Event

    right = {"step": 1, "kind": "saved", "text": "", "at": ""}
    assert fits(Event, right)
    wrong = ({"step": 1.5}, {"step": True}, {"step": None}, {"text": 1}, {"unknown": 1})
    assert not any(fits(Event, {**right, **change}) for change in wrong)
    assert not fits(Event, {"step": 1})


def test_markup_from_data_is_seen(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from damaged.pages import added, elements

    tame, wild = '<p class="a">word</p>', '<p class="a"><img onerror="x"></p>'
    assert added(elements(tame), elements(tame)) == []
    assert added(elements(tame), elements(wild)) == [("img", ("onerror",))]
