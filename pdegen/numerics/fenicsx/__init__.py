"""Finite elements by dolfinx in another Python process: the worker process and its client."""
