"""Darcy flow, -div(a grad u) = f, on the unit square."""
