"""Shallow water after the break of a circular dam: problem and radial finite volumes."""
