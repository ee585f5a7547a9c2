"""Inverse problems, without the name of an equation: data, priors, inversions, posteriors."""
