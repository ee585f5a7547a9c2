"""Darcy flow around an inclusion of any shape, on meshes that follow its boundary."""
