"""Neural operators in PyTorch: batch first, channels last."""
