"""What a run is identified by: its data, its code, its checkpoints and its log. What was changed is refused by name."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.checkpoint.store import Checkpoints
from surefoot.data import identity
from surefoot.data.content import MOST_BYTES, content_hash
from surefoot.data.identity import ITEMS, SECONDS, identity_of
from surefoot.errors import CheckpointError, RecipeError, ReplayError, RunError
from surefoot.recipe.sources import Function
from surefoot.records.compared import unlike
from surefoot.records.run import read_run, write_run
from surefoot.training.own_code import module_digests

pytestmark = pytest.mark.sweep

VALUES = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


def recipe(values: torch.Tensor = VALUES, **changes) -> Recipe:
    made = Recipe(
        model=lambda: nn.Linear(4, 1),
        data=lambda: TensorDataset(values),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        micro_batch_size=8,
        max_steps=8,
        save_every=2,
        name="identified",
    )
    return dataclasses.replace(made, **changes)


class Stop(Exception):
    pass


def stopped(made: Recipe, path: Path, step: int = 5) -> Path:
    def tell(run, row):
        if row.step == step:
            raise Stop

    with pytest.raises(Stop):
        surefoot.train(made, path=str(path), tell=tell)
    return path


# ------------------------------------------------------------------------------------------- data


def test_other_values_of_the_same_length_are_refused(tmp_path):
    stopped(recipe(), tmp_path / "run")
    with pytest.raises(
        RunError, match="the data has changed since the run began: it was 200 samples, 64 of them with digest"
    ):
        surefoot.train(recipe(VALUES * 100), path=str(tmp_path / "run"))
    assert surefoot.train(recipe(VALUES * 100), path=str(tmp_path / "run"), accept_change=True).status == "finished"


def test_other_evaluation_data_are_refused(tmp_path):
    evaluated = {"evaluate_every": 2, "evaluation_batches": 1}
    stopped(recipe(evaluation=lambda: TensorDataset(VALUES), **evaluated), tmp_path / "run")
    with pytest.raises(RunError, match="the evaluation data has changed since"):
        surefoot.train(recipe(evaluation=lambda: TensorDataset(VALUES + 1), **evaluated), path=str(tmp_path / "run"))


class Lazy(Dataset):
    """Opens its file on the first read, as data sets for workers do, and notes in which processes that was."""

    def __init__(self, note: Path) -> None:
        self.note, self.opened = note, False

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int):
        import os

        if not self.opened:
            self.opened = True
            with self.note.open("a") as file:
                file.write(f"{os.getpid()}\n")
        return (torch.full((4,), float(number)),)


def test_data_that_workers_read_is_not_opened_in_the_trainer(tmp_path):
    import os

    surefoot.train(recipe(data=lambda: Lazy(tmp_path / "opened"), workers=1), path=str(tmp_path / "run"))
    assert str(os.getpid()) not in (tmp_path / "opened").read_text().split()


class Augmented(Dataset):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int):
        return number + torch.randn(3)


class Unstable(Augmented):
    def __getitem__(self, number: int):
        return number, time.perf_counter_ns()


class Stream(IterableDataset):
    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self):
        return iter(range(self.first, 10**9))


class ReadOnce(IterableDataset):
    def __init__(self) -> None:
        self.items = iter(range(100))

    def __iter__(self):
        return self.items


def test_items_that_draw_have_one_identity_and_those_that_change_have_none_of_their_own():
    assert identity_of(Augmented()) == identity_of(Augmented())
    assert identity_of(Augmented(), seed=1) != identity_of(Augmented())
    assert identity_of(Unstable()) == identity_of(Unstable())


def test_a_stream_is_known_by_its_first_items():
    assert identity_of(Stream(0)) == identity_of(Stream(0)) != identity_of(Stream(1))
    once = ReadOnce()
    assert identity_of(once).items == 0
    assert next(iter(once)) == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_data_set_is_read_for_about_half_a_second_and_then_as_far_again(workers: int):
    class Slow(Augmented):
        def __getitem__(self, number: int):
            time.sleep(0.06)  # time itself: reading is stopped by the clock
            return number

    began = time.perf_counter()
    identity = identity_of(Slow(), workers=workers)
    assert time.perf_counter() - began < SECONDS + 0.5
    assert 1 <= identity.items < ITEMS
    assert identity_of(Slow(), workers=workers, items=identity.items) == identity


def test_a_data_set_with_a_name_is_not_read():
    class Named(Augmented):
        def identity(self) -> str:
            return "corpus 12ab"

        def __getitem__(self, number: int):
            raise AssertionError

    assert str(identity_of(Named())) == "corpus 12ab"


# ------------------------------------------------------------------------------------------- a few, or all of them

MANY = (torch.arange(5000.0) / 5000).view(-1, 1).expand(-1, 4).contiguous()


def swapped(values: torch.Tensor, one: int, other: int) -> torch.Tensor:
    made = values.clone()
    made[[one, other]] = made[[other, one]]
    return made


def unread() -> tuple[int, int]:
    """Two samples of 5,000 that are not among the 64."""
    read = {int(part.partition(":")[0]) for part in identity_of(TensorDataset(MANY)).hashes.split()}
    one, other, *_ = [number for number in range(1000, 5000) if number not in read]
    return one, other


def test_two_swapped_samples_are_refused_by_name_if_all_are_compared(tmp_path):
    one, other = unread()
    folder = stopped(recipe(MANY, data_identity="all"), tmp_path / "run")
    with pytest.raises(RunError, match=rf"the data has changed since .*; sample {one} differs, and 1 more\n"):
        surefoot.train(recipe(swapped(MANY, one, other), data_identity="all"), path=str(folder))
    assert surefoot.train(recipe(MANY, data_identity="all"), path=str(folder)).status == "finished"


def test_two_swapped_samples_outside_of_the_64_are_not_seen_by_default(tmp_path):
    """As docs/how/security.md says. The steps that are repeated would show them, if they were among their samples."""
    folder = stopped(recipe(MANY), tmp_path / "run")
    assert surefoot.train(recipe(swapped(MANY, *unread())), path=str(folder)).status == "finished"


def test_a_sample_among_the_64_is_refused_by_name(tmp_path):
    number = int(identity_of(TensorDataset(MANY)).hashes.split()[3].partition(":")[0])
    changed = MANY.clone()
    changed[number] += 1
    folder = stopped(recipe(MANY), tmp_path / "run")
    with pytest.raises(RunError, match=rf"; sample {number} differs\n"):
        surefoot.train(recipe(changed), path=str(folder))


def test_of_many_samples_the_neighbours_share_a_hash(monkeypatch):
    monkeypatch.setattr(identity, "MOST_HASHES", 100)
    whole = identity_of(TensorDataset(VALUES), whole=True)
    assert (whole.items, whole.group, len(whole.hashes.split())) == (200, 2, 100)
    other = identity_of(TensorDataset(swapped(VALUES, 7, 150)), whole=True)
    assert whole.first_unlike(other) == "one of the 2 samples from 6 on differs, and 1 more such groups"
    assert not whole.is_same(other)
    assert whole.is_same(identity_of(TensorDataset(VALUES), whole=True, workers=1))


def test_a_switch_between_the_two_is_a_change_of_the_recipe(tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    with pytest.raises(RunError, match="data_identity was 'sample' and is 'all'"):
        surefoot.train(recipe(data_identity="all"), path=str(folder))
    run = surefoot.train(recipe(data_identity="all"), path=str(folder), accept_change=True)
    assert run.data_identity.items == 200


@pytest.mark.parametrize("data", [Stream(0), Function(lambda number, size: torch.zeros(size, 4))], ids=["s", "f"])
def test_data_without_an_end_cannot_be_compared_whole(data, tmp_path):
    with pytest.raises(RecipeError, match="data_identity='all' reads every sample of a data set, and this is"):
        surefoot.train(recipe(data=lambda: data, data_identity="all"), path=str(tmp_path / "run"))
    with pytest.raises(RecipeError, match="data_identity 'some' is not one of sample, all"):
        recipe(data_identity="some")


def test_a_run_of_an_older_surefoot_still_resumes(tmp_path):
    """Its record has no hashes of single samples, and its settings say nothing of the identity."""
    folder = stopped(recipe(), tmp_path / "run")
    run = read_run(folder)
    settings = {name: value for name, value in run.settings.items() if name != "data_identity"}
    old = dataclasses.replace(run.data_identity, hashes="")
    write_run(dataclasses.replace(run, data_identity=old, settings=settings))
    with pytest.raises(RunError, match="the data has changed since the run began: it was 200 samples, 64 of them with"):
        surefoot.train(recipe(VALUES * 2), path=str(folder))
    assert surefoot.train(recipe(), path=str(folder)).status == "finished"


def test_compare_invents_no_difference_of_data_from_the_number_of_samples_read(tmp_path):
    runs = [surefoot.train(recipe(), path=str(tmp_path / name)) for name in ("one", "two")]
    few = identity_of(TensorDataset(VALUES), items=5)
    shorter = dataclasses.replace(runs[1], data_identity=few)
    assert unlike(runs[0], shorter) == unlike(shorter, runs[0]) == ()
    other = dataclasses.replace(runs[1], data_identity=identity_of(TensorDataset(VALUES + 1), items=5))
    [found] = unlike(runs[0], other)
    assert (found.what, found.second.endswith(" differs, and 4 more")) == ("data", True)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_two_identities_agree_exactly_where_both_have_looked(values, read, also, whole):
    """The same prefix of one order: a run that read fewer samples is judged by those."""
    data = TensorDataset(torch.tensor(values))
    changed = TensorDataset(torch.tensor([values[0] + 1, *values[1:]]))
    one = identity_of(data, items=min(read, len(values)))
    assert one.is_same(identity_of(data, items=min(also, len(values)), whole=whole))
    other = identity_of(changed, items=min(also, len(values)), whole=whole)
    seen = all("0" in [part.partition(":")[0] for part in each.hashes.split()] for each in (one, other))
    assert one.is_same(other) == (not seen)


WORDS = st.text("ab", max_size=5)
CONTENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(CONTENTS, CONTENTS)
def test_contents_hash_alike_only_where_they_are_alike(one, other):
    assert (content_hash(one) == content_hash(other)) == (repr(one) == repr(other))


def test_a_value_a_shape_and_a_dtype_change_the_hash():
    base = torch.arange(12.0)
    others = [base.view(3, 4), base.double(), base.int(), base + 1, base.flip(0), base.to(torch.bfloat16), base.numpy()]
    hashes = [content_hash(each) for each in [base, *others, [base], {"a": base}, {"b": base}]]
    assert len(set(hashes)) == len(hashes)
    assert content_hash(base.view(3, 4).T) == content_hash(base.view(3, 4).T.contiguous())
    assert content_hash(base.view(4, 3)[:, 1]) == content_hash(base.view(4, 3)[:, 1].contiguous())


def test_large_tensors_are_hashed_in_pages_over_all_of_them():
    large = torch.zeros(3 * MOST_BYTES // 4)
    changed = large.clone()
    changed[-1024:] = 1
    assert content_hash(large) != content_hash(changed)


# ------------------------------------------------------------------------------------------- a step that differs


def test_a_replayed_step_says_that_its_batch_was_different(tmp_path):
    class Fickle(Augmented):
        """Its values depend on how often it was made: the sample that is read for its identity does not tell."""

        made = 0

        def __init__(self) -> None:
            Fickle.made += 1
            self.which, self.reads = Fickle.made, 0

        def __getitem__(self, number: int):
            self.reads += 1
            return (torch.full((4,), float(self.which if self.reads > 2 * ITEMS else 0)),)

    stopped(recipe(data=Fickle), tmp_path / "run")
    with pytest.raises(ReplayError, match="the batch was different: the same samples had other values"):
        surefoot.train(recipe(data=Fickle), path=str(tmp_path / "run"))


def test_a_replayed_step_says_that_only_the_arithmetic_differed(tmp_path):
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return super().forward(x) * Counting.calls

    counting = recipe(model=lambda: Counting(4, 1))
    stopped(counting, tmp_path / "run")
    with pytest.raises(ReplayError, match="the batch was the same, so the arithmetic differed"):
        surefoot.train(counting, path=str(tmp_path / "run"))


# ------------------------------------------------------------------------------------------- code

RECIPE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from surefoot import Recipe
import helpers

def mine() -> Recipe:
    from parts.inner import width
    return Recipe(
        model=lambda: nn.Linear(4, width),
        data=lambda: TensorDataset(torch.randn(64, 4)),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=helpers.LR),
        micro_batch_size=8, max_steps=6, save_every=2,
    )
"""
FILES = {"recipe.py": RECIPE, "helpers.py": "LR = 0.01\n", "parts/__init__.py": "", "parts/inner.py": "width = 1\n"}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def command(project: Path, *words: str, kill_at: int | None = None) -> subprocess.CompletedProcess:
    """`surefoot train` in a process of its own; `kill_at` kills it after a step."""
    program = "import sys; from surefoot.cli.main import main; main()"
    if kill_at is not None:
        program = (
            "import os, sys; from surefoot.training.run_writer import RunWriter; append = RunWriter.append\n"
            "def killed(self, row):\n"
            f"    append(self, row)\n    if row.step == {kill_at}: os.kill(os.getpid(), 9)\n"
            "RunWriter.append = killed\nfrom surefoot.cli.main import main; main()"
        )
    line = [sys.executable, "-c", program, "train", "recipe.py", "--run", "run", "--no-plan", *words]
    return subprocess.run(line, cwd=project, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("helpers.py", "LR = 0.02\n", True),
        ("parts/inner.py", "width = 2\n", True),
        ("helpers.py", "LR = 0.01  # a comment\n", False),
        ("unrelated.py", "LR = 1\n", False),
    ],
)
def test_a_changed_module_of_the_recipe_is_refused(project, name: str, text: str, refused: bool):
    assert command(project, kill_at=5).returncode == -9
    (project / name).write_text(text)
    done = command(project)
    said = " ".join(done.stderr.split())
    assert (f"the code in {name}, which the recipe imports, has changed" in said) == refused, said
    assert done.returncode == (2 if refused else 0), said


