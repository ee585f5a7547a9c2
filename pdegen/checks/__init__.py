"""Checks that stored values follow the law of their recipe."""
