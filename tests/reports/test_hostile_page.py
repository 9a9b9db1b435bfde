"""A page of records that hold markup, scripts, links and templates: a browser shows them, and does nothing else."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from surefoot.records.finding import Finding, Findings
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.plan import Plan
from surefoot.reports.figures import titled_figures
from surefoot.reports.gather import report_of
from surefoot.reports.html import html_table, ledger_table, plan_table, profile_table, run_table, watched_table
from surefoot.reports.page import page, write_page
from tests.reports.hostile import CLOSING, CONTROLS, MARKER, RUN, WATCHED, hostile, hostile_run
from tests.reports.pages import PROFILE, STEADY, browse, in_a_browser


class Elements(HTMLParser):
    """Every element of a page with its attributes, and all text outside of scripts and styles."""

    def __init__(self, written: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(written)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        self.text += "" if self._inside in ("script", "style") else data


def refuse_live(written: str, *, scripts: int) -> Elements:
    """Nothing in it acts, leads anywhere or asks for anything."""
    found = Elements(written)
    assert found.tags["script"] == scripts
    assert not {"a", "img", "iframe", "form", "object", "embed", "base", "input"} & set(found.tags)
    assert [each for each in found.attributes if each[0].startswith("on")] == []
    assert [value for name, value in found.attributes if name.endswith("href") and value != "data:,"] == []
    assert not any(
        "javascript:" in value for name, value in found.attributes if name not in ("class", "data-unformatted")
    )
    return found


@pytest.mark.parametrize("marker", [MARKER, CLOSING, CONTROLS], ids=["markup", "closing", "controls"])
def test_every_text_of_every_record_stays_text(tmp_path, marker):
    folders = [hostile_run(tmp_path / f"{name}{marker.replace('/', '')}", marker) for name in "ab"]
    found = refuse_live(page(report_of(*folders)), scripts=3)
    assert found.text.count("seen") >= 2
    assert found.tags["b"] <= 20
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found.text)


@pytest.mark.parametrize("marker", [MARKER, CLOSING], ids=["markup", "closing"])
def test_notebooks_show_text_too(marker):
    ledger = Ledger((Entry("memory", "unit", 1, 2, attribution="a", cause="b"), Entry("flops", "unit", None, 2)))
    records = {
        plan_table: Plan("gpt", "", {}, 1_000, 8192, 1, 30, steady=STEADY),
        profile_table: PROFILE,
        watched_table: WATCHED,
        run_table: RUN,
        ledger_table: ledger,
    }
    for table, record in records.items():
        refuse_live(table(hostile(record, marker)), scripts=0)
    refuse_live(ledger_table(hostile(Ledger((Entry("memory", "unit", None, 2),)), marker)), scripts=0)
    refuse_live(html_table([marker, marker], [[marker, marker]]), scripts=0)


def test_a_choice_that_python_let_through_is_escaped(tmp_path):
    """JSON with another severity is refused when it is read; a record made in Python is not."""
    report = report_of(hostile_run(tmp_path / "a", ""))
    sheet = report.sheets[0]
    wrong = Finding("a", MARKER, "s", "w", "y", "r")
    sheet = replace(sheet, first=wrong, findings=Findings("r", (), (wrong,)))
    refuse_live(page(replace(report, sheets=(sheet,))), scripts=3)


def test_figures_take_no_markup_of_records(tmp_path):
    """Plotly draws links and tags and fills in templates: none of a record's is left, in pages and in pictures."""
    found = titled_figures(report_of(hostile_run(tmp_path / f"a{MARKER.replace('/', '')}", MARKER)))

    def texts(value):
        if isinstance(value, dict):
            return [text for each in value.values() for text in texts(each)]
        if isinstance(value, list | tuple):
            return [text for each in value for text in texts(each)]
        return [value] if isinstance(value, str) else []

    own = re.compile(r"</?(br|extra)>|%\{(text|id|customdata|fullData\.name|percentRoot:\.1%)\}")
    left = [own.sub("", text) for text in texts(found)]
    assert any("&lt;img" in text for text in left)
    assert not [text for text in left if "<" in text or "%{" in text]


def test_the_policy_names_its_own_scripts(tmp_path):
    written = page(report_of(hostile_run(tmp_path / "a", "")))
    policy = re.search(r'Policy" content="([^"]*)"', written)[1]
    rules = dict(part.strip().split(" ", 1) for part in policy.replace("&#x27;", "'").split(";"))
    assert rules["default-src"] == rules["connect-src"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/=]{44}' ?){2}", rules["script-src"])


@in_a_browser
def test_a_browser_runs_and_asks_for_nothing(tmp_path):
    """Both markers, in one page of two runs, under its policy."""
    folders = [hostile_run(tmp_path / f"a{MARKER}", MARKER), hostile_run(tmp_path / "b", CLOSING)]
    write_page(report_of(*folders), file := tmp_path / "report.html")
    shown, complaints, asked = browse(file, tmp_path)
    assert complaints == []
    assert asked == []
    found = refuse_live(shown, scripts=3)
    assert "<title>ran" not in shown
    assert shown.count('class="main-svg"') >= 20
    assert "onerror=document.title" in found.text


HOVER = """<script>
for (const chart of document.querySelectorAll(".chart")) {
  for (const slice of chart.querySelectorAll(".slice")) {
    for (const kind of ["mouseover", "mousemove"]) slice.dispatchEvent(new MouseEvent(kind, {bubbles: true}));
  }
  if (chart._fullLayout._has("cartesian")) {
    Plotly.Fx.hover(chart, chart.data.map((_, number) => ({curveNumber: number, pointNumber: 0})));
  }
}
document.body.append(`hovered ${document.querySelectorAll(".hovertext, .hoverlayer text").length}`);
</script>"""


@in_a_browser
def test_what_is_shown_under_a_pointer_is_text(tmp_path):
    """Labels that plotly makes when a pointer comes near. Without its policy, so that a script can be the pointer."""
    write_page(report_of(hostile_run(tmp_path / "a", MARKER)), file := tmp_path / "report.html")
    file.write_text(re.sub(r"<meta http-equiv[^>]*>", "", file.read_text()).replace("</body>", HOVER + "</body>"))
    shown, complaints, asked = browse(file, tmp_path)
    assert complaints == []
    assert asked == []
    refuse_live(shown, scripts=4)
    assert "<title>ran" not in shown
    assert int(re.search(r"hovered (\d+)", shown)[1]) >= 5


@in_a_browser
def test_the_policy_stops_a_script_that_is_not_its_own(tmp_path):
    """If escaping ever failed, the policy would still hold."""
    write_page(report_of(hostile_run(tmp_path / "a", "")), file := tmp_path / "report.html")
    bad = "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">"
    bad += "<img src=http://127.0.0.1:9/x.png><form action=http://127.0.0.1:9/></form>"
    file.write_text(file.read_text().replace("<main>", f"<main>{bad}"))
    shown, complaints, asked = browse(file, tmp_path)
    assert "<title>ran" not in shown
    assert asked == []
    assert any("Content Security Policy" in each for each in complaints)
    assert shown.count('class="main-svg"') >= 10
