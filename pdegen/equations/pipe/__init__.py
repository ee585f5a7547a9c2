"""Steady flow through bent pipes of the plane."""
