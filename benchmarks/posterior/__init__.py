"""Posterior samples by Markov chains: `python -m benchmarks.posterior`."""
