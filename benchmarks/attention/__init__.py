"""Report on attention in a trained operator: `python -m benchmarks.attention RUN --data STORE`."""
