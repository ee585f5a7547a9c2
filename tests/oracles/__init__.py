"""Independent, plain versions of what the project computes fast."""
