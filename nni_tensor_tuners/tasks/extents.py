"""Checks of the extents that workloads are made of."""


def check_extent(operator, name, value, least=1):
    """Raise ValueError unless a field is an integer >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{operator}: {name} must be an integer >= {least}, got {value!r}")


def check_extents(operator, name, values, count, least=1):
    """A field with one integer per spatial dimension as a tuple; a single integer stands for all of them.

    Raises
    ------
    ValueError
        That names the field.
    """
    if isinstance(values, int) and not isinstance(values, bool):
        values = (values,)
    if isinstance(values, (tuple, list)) and len(values) == 1:
        values = (*values,) * count
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise ValueError(f"{operator}: {name} must be {count} integers, got {values!r}")
    for value in values:
        check_extent(operator, name, value, least)
    return tuple(values)
