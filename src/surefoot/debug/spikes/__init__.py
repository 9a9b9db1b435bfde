"""Spikes: attributes a jump of the loss, or a NaN, by replaying the step with one thing changed at a time."""
