"""Physics, domain and functions of a store, from its attributes."""

from pdegen.domains import Domain
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import Physics
from pdegen.store.reading import Store, StoreError


def physics_of(store: Store) -> Physics:
    """Boundary values, symmetries, phases, sentences and drawing hints of a store.

    A store without them has those of its recipe, if the equation is known here.
    """
    if "physics" in store.raw_attributes or not store.metadata.recipe.problem:
        return store.metadata.physics
    try:
        return Recipe.parse(store.raw_attributes["recipe"], store.url).problem.physics()
    except SchemaError:  # the equation is not registered
        return Physics()


def domain_of(store: Store) -> Domain:
    """Domain of the functions of a store. Raises StoreError if the store describes none."""
    described = store.description
    axes = max(map(described.axes_of, described.variables.values()), key=len)
    return store.domain(axes)


def functions_in(store: Store, role: str) -> list[str]:
    """Names of the variables of a role that are functions on the domain.

    A store without an input has samples that differ only in their geometry. The positions of the
    points, whose role is "geometry", are then the inputs.

    Raises:
        StoreError: If there are none.
    """
    names = [
        name
        for name, variable in store.description.variables.items()
        if variable.metadata.role == role and store.description.axes_of(variable)
    ]
    if not names and role == "input":
        return functions_in(store, "geometry")
    if not names:
        raise StoreError(f"{store.url} has no function with the role {role}")
    return names
