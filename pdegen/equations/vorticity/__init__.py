"""The Navier-Stokes equations in two dimensions, in terms of the vorticity."""
