"""Prints Flesch's reading ease of every page, 0 to 100: `python docs/reading_ease.py`. A thermometer, not the aim."""

import re
from pathlib import Path
from statistics import median

import jupytext
import textstat

DOCS = Path(__file__).parent
TARGET = 50  # of the median over guide and course; newspapers are at 50 to 60, papers at 20 to 40
LEAST_WORDS = 30  # a page with less prose has no score
NOT_PROSE = (
    r"\A---\n.*?\n---\n",  # front matter
    r"```.*?```",  # code
    r"<!--.*?-->",
    r"^\s*\|.*$",  # tables
    r"^#+ .*$",  # headings
    r"^ {4,}\S.*$",  # code that is indented
    r"<[a-z/][^>]*>",
)


def prose_of(text: str) -> str:
    """The sentences of a page in Markdown. Code inside one counts as a short word; an item of a list is a sentence."""
    for pattern in NOT_PROSE:
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE if pattern.startswith("`") else re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]+`", "it", text)
    text = re.sub(r"(?<=\w)[.,](?=\w)|\.\.\.", "", text)  # textstat would end a sentence inside of 2.13.0
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    whole = (" ".join(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", each).replace("*", "").split()) for each in paragraphs)
    return "\n".join(each if each[-1] in ".?!" else f"{each.rstrip(':;,')}." for each in whole if each)


def text_of(file: Path) -> str:
    """A page, or the Markdown cells of a chapter."""
    if file.suffix == ".md":
        return file.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in jupytext.read(file).cells if cell.cell_type == "markdown")


def ease_of(file: Path) -> float | None:
    """Flesch's reading ease, or none where there is hardly any prose."""
    prose = prose_of(text_of(file))
    return textstat.flesch_reading_ease(prose) if len(prose.split()) >= LEAST_WORDS else None


def pages(docs: Path) -> list[Path]:
    """Everything that a person wrote: no pages of checks, no tree."""
    texts = [page for page in docs.rglob("*.md") if "checks" not in page.parts and page.name != "tree.md"]
    return sorted([*texts, *(docs / "learn").glob("[0-9][0-9]_*.py")])


def main() -> None:
    scores = {page.relative_to(DOCS): ease_of(page) for page in pages(DOCS)}
    for page, score in scores.items():
        print(f"{page.as_posix():36} {'-' if score is None else f'{score:.0f}':>4}")
    taught = [score for page, score in scores.items() if score is not None and page.parts[0] in ("guide", "learn")]
    print(f"RESULT median={median(taught):.1f} pages={len(taught)} target={TARGET}")


if __name__ == "__main__":
    main()
