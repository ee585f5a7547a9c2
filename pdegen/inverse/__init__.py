"""Inverse problems for any equation: data, priors, inversion methods and posteriors."""
