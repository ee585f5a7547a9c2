"""Forging of an elastic, perfectly plastic block by a die."""
