"""Stress in a square sheet with a random void that is pulled at one side."""
