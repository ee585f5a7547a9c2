"""dolfinx under whichever Python has it: the solver proper, a worker around it, and its client."""
