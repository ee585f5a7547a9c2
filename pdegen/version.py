"""The version of the packages pdegen, operators and pipelines."""

__version__ = "0.1.0"
