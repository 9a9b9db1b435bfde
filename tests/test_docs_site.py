"""The site builds strictly, broken links fail it, a chapter becomes a page and a notebook, guide pages are short."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))


def built(to: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`python docs/build.py`, as a person runs it."""
    command = [sys.executable, str(DOCS / "build.py"), "--no-execute", "--to", str(to), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_the_site_builds_strictly_and_soon(tmp_path: Path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = built(tmp_path / "site")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert after.ru_utime - before.ru_utime < 20  # seconds of a processor: the clock counts what else runs here
    for page in ("index", "log", "guide/plan", "checks/index", "reference/plan", "reference/python", "measured/index"):
        assert (tmp_path / "site" / f"{page}.html").exists()


def little_docs(folder: Path, text: str) -> Path:
    """Pages of which a site can be made, and hardly any."""
    docs = folder / "docs"
    (docs / "learn").mkdir(parents=True)
    (docs / "index.md").write_text(f"# Front\n\n{text}\n")
    (docs / "log.md").write_text("# Log\n")
    (docs / "learn" / "index.md").write_text("# Learn\n")
    return docs


def test_a_broken_link_fails(tmp_path: Path):
    docs = little_docs(tmp_path, "[gone](gone.md) and [gone](log.md#gone)")
    done = built(tmp_path / "site", "--source", str(docs))
    assert done.returncode == 1
    assert "page does not exist" in done.stderr
    assert "anchor does not exist" in done.stderr
    assert not (tmp_path / "site").exists()


@pytest.fixture
def docs_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts in docs/ can be imported."""
    monkeypatch.syspath_prepend(DOCS)


@pytest.mark.usefixtures("docs_module")
@pytest.mark.parametrize(
    ("planted", "named"),
    [
        ('<img src="gone.png">', "index.html: gone.png leads to no file"),
        ('<a href="log.html#gone">', "index.html: log.html#gone names an anchor that is not there"),
        (
            '<script src="https://example.org/a.js"></script>',
            "index.html loads https://example.org/a.js from elsewhere",
        ),
        ('<a href="log.html#here">', None),
    ],
)
def test_a_page_of_html_is_looked_at_too(tmp_path: Path, planted: str, named: str | None):
    from links import broken_links

    (tmp_path / "index.html").write_text(planted)
    (tmp_path / "log.html").write_text('<h1 id="here">')
    assert list(broken_links(tmp_path)) == ([named] if named else [])


@pytest.mark.usefixtures("docs_module")
def test_pages_stand_in_the_navigation_under_the_headings_of_their_index(tmp_path: Path):
    from build import section_nav

    docs = little_docs(tmp_path, "")
    for name in ("first", "second", "third"):
        (docs / "learn" / f"{name}.md").write_text(f"# {name}\n")
    index = "# Learn\n[One](first.md)\n\n## More\n[Two](second.md) [one](first.md)\n\n## Most\n[Three](third.md)\n"
    (docs / "learn" / "index.md").write_text(index)
    more = [{"More": [{"Two": "learn/second.md"}]}, {"Most": [{"Three": "learn/third.md"}]}]
    assert section_nav(docs / "learn") == ["learn/index.md", {"One": "learn/first.md"}, *more]


@pytest.mark.usefixtures("docs_module")
@pytest.mark.parametrize(
    ("code", "coloured"),
    [
        ('<span class="go">error broadcast-loss</span>', "error"),
        ("warning kept-losses\n  seen    5 graphs", "warning"),
        ("error: no such file", "error"),
        ('<span class="go">gpt does not fit t4, 1 GiB short</span>', "error"),
        ("gpt fits t4, 1 GiB to spare", "good"),
        ('<span class="n">error</span>: a variable', None),
        ("information broadcast-loss", None),
    ],
)
def test_what_commands_print_is_coloured(code: str, coloured: str | None):
    from colours import coloured_page

    made = coloured_page(f"<p>error broadcast-loss</p><pre><span></span><code>{code}</code></pre>")
    assert made.count("surefoot-") == bool(coloured)
    assert f'class="surefoot-{coloured}"' in made or coloured is None


@pytest.mark.usefixtures("docs_module")
def test_a_picture_of_a_terminal_is_coloured_and_loads_nothing():
    from pictures import terminal

    made = terminal("$ surefoot\n\x1b[1;31merror\x1b[0m plain\n")
    assert "fill: #ff7b72" in made
    assert "error" in made
    assert "url(http" not in made


@pytest.mark.usefixtures("docs_module")
def test_a_page_that_its_index_forgets_fails(tmp_path: Path):
    from build import BrokenSite, section_nav

    docs = little_docs(tmp_path, "")
    (docs / "learn" / "more.md").write_text("# More\n")
    with pytest.raises(BrokenSite, match=r"learn/more\.md: learn/index\.md does not link to it"):
        section_nav(docs / "learn")


CHAPTER = """\
# %% [markdown]
# # Tensors
#
# How many? After [the next](02_dtypes.py) comes [none](03_none.py).

# %% tags=["solution"]
answer = 6 * 7

# %%
print("it is", answer)
print("and no more", flush=True)
"""


@pytest.fixture
def course_pages(docs_module: None) -> ModuleType:
    import course_pages

    return course_pages


def test_a_chapter_becomes_a_page_and_a_notebook_without_its_solutions(tmp_path: Path, course_pages: ModuleType):
    docs = little_docs(tmp_path, "")
    (docs / "learn" / "01_tensors.py").write_text(CHAPTER)
    (docs / "learn" / "02_dtypes.py").write_text("# %% [markdown]\n# # Dtypes\n")
    course_pages.write_course(docs / "learn", docs / "learn", execute=True)
    page = (docs / "learn" / "01_tensors.md").read_text()
    assert page.startswith("# Tensors\n\n[Download this chapter as a notebook](01_tensors.ipynb)\n")
    assert "it is 42\n    and no more\n" in page
    assert "```python\n" in page, "its code is coloured"
    assert "After [the next](02_dtypes.md) comes none." in page
    assert page.index("<details") < page.index("answer = 6 * 7") < page.index("</details>") < page.index("it is 42")
    notebook = json.loads((docs / "learn" / "01_tensors.ipynb").read_text())
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sources[0] == "# Your solution."
    assert sources[1].startswith('print("it is", answer)')
    assert "[Tensors](01_tensors.md)" in (docs / "learn" / "index.md").read_text()


def test_a_chapter_that_raises_fails(tmp_path: Path, course_pages: ModuleType):
    docs = little_docs(tmp_path, "")
    (docs / "learn" / "01_tensors.py").write_text(CHAPTER.replace("6 * 7", "6 / 0"))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        course_pages.write_course(docs / "learn", docs / "learn", execute=True)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_guide_page_is_short(page: Path):
    assert len(page.read_text(encoding="utf-8").split()) <= 800
