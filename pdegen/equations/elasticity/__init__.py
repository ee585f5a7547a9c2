"""A square sheet with a random void, pulled at one side."""
