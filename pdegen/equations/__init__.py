"""One package for each equation: its declaration, its solver, and the law of its stores."""
