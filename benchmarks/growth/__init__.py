"""Growth of time and memory of solvers and operators with the number of points."""
