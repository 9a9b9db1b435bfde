"""The names of the reference recipes, found without importing one."""

from importlib.resources import files

RECIPES = "surefoot.recipes"
"""The package of the reference recipes."""


def builtin_recipes() -> tuple[str, ...]:
    """The names of the reference recipes."""
    folder = files(RECIPES)
    return tuple(
        sorted(each.name[:-3] for each in folder.iterdir() if each.name.endswith(".py") and each.name != "__init__.py")
    )
