"""Steady flow through bent pipes in the plane."""
