"""YAML with positions: reading with the line of every value, editing in place, and error messages."""
