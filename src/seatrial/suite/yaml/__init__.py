"""YAML with places: read with the line of every value, edited byte by byte, written, and its problems reported."""
