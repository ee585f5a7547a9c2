"""One room for each equation: its declaration, its solver, and what its stores claim."""
