"""Recipes into trusted, chunked datasets of PDE solutions. NumPy, SciPy, Zarr, Dask."""

__version__ = "0.1.0"
