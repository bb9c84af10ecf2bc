"""Extents: checks of those that tasks are made of, and the divisors they can be cut into."""


def divisors(number):
    """The divisors of a positive integer, ascending."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in reversed(small) if divisor * divisor != number]


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
