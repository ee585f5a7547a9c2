"""What a store says of its fields."""

from __future__ import annotations

from pdegen.store.format import Physics
from pdegen.store.store import Store


def physics_of(store: Store) -> Physics:
    """Boundary values, symmetries, phases, sentences and hints to draw by of a store."""
    return Physics.of(store.attributes)
