"""Records in a notebook: plain tables, whatever stands in them."""

import importlib
import pkgutil

from surefoot import records
from surefoot.records.finding import Edit, Finding, Findings, Mark
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.plan import Plan
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.records.shown import Shown
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Peak, Usage
from surefoot.records.watched import Watched
from surefoot.reports.html import TABLES

USAGE = Usage(
    Tally.of([Account("memory/parameters", 2**20, "bytes"), Account("flops/forward", 10, "FLOP")]), Peak(2**20)
)


def test_every_record_shows_its_figures():
    plan = Plan("gpt", "", {}, 3_281_408, 8192, 4, 500, steady=USAGE)._repr_html_()
    assert "3,281,408" in plan
    assert "1.00 MiB" in plan
    clock = Tally.of([Account("seconds/forward", 0.25, "seconds")])
    profile = Profile("gpt", {}, "cpu", 1, USAGE, USAGE, 2, (0.5, 0.5), clock, data_seconds=(0.1, 0.1))._repr_html_()
    assert "250 ms" in profile
    assert "20.0%" in profile
    run = Run("runs/a", "gpt", "", "gpt", {}, "finished", 1, "cpu", "2.13", steps=7, first_loss=2.0, last_loss=1.5)
    assert "2.0000 → 1.5000" in run._repr_html_()


def test_a_ledger_says_where_a_difference_comes_from():
    ledger = Ledger(
        (Entry("memory/a", "bytes", 100, 150, 0.0, "layers.3 50 B", "a <kernel>"), Entry("x", "s", None, 1))
    )
    shown = ledger._repr_html_()
    assert "+50 B (+50.00%)" in shown
    assert "layers.3 50 B; a &lt;kernel&gt;" in shown
    assert "not predicted" in shown
    assert Ledger()._repr_html_() == ""


def test_a_watched_loop_shows_its_findings():
    found = Findings("a.py", ("x",), (Finding("missing-zero-grad", "error", "seen", "a.py:1", "why", "call it"),))
    shown = Watched("a.py", 3, ("GPT",), 10, USAGE, USAGE, found)._repr_html_()
    assert "error: missing-zero-grad" in shown
    assert "call it" in shown


def test_findings_show_the_marked_lines_and_the_change():
    mark = Mark("a.py", 3, 7, 16, "loss = f(x) < 1.0", "the <loss>")
    edit = Edit("a.py", 3, "loss = f(x)", "loss = g(x)")
    finding = Finding("broadcast-loss", "error", "seen", "a.py:3", "why", "call it", (mark,), edit)
    shown = Findings("a.py", ("x",), (finding,))._repr_html_()
    assert "3 | loss = <mark>f(x) &lt; 1.</mark>0  the &lt;loss&gt;" in shown
    assert "3 - loss = f(x)\n3 + loss = g(x)\n" in shown
    assert "a.py: 1 finding by 1 check." in shown


def test_every_record_that_a_notebook_shows_has_a_table():
    for file in pkgutil.iter_modules(records.__path__, "surefoot.records."):
        importlib.import_module(file.name)
    assert set(Shown.__subclasses__()) == set(TABLES)
