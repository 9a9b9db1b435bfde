"""Loads what every process of `plan_families.py` needs, once, before they are forked."""

import importlib

import surefoot.ways.plan  # noqa: F401

for _name in ("llama", "bert", "t5", "vit", "wav2vec2", "mixtral"):
    importlib.import_module(f"transformers.models.{_name}.modeling_{_name}")
