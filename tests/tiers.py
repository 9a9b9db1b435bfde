"""Which tests run when: the quick tier by file, and the sample of the sweeps by commit."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent

QUICK: dict[str, tuple[str, ...]] = {
    "surefoot": (
        "test_architecture.py",
        "recipe/test_build.py",
        "test_plain_files.py",
        "test_plain_state.py",
        "test_randomness.py",
        "test_step.py",
        "test_tests.py",
        "test_watch.py",
        "test_watch_report.py",
    ),
    "checkpoint": (
        "checkpoint/test_lock.py",
        "checkpoint/test_outline.py",
        "checkpoint/test_paths.py",
        "checkpoint/test_state.py",
        "checkpoint/test_store.py",
    ),
    "checks": (
        "checks/engine/test_attempts.py",
        "checks/engine/test_bus.py",
        "checks/engine/test_failsafe.py",
        "checks/engine/test_findings.py",
        "checks/engine/test_golden.py",
        "checks/engine/test_pages.py",
        "checks/engine/test_traces.py",
        "checks/engine/test_weak_notes.py",
        "checks/evaluation/test_printed_pairs.py",
        "checks/evaluation/test_rules_on_facts.py",
        "checks/gradients/test_rules_on_facts.py",
        "checks/losses/test_negated_loss.py",
        "checks/losses/test_rules_on_facts.py",
        "checks/losses/test_wrong_gaussian_divergence.py",
        "checks/losses/test_wrong_similarity_logits.py",
        "checks/models/test_rules_on_facts.py",
        "checks/precision/test_rules_on_facts.py",
        "checks/ranks/test_rules_on_facts.py",
        "checks/samples/test_rules_on_facts.py",
        "checks/samples/test_scaled_before_split.py",
        "checks/samples/test_target_among_inputs.py",
        "checks/saved_state/test_rules_on_facts.py",
        "checks/test_coverage.py",
        "checks/test_facts.py",
        "checks/test_look_alikes.py",
        "checks/test_rules_on_facts.py",
        "checks/test_twins.py",
        "checks/text/test_rules_on_facts.py",
        "checks/updates/test_rate_unusual_for_method.py",
        "checks/updates/test_rules_on_facts.py",
        "checks/updates/test_swapped_betas.py",
    ),
    "cli": ("test_cli_plan.py", "test_completion.py"),
    "costs": (
        "costs/test_boundary.py",
        "costs/test_budget.py",
        "costs/test_caching_allocator.py",
        "costs/test_compare.py",
        "costs/test_conventions.py",
        "costs/test_diagnosis.py",
        "costs/test_interval.py",
        "costs/test_knapsack.py",
        "costs/test_ledgers.py",
        "costs/test_lr_curve.py",
        "costs/test_pareto.py",
        "costs/test_plan_changes.py",
        "costs/test_rehearsed.py",
        "costs/test_roofline.py",
        "costs/test_shares.py",
        "costs/test_spent.py",
        "costs/test_unroll.py",
    ),
    "data": (
        "data/test_batches.py",
        "data/test_data.py",
        "data/test_formats.py",
        "data/test_held_out.py",
        "data/test_inspect.py",
        "data/test_ledger.py",
        "data/test_mixture.py",
        "data/test_order.py",
        "data/test_packing.py",
        "data/test_paths.py",
        "data/test_shards.py",
        "data/test_sizes.py",
        "data/test_windows.py",
    ),
    "debug": (
        "debug/errors/test_explain.py",
        "debug/errors/test_nonfinite.py",
        "debug/hangs/test_stuck_cause.py",
        "debug/look/test_look.py",
        "debug/memory/test_snapshot.py",
    ),
    "events": ("test_callers.py", "test_phases.py"),
    "exports": ("ways/test_export.py",),
    "finetuning": ("finetuning/test_dpo.py",),
    "hardware": ("hardware/test_datasheet.py",),
    "integrations": (
        "integrations/mcp/test_answers.py",
        "integrations/mcp/test_bounds.py",
        "integrations/mcp/test_tools.py",
        "integrations/writers/test_writers.py",
        "test_integrations.py",
    ),
    "meters": (
        "meters/test_backwards.py",
        "meters/test_beside.py",
        "meters/test_clock.py",
        "meters/test_flops.py",
        "meters/test_fused.py",
        "meters/test_journal.py",
        "meters/test_memory.py",
        "meters/test_pace.py",
        "meters/test_rows.py",
        "meters/test_tokens.py",
        "meters/test_work.py",
    ),
    "planning": (
        "planning/test_rehearse.py",
        "planning/test_repeats.py",
        "planning/test_search_options.py",
    ),
    "recipe": ("test_couplings.py", "recipe/test_load.py", "recipe/test_ranges.py", "recipe/test_returned.py"),
    "recipes": ("recipes/test_llama.py",),
    "records": (
        "records/test_codec.py",
        "records/test_codec_mutated.py",
        "records/test_ledger.py",
        "records/test_run.py",
        "records/test_tally.py",
    ),
    "reports": ("reports/test_html.py", "reports/test_overfit.py", "reports/test_sarif.py", "reports/test_text.py"),
    "source": ("test_owners.py",),
    "techniques": (
        "techniques/test_clip.py",
        "techniques/test_groups.py",
        "techniques/test_mesh.py",
        "techniques/test_precision.py",
        "techniques/test_schedule.py",
    ),
    "torch_inside": (
        "torch_inside/test_as_on_cuda.py",
        "torch_inside/test_autograd.py",
        "torch_inside/test_collectives.py",
        "torch_inside/test_compiled.py",
        "torch_inside/test_ddp.py",
        "torch_inside/test_fake_mode.py",
        "torch_inside/test_fake_ranks.py",
        "torch_inside/test_memory_history.py",
        "torch_inside/test_modes.py",
        "torch_inside/test_modules.py",
        "torch_inside/test_operators.py",
        "torch_inside/test_patches.py",
        "torch_inside/test_processes.py",
        "torch_inside/test_profiler.py",
        "torch_inside/test_storages.py",
        "torch_inside/test_the_door.py",
        "torch_inside/test_version.py",
    ),
    "training": (
        "training/guards/test_drift.py",
        "training/guards/test_guards.py",
        "test_told.py",
    ),
    "validation": ("validation/test_reasons.py",),
    "ways": ("ways/test_check.py", "ways/test_plan.py", "ways/test_plan_counted.py", "ways/test_train.py"),
    "world": (
        "gpu/test_autocast.py",
        "gpu/test_operators.py",
        "gpu/test_target.py",
        "gpu/test_workspaces.py",
        "test_kernels.py",
    ),
}
"""The files of the quick tier, by the package of surefoot that they are there for; those of the root under `surefoot`.

`pytest -m quick` runs their tests except sweeps and long ones, and imports no other test file. They need torch, numpy
and surefoot's own dependencies: a test that needs more skips without it.
"""

QUICK_FILES = frozenset(TESTS / file for files in QUICK.values() for file in files)

SEED_WITHOUT_GIT = "surefoot"


def commit_of(folder: Path) -> str | None:
    """The first 8 digits of the commit that is checked out there; None without git or outside of a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout[:8] if done.returncode == 0 else None


def sample(names: Sequence[str], seed: str) -> set[str]:
    """An eighth of the names, at least one. The seed draws which."""
    drawn = sorted(names, key=lambda name: hashlib.blake2b(f"{seed} {name}".encode()).digest())
    return set(drawn[: -(-len(drawn) // 8)])
