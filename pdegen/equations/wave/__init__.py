"""The wave equation with variable speed: problem and compiled finite differences."""
