"""Layers that two or more operators use."""
