"""Posterior samples of two phases, and coverage of intervals: `python -m benchmarks.posterior`."""
