"""Plain data that every way returns and every report reads: JSON in and out, no torch."""
