"""Sweep: trials that Optuna chooses, each planned before it runs, and stopped early if it falls behind."""
