"""Physics, domain and functions of a store, read from its attributes."""

from pdegen.domains import Domain
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import Physics
from pdegen.store.reading import Store, StoreError


def physics_of(store: Store) -> Physics:
    """The physics of a store, such as its boundary values, symmetries and phases.

    If the store does not describe its physics, the description is taken from its recipe, provided
    that the equation of the recipe is registered.
    """
    if "physics" in store.raw_attributes or not store.metadata.recipe.problem:
        return store.metadata.physics
    try:
        return Recipe.parse(store.raw_attributes["recipe"], store.url).problem.physics()
    except SchemaError:  # the equation is not registered
        return Physics()


def domain_of(store: Store) -> Domain:
    """The domain on which the functions of a store are defined.

    Raises StoreError if the store describes no domain.
    """
    described = store.description
    axes = max(map(described.axes_of, described.variables.values()), key=len)
    return store.domain(axes)


def functions_in(store: Store, role: str) -> list[str]:
    """Names of the variables that have a given role and are functions on the domain.

    If a store has no variable with the role "input", its samples differ only in geometry. The
    positions of the points, which have the role "geometry", are then its inputs.

    Raises:
        StoreError: If there is no such variable.
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
