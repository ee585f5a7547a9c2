"""The version of the three packages."""

__version__ = "0.1.0"
