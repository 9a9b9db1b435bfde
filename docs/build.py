"""Builds the site from docs/ with `python docs/build.py`: pages, reference, course. A broken link fails the build."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from colours import colour_site
from course_pages import write_course
from links import broken_links
from pictures import make_pictures
from reference_pages import write_reference

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SECTIONS = {  # folder to title, in the order of the tabs
    "guide": "Guide",
    "learn": "Learn",
    "checks": "Checks",
    "reference": "Reference",
    "how": "How it works",
    "measured": "Measured",
}
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
"""A link of Markdown to a file: its text, and the path."""


class BrokenSite(SystemExit):
    """Ends the command with 1 and the reasons."""

    def __init__(self, reasons: list[str]):
        super().__init__("\n".join(reasons))


def stage(source: Path, to: Path, *, execute: bool) -> None:
    """Copies written pages and makes the others. Links that leave docs/ become text: the site has no such files."""
    keep_out = shutil.ignore_patterns("*.py", "*.tsv", "*.txt", "mkdocs.yml", "__pycache__", ".*")
    shutil.copytree(source, to, ignore=keep_out)
    if execute and (to / "pictures").exists():
        make_pictures(to / "pictures")
    write_reference(to / "reference", ROOT / "src")
    write_course(source / "learn", to / "learn", execute=execute)
    for page in to.rglob("*.md"):
        page.write_text(_without_outer_links(page, to), encoding="utf-8")


def _without_outer_links(page: Path, root: Path) -> str:
    def inside(target: str) -> bool:
        return Path(os.path.normpath(page.parent / target)).is_relative_to(root)

    text = page.read_text(encoding="utf-8")
    return LINK.sub(lambda link: link[0] if inside(link[2]) else link[1], text)


def linked_pages(index: Path) -> dict[Path, tuple[str, str]]:
    """The pages below an index that it links to, in the order of its links: the heading above, and what it calls them.

    A page that is linked above the first heading stands under none.
    """
    pages: dict[Path, tuple[str, str]] = {}
    for part in re.split(r"^## ", "\n" + index.read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading = part.partition("\n")[0]
        for text, target in LINK.findall(part):
            page = index.parent / target
            if ".." not in target and page.suffix == ".md" and page != index and page.exists():
                pages.setdefault(page, (heading, text.replace("`", "")))
    return pages


def section_nav(folder: Path) -> list[object]:
    """A section's index, then its pages under the index's headings. A page that it does not name is an error."""
    index = folder / "index.md"
    pages = linked_pages(index)
    lost = sorted(set(folder.rglob("*.md")) - {index, *pages})
    if lost:
        forgotten = f"{folder.name}/index.md does not link to it"
        raise BrokenSite([f"{page.relative_to(folder.parent)}: {forgotten}" for page in lost])
    nav: list[object] = [f"{folder.name}/index.md"]
    groups: dict[str, list[object]] = {}
    for page, (heading, title) in pages.items():
        entry = {title: page.relative_to(folder.parent).as_posix()}
        (groups.setdefault(heading, []) if heading else nav).append(entry)
    return [*nav, *({title: entries} for title, entries in groups.items())]


def write_configuration(staged: Path) -> Path:
    """The settings in docs/mkdocs.yml, and the pages."""
    settings = yaml.safe_load((DOCS / "mkdocs.yml").read_text(encoding="utf-8"))
    nav: list[object] = [{"Start": "index.md"}]
    nav += [{title: section_nav(staged / name)} for name, title in SECTIONS.items() if (staged / name).exists()]
    settings |= {"docs_dir": staged.name, "site_dir": "site", "nav": [*nav, {"Log": "log.md"}]}
    file = staged.parent / "mkdocs.yml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return file


def build(source: Path, site: Path, *, execute: bool = True) -> None:
    """The whole site, or BrokenSite. A site that stood there stays until the new one is whole."""
    with TemporaryDirectory() as work:
        staged = Path(work) / "pages"
        stage(source, staged, execute=execute)
        made = _generated(write_configuration(staged))
        colour_site(made)
        broken = list(broken_links(made))
        if broken:
            raise BrokenSite(broken)
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(made, site)


def _generated(configuration: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(configuration)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stdout + done.stderr.partition("Traceback (most recent call last)")[0]
        raise BrokenSite([re.sub(r"\x1b\[[0-9;]*m", "", said)])
    return configuration.parent / "site"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site", help="where to write the site")
    parser.add_argument("--source", type=Path, default=DOCS, help="the pages")
    parser.add_argument("--no-execute", action="store_true", help="leave out what the course prints; takes seconds")
    chosen = parser.parse_args()
    build(chosen.source.resolve(), chosen.to.resolve(), execute=not chosen.no_execute)
    pages = sum(1 for _ in chosen.to.rglob("*.html"))
    print(f"{pages} pages in {chosen.to}; open {chosen.to / 'index.html'}")


if __name__ == "__main__":
    main()
