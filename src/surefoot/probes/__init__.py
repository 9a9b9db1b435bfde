"""Probes: models and data sets disturbed on copies, to see what changes. They leave no trace."""
