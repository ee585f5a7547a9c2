"""What attention does in a trained operator: `python -m benchmarks.attention RUN --data STORE`."""
