"""The Navier-Stokes equations in two dimensions, by their vorticity."""
