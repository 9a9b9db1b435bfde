"""What processes that do not go on are waiting for, seen from outside: no line of theirs is changed or executed."""
