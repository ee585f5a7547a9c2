"""Poisson's and Helmholtz's equation on the square."""
