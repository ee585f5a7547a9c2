"""Inverse problems, without the name of an equation: what is observed, and how well it fits."""
