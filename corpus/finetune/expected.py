"""Which checks name which bug of fine-tuning."""

from typing import Any

EXPECTED: dict[str, tuple[str, ...]] = {
    "adapters-still": ("adapters-never-move", "parameter-outside-optimizer", "only-frozen-parameters-in-optimizer"),
    "all-masked": ("all-targets-ignored",),
    "base-moves": ("base-trained-beside-adapters",),
    "double-start": ("doubled-start-token",),
    "end-untrained": ("end-token-ignored", "texts-without-end-token"),
    "frozen-statistics": ("running-frozen-batch-norm", "still-statistics-of-trained-batch-norm"),
    "merge": ("merged-with-other-scaling",),
    "other-template": ("other-chat-template",),
    "pad-is-end": ("end-token-ignored",),
    "prompt-loss": ("loss-on-prompt",),
    "rate": ("rate-unusual-for-method", "rate-too-large-for-adam", "update-without-effect"),
    "truncated": ("truncated-answers",),
    "vocabulary": ("vocabulary-larger-than-embedding",),
}
MINOR = {"prompt-loss"}
"""Choices rather than mistakes: information is loud enough."""


def is_named(bug: str, findings: list[dict[str, Any]]) -> bool:
    """Does a finding name the bug, loud enough?"""
    loud = ("error", "warning", "info") if bug in MINOR else ("error", "warning")
    return any(each["check"] in EXPECTED[bug] and each["severity"] in loud for each in findings)
