"""One file for each equation: its declaration, and how samples of it are made."""
