"""How a notebook shows a record: as HTML that `surefoot.reports.html` makes."""

from importlib import import_module


class Shown:
    """A record that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """Returns the record as HTML."""
        # By name: reports import records, and an import of theirs from here would close a circle.
        return import_module("surefoot.reports.html").html_of(self)
