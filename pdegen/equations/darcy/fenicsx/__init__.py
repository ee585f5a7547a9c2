"""dolfinx in another Python process: the solver, the worker that runs it, and its client."""
