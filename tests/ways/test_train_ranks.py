"""A run on many ranks: stopped on one rank, gone on with on any number of them and in any layout."""

import json

import pytest
import torch
from safetensors.torch import load_file

from surefoot import load_recipe, read_run
from surefoot.checkpoint.store import Checkpoints
from surefoot.debug.runs.audit import audit
from surefoot.errors import CheckpointError, RunError
from surefoot.meters import allocator
from surefoot.ways.export import export_weights
from tests.ranks import Case, on_ranks
from tests.resumed import state
from tests.ways.ranks import SMALL

pytestmark = pytest.mark.sweep

FSDP, DDP, ONE, HYBRID = (2, []), (2, ["dp_replicate=2"]), (1, []), (4, ["dp_replicate=2"])
WHOLE = {"one": ONE, "fsdp": FSDP, "ddp": DDP}
PIECES = {
    "fsdp-fsdp": (FSDP, FSDP),
    "ddp-ddp": (DDP, DDP),
    "1-ddp-fsdp-hsdp-1": (ONE, DDP, FSDP, HYBRID, ONE),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each run in one piece, and in pieces between which one rank, the last, was asked to stop."""
    folder = tmp_path_factory.mktemp("runs")
    cases = [_case(folder / name, layout) for name, layout in WHOLE.items()]
    for name, layouts in PIECES.items():
        for number, layout in enumerate(layouts):
            last = number + 1 == len(layouts)
            cases.append(_case(folder / name, layout, None if last else (layout[0] - 1, 2 + 2 * number)))
    statuses = on_ranks(cases, folder)
    for case, status in zip(cases, statuses, strict=True):
        assert set(status) == {"finished" if case.arguments[2] is None else "interrupted"}
    return folder


def _case(path, layout, asked=None):
    ranks, words = layout
    return Case("tests.ways.ranks", "trained", ranks, (str(path), words, asked))


@pytest.mark.parametrize("name", ["fsdp", "ddp"])
def test_the_same_layout_goes_on_to_the_same_bits(runs, name):
    whole, pieces = read_run(runs / name), read_run(runs / f"{name}-{name}")
    assert pieces.starts == 2
    assert [row.loss for row in pieces.rows()] == [row.loss for row in whole.rows()]
    expected, found = state(runs / name), state(runs / f"{name}-{name}")
    assert expected.keys() == found.keys()
    for place, leaf in expected.items():
        same = torch.equal(leaf, found[place]) if isinstance(leaf, torch.Tensor) else leaf == found[place]
        assert same, place


@pytest.mark.parametrize("name", [*PIECES, "fsdp", "ddp"])
def test_any_layout_goes_on_with_the_same_samples_and_losses(runs, name):
    one, many = read_run(runs / "one").rows(), read_run(runs / name).rows()
    assert [row.step for row in many] == list(range(1, 12))
    assert [row.samples for row in many] == [row.samples for row in one]
    assert [row.loss for row in many] == pytest.approx([row.loss for row in one], rel=1e-5)


def test_a_signal_to_one_rank_stops_all_after_the_next_step(runs):
    run = read_run(runs / "1-ddp-fsdp-hsdp-1")
    starts = [event.text for event in run.happened() if event.kind == "resumed"]
    assert starts == [f"start {number}, from step-{step:09}" for number, step in enumerate((2, 5, 7, 9), start=2)]


def test_an_audit_takes_steps_again_on_the_ranks_of_the_run(runs, tmp_path):
    cases = [Case("tests.ways.ranks", "audited", 2, (str(runs / "fsdp"), [], flip)) for flip in (False, True)]
    clean, flipped = on_ranks(cases, tmp_path)
    assert clean == [(), ()]
    assert "model.blocks.0.mlp.0.weight" in flipped[0]
    assert flipped[0] == flipped[1]
    with pytest.raises(RunError, match="trained as dp_shard=2, and this is 1 rank"):
        audit(load_recipe("gpt", [*SMALL, "max_steps=11"]), str(runs / "fsdp"))


def test_other_workers_and_micro_batches_go_on_with_the_same_samples_and_draws(tmp_path):
    """The loss of a step is that of its samples as they were drawn, whoever reads them and however they are cut."""
    four, two, read = {"micro_batch_size": 4}, {"micro_batch_size": 2}, {"micro_batch_size": 4, "workers": 2}
    pieces = {"whole": [four], "cut": [four, two], "read": [read, four]}
    cases = [
        Case("tests.ways.ranks", "drawn", 2, (str(tmp_path / name), how, 2 if how is not settings[-1] else None))
        for name, settings in pieces.items()
        for how in settings
    ]
    on_ranks(cases, tmp_path)
    whole, cut, read_by_workers = (read_run(tmp_path / name).rows() for name in pieces)
    assert len(whole) == 6
    for other in (cut, read_by_workers):
        assert [row.samples for row in other] == [row.samples for row in whole]
    assert [row.loss for row in read_by_workers] == [row.loss for row in whole]
    assert [row.loss for row in cut] == pytest.approx([row.loss for row in whole], rel=1e-6)


def test_all_ranks_stop_at_a_nan_and_say_on_which_it_was(tmp_path):
    cases = [Case("tests.ways.ranks", "broken", 2, (str(tmp_path / name),)) for name in ("run",)]
    [said] = on_ranks(cases, tmp_path)
    assert said[0] == said[1]
    assert "the batch itself holds numbers that are not finite" in said[0].lower()
    assert "step 1, rank 1, micro-batch 2, samples " in said[0]
    run = read_run(tmp_path / "run")
    assert run.status == "failed"
    assert "rank 1, micro-batch 2" in run.findings.read_text()


def test_the_weights_are_whole(runs):
    expected = load_file(runs / "one" / "model.safetensors")
    for name in ("fsdp", "ddp"):
        found = load_file(runs / name / "model.safetensors")
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-4, atol=1e-5)


def test_the_shards_of_a_checkpoint_are_put_together_one_file_at_a_time(runs, tmp_path):
    expected = load_file(runs / "fsdp" / "model.safetensors")
    whole = export_weights(str(runs / "fsdp"), to=str(tmp_path / "one"))
    assert [tmp_path / "one" / "model.safetensors"] == [tmp_path / "one" / file for file in whole.files]
    cut = export_weights(str(runs / "fsdp"), to=str(tmp_path / "set"), file_bytes=40_000)
    index = json.loads((tmp_path / "set" / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(cut.files) == len(set(index.values())) > 2
    for found in (load_file(whole.files[0]), {name: load_file(tmp_path / "set" / index[name])[name] for name in index}):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.skipif(not allocator.available(), reason="no C++ compiler to count torch's allocator with")
def test_putting_together_takes_the_memory_of_one_file(runs, tmp_path):
    allocator.install()
    try:
        before = allocator.live_bytes()
        allocator.reset_peak()
        record = export_weights(str(runs / "fsdp"), to=str(tmp_path), file_bytes=40_000)
        peak = allocator.peak_bytes() - before
    finally:
        allocator.uninstall()
    assert peak < 2.2 * 40_000 < record.total_bytes


def test_a_set_that_reads_back_otherwise_is_refused(runs, tmp_path, monkeypatch):
    from surefoot.checkpoint import consolidate

    plain = consolidate.save_file
    spoilt = lambda tensors, *args, **more: plain({name: each + 1 for name, each in tensors.items()}, *args, **more)  # noqa: E731
    monkeypatch.setattr(consolidate, "save_file", spoilt)
    with pytest.raises(CheckpointError, match="reads back damaged"):
        export_weights(str(runs / "fsdp"), to=str(tmp_path))


def test_tied_weights_are_saved_once(runs):
    outline = Checkpoints(read_run(runs / "fsdp").checkpoints).newest().outline()["model"]
    assert outline["head.weight"].name == outline["token.weight"].name
