"""Debug: what is asked when something went wrong: an error, memory, a hang, a spike, two runs that differ."""
