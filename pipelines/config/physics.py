"""What a store says of its functions: which there are, where they live, what they obey."""

from pdegen.domains import Domain
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import Physics
from pdegen.store.reading import Store, StoreError


def physics_of(store: Store) -> Physics:
    """Boundary values, symmetries, phases, sentences and hints to draw by of a store.

    A store from before equations said them has those of its recipe, where its equation is known.
    """
    if "physics" in store.raw_attributes or not store.metadata.recipe.problem:
        return store.metadata.physics
    try:
        return Recipe.parse(store.raw_attributes["recipe"], store.url).problem.physics()
    except SchemaError:  # of an equation that is not here
        return Physics()


def domain_of(store: Store) -> Domain:
    """Where the functions of a store live. Raises StoreError if the store describes no domain."""
    described = store.description
    axes = max(map(described.axes_of, described.variables.values()), key=len)
    return store.domain(axes)


def functions_in(store: Store, role: str) -> list[str]:
    """The variables of a role that are functions on the domain.

    Where a store has no input, its samples differ in their shape alone: the positions of the points
    are then the inputs, of the role geometry.

    Raises:
        StoreError: If there is none.
    """
    found = [
        name
        for name, variable in store.description.variables.items()
        if variable.metadata.role == role and store.description.axes_of(variable)
    ]
    if not found and role == "input":
        return functions_in(store, "geometry")
    if not found:
        raise StoreError(f"{store.url} has no function of the role {role}")
    return found
