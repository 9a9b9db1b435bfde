"""Makes the course: a script docs/learn/NN_name.py becomes a page with what its cells print, and a notebook."""

import copy
import re
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode

SECONDS_A_CELL = 120
BLANK = {"code": "# Your solution.", "markdown": "*Your answer.*"}


def write_course(scripts: Path, to: Path, *, execute: bool) -> None:
    """All chapters that are there, and their list below the text of the section's index."""
    chapters = [write_chapter(script, to, execute=execute) for script in sorted(scripts.glob("[0-9][0-9]_*.py"))]
    index = to / "index.md"
    if not index.exists():
        return
    rows = [f"- [{title}]({name}.md)" for name, title in chapters]
    index.write_text("\n".join([index.read_text(encoding="utf-8").rstrip(), "", *rows, ""]), encoding="utf-8")


def write_chapter(script: Path, to: Path, *, execute: bool) -> tuple[str, str]:
    """The page and the notebook of one script. Returns their name and the chapter's title."""
    notebook = jupytext.read(script)
    notebook.metadata["language_info"] = {"name": "python"}  # pages colour its code
    if execute:
        run(notebook, to.parent.parent / "ran" / script.stem)
    nbformat.write(without_solutions(notebook), to / f"{script.stem}.ipynb")
    exporter = MarkdownExporter()
    files = {"unique_key": script.stem, "output_files_dir": f"{script.stem}_files"}
    text, made = exporter.from_notebook_node(with_folded_solutions(notebook), resources=files)
    for name, content in made["outputs"].items():
        (to / name).parent.mkdir(exist_ok=True)
        (to / name).write_bytes(content)
    text = with_links_to_pages(text, script.parent)
    title = next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ").strip()
    head, _, body = text.partition(f"# {title}")
    page = f"{head}# {title}\n\n[Download this chapter as a notebook]({script.stem}.ipynb)\n{body}"
    (to / f"{script.stem}.md").write_text(page, encoding="utf-8")
    return script.stem, title


def run(notebook: NotebookNode, folder: Path) -> None:
    """Executes all cells in an empty folder. A cell that raises ends the build, with its traceback."""
    folder.mkdir(parents=True)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,  # what a cell prints comes in pieces, by how busy the machine is
    )
    client.execute()


def is_solution(cell: NotebookNode) -> bool:
    return "solution" in cell.metadata.get("tags", [])


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """A copy in which the reader's part is still to be written."""
    blanked = copy.deepcopy(notebook)
    for cell in filter(is_solution, blanked.cells):
        cell.source = BLANK[cell.cell_type]
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return blanked


def with_folded_solutions(notebook: NotebookNode) -> NotebookNode:
    """A copy in which a solution is shown when the reader asks for it."""
    folded = copy.deepcopy(notebook)
    folded.cells = [part for cell in folded.cells for part in (_fold(cell) if is_solution(cell) else [cell])]
    return folded


def _fold(cell: NotebookNode) -> list[NotebookNode]:
    before = nbformat.v4.new_markdown_cell('<details markdown="1"><summary>Solution</summary>\n')
    return [before, cell, nbformat.v4.new_markdown_cell("</details>")]


def with_links_to_pages(text: str, scripts: Path) -> str:
    """A link to the script of another chapter leads to its page; to one that is missing, it becomes text."""
    return re.sub(
        r"\[([^\]]+)\]\((\d\d_\w+)\.py\)",
        lambda link: f"[{link[1]}]({link[2]}.md)" if (scripts / f"{link[2]}.py").exists() else link[1],
        text,
    )
