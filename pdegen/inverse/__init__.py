"""Inverse problems of any equation: data, priors, inversions, posteriors."""
