"""A record of a validation, made by hand."""

from dataclasses import replace

from surefoot.records.ledger import Entry, Ledger
from surefoot.records.validation import MEMORY, SECONDS, Machine, Part, Row, Validation, WhatFits

GPU = Machine("NVIDIA H100 80GB HBM3", "cuda", 1, 85_017_624_576, "9.0", "h100-sxm")


def made_up() -> Validation:
    """A record as a GPU could give it; nobody measured these numbers."""
    memory = Entry(MEMORY, "bytes", 8_650_000_000, 8_700_000_000, 0.02)
    reserved = Entry("device/reserved", "bytes", 10_000_000_000, 9_800_000_000, 0.02)
    seconds = Entry(SECONDS, "seconds", 0.0335, 0.0391, 0.1)
    forward = Entry("seconds/forward", "seconds", 0.011, 0.0105, 0.1)
    fine = Row(
        "gpt-recompute",
        "gpt",
        ("size=gpt2", "precision=bf16-mixed"),
        "measured",
        parameters=124_000_000,
        tokens_per_step=8192,
        seconds=21.0,
        ledger=Ledger((memory, reserved, seconds, forward)),
        step_seconds=(0.039, 0.0392),
        mfu_planned=0.21,
        mfu=0.18,
    )
    bad = Row("llama", "llama", ("size=8b",), "failed", "OutOfMemoryError: <b>CUDA</b> out of memory", seconds=3.0)
    fits = (WhatFits("llama size=8b", "does not fit: the smallest of 9 settings takes 61.00 GiB"),)
    machine = replace(GPU, versions={"surefoot": "0.1.0", "torch": "2.13.0", "cuda": "13.0"}, settings={"threads": "8"})
    preflight = (
        Part("allocate", "ok", "64.00 MiB on cuda, written and read back", 0.4),
        Part("all-reduce", "failed", "it took longer than 5 min"),
        Part("profiler", "not run", "surefoot reads no kernels of <b>x</b> from a trace"),
    )
    return Validation(machine, "2026-11-17", 10.0, (fine, bad), fits, preflight)
