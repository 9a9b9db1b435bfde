"""surefoot: know every training step before you take it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from surefoot.watch import watch  # a module and a function share this name: bind the function first

if TYPE_CHECKING:
    from surefoot.debug.look.look import look as look
    from surefoot.errors import SurefootError as SurefootError
    from surefoot.exports.evaluate import evaluate as evaluate
    from surefoot.exports.generate import generate as generate
    from surefoot.exports.predict import predict as predict
    from surefoot.hardware.datasheet import datasheet as datasheet
    from surefoot.planning.fit.search import what_fits as what_fits
    from surefoot.recipe.bare import recipe_of as recipe_of
    from surefoot.recipe.load import load_recipe as load_recipe
    from surefoot.recipe.recipe import Recipe as Recipe
    from surefoot.records.finding import Finding as Finding
    from surefoot.records.finding import Findings as Findings
    from surefoot.records.ledger import Ledger as Ledger
    from surefoot.records.plan import Plan as Plan
    from surefoot.records.profile import Profile as Profile
    from surefoot.records.run import Run as Run
    from surefoot.records.run import read_run as read_run
    from surefoot.records.tally import Tally as Tally
    from surefoot.ways.check import check as check
    from surefoot.ways.export import export as export
    from surefoot.ways.plan import plan as plan
    from surefoot.ways.profile import profile as profile
    from surefoot.ways.train import train as train
    from surefoot.world.world import fake_world as fake_world

__version__ = "0.1.0"

_HOMES = {
    "Finding": "surefoot.records.finding",
    "Findings": "surefoot.records.finding",
    "Ledger": "surefoot.records.ledger",
    "Plan": "surefoot.records.plan",
    "Profile": "surefoot.records.profile",
    "Recipe": "surefoot.recipe.recipe",
    "Run": "surefoot.records.run",
    "SurefootError": "surefoot.errors",
    "Tally": "surefoot.records.tally",
    "check": "surefoot.ways.check",
    "datasheet": "surefoot.hardware.datasheet",
    "evaluate": "surefoot.exports.evaluate",
    "export": "surefoot.ways.export",
    "fake_world": "surefoot.world.world",
    "generate": "surefoot.exports.generate",
    "load_recipe": "surefoot.recipe.load",
    "look": "surefoot.debug.look.look",
    "plan": "surefoot.ways.plan",
    "predict": "surefoot.exports.predict",
    "profile": "surefoot.ways.profile",
    "read_run": "surefoot.records.run",
    "recipe_of": "surefoot.recipe.bare",
    "train": "surefoot.ways.train",
    "what_fits": "surefoot.planning.fit.search",
}

_WITHOUT_TORCH = ("surefoot.errors", "surefoot.hardware", "surefoot.records")

__all__ = [*_HOMES, "watch"]


def __getattr__(name: str) -> Any:
    """Loads a public name on first use, so that `import surefoot` does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    if not _HOMES[name].startswith(_WITHOUT_TORCH):
        from surefoot.torch_inside.version import require_torch

        require_torch()
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext surefoot` in a notebook: surefoot watches each cell that begins with `%%watch`."""
    from surefoot.integrations.notebook import register

    register(shell)
