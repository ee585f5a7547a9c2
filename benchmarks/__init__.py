"""Benchmarks of speed and accuracy, for developers; `make bench` runs most of them."""
