"""Updates: optimizers, schedules and clipping."""
