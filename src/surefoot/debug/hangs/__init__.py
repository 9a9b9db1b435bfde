"""Hangs: what processes that do not go on are waiting for, seen from outside: no line of theirs runs for it."""
