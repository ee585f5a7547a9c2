"""Samples of each equation, computed a second time from the numbers of its recipe alone."""
