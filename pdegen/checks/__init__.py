"""Whether stored values follow the law that a recipe declares."""
