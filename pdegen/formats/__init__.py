"""Imports files of other projects into stores, and exports stores to other file formats."""
