"""Posterior samples of two phases, and intervals that cover: `python -m benchmarks.posterior`."""