def test_the_recipe_of_a_package_and_installed_modules(tmp_path, monkeypatch):
    for name, text in {
        "here/project/__init__.py": "",
        "here/project/recipes/__init__.py": "",
        "here/project/recipes/one.py": "from ..model import Net\nfrom project import data\nimport torch, surefoot\n",
        "here/project/model.py": "class Net: ...\n",
        "here/project/data.py": "import project.deep.inner\n",
        "here/project/deep/inner.py": "x = 1\n",
        "elsewhere/outside.py": "y = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    source = tmp_path / "here/project/recipes/one.py"
    inside = {"__init__.py", "model.py", "data.py", "deep/inner.py"}
    assert set(module_digests(source)) == {f"project/{name}" for name in inside}
    source.write_text("import outside\n")
    assert set(module_digests(source)) == {"../elsewhere/outside.py"}


# ------------------------------------------------------------------------------------------- checkpoints and log


def test_deleted_checkpoints_are_refused(tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    for path in (folder / "checkpoints").glob("step-*"):
        shutil.rmtree(path)
    with pytest.raises(RunError, match="holds no checkpoint, but the run saved step 4: somebody deleted it"):
        surefoot.train(recipe(), path=str(folder))
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(RunError, match="somebody deleted it"):
        surefoot.train(recipe(), path=str(folder))
    assert surefoot.train(recipe(), path=str(folder), accept_change=True).status == "finished"


def test_a_run_that_was_killed_before_its_first_save_begins_again(tmp_path):
    folder = stopped(recipe(), tmp_path / "run", step=1)
    assert surefoot.train(recipe(), path=str(folder)).status == "finished"


def test_a_deleted_log_is_refused(tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    (folder / "log.jsonl").unlink()
    with pytest.raises(RunError, match=r"log\.jsonl is missing"):
        surefoot.train(recipe(), path=str(folder))


@pytest.mark.parametrize("row", [0, 2, 3])
def test_a_log_with_a_row_missing_is_refused(row: int, tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    rows = (folder / "log.jsonl").read_text().splitlines(keepends=True)
    (folder / "log.jsonl").write_text("".join(rows[:row] + rows[row + 1 :]))
    with pytest.raises(RunError, match=rf"has no row, or a misplaced one, for 1 step: {row + 1};"):
        surefoot.train(recipe(), path=str(folder))
    assert surefoot.train(recipe(), path=str(folder), accept_change=True).status == "finished"


@pytest.mark.parametrize("change", [lambda rows: rows[:2] + rows[3:], lambda rows: [rows[1], rows[0], *rows[2:]]])
def test_the_log_of_a_finished_run_with_a_row_missing_or_moved_is_refused(change, tmp_path):
    run = surefoot.train(recipe(), path=str(tmp_path / "run"))
    assert surefoot.train(recipe(), path=run.path).status == "finished"
    run.log.write_text("".join(change(run.log.read_text().splitlines(keepends=True))))
    with pytest.raises(RunError, match="has no row, or a misplaced one, for"):
        surefoot.train(recipe(), path=run.path)


def test_a_record_that_claims_steps_without_end_is_refused_at_once(tmp_path):
    run = surefoot.train(recipe(), path=str(tmp_path / "run"))
    record = Path(run.path) / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "steps": 2**63, "digest": ""}))
    with pytest.raises(RunError, match=r"for 9,223,372,036,854,775,80. steps: "):
        surefoot.train(recipe(), path=run.path)


def test_rows_that_were_given_up_are_not_asked_for_again(tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    (folder / "log.jsonl").unlink()

    def tell(run, row):
        if row.step == 7:
            raise Stop

    with pytest.raises(Stop):
        surefoot.train(recipe(), path=str(folder), accept_change=True, tell=tell)
    assert surefoot.train(recipe(), path=str(folder)).status == "finished"


def test_the_last_row_may_be_missing_as_after_a_power_cut(tmp_path):
    folder = stopped(recipe(), tmp_path / "run")
    rows = (folder / "log.jsonl").read_text().splitlines(keepends=True)
    (folder / "log.jsonl").write_text("".join(rows[:-1]))
    assert surefoot.train(recipe(), path=str(folder)).status == "finished"


def test_saves_that_fail_do_not_reset_the_count_of_failed_starts(tmp_path, monkeypatch):
    def refuse(self, *_):
        raise CheckpointError("no space left on device")

    monkeypatch.setattr(Checkpoints, "_publish", refuse)
    for start in (1, 2, 3):
        stopped(recipe(), tmp_path / "run")
        assert read_run(tmp_path / "run").failures == start
    with pytest.raises(RunError, match="failed 3 times in a row without progress"):
        surefoot.train(recipe(), path=str(tmp_path / "run"))


def test_packages_beside_an_installed_recipe_are_not_its_own_code(tmp_path):
    installed = tmp_path / "site-packages"
    (installed / "recipes").mkdir(parents=True)
    (installed / "recipes" / "__init__.py").touch()
    (installed / "recipes" / "mine.py").write_text("import large\n")
    (installed / "large.py").write_text("import larger\n")
    (installed / "larger.py").touch()
    assert module_digests(installed / "recipes" / "mine.py") == {}
    installed.rename(tmp_path / "project")
    assert set(module_digests(tmp_path / "project" / "recipes" / "mine.py")) == {"large.py", "larger.py"}
