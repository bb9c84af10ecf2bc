import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.space.constraints import Constraint

VALUES = {"X": (4, 2, 1), "Y": (3, 5), "u": 0, "mode": "fast"}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("X[0] * Y[1] <= 20", True),
        ("X[0] * Y[1] < 20", False),
        ("1 < X[0] < 8", True),
        ("1 < X[0] < 3", False),
        ("X[0] % 2 == 0 and Y[0] // 2 == 1", True),
        ("not (u == 0)", False),
        ("u > 0 or mode == 'fast'", True),
        ("max(X) - min(X) + len(Y) == 5", True),
        ("max(X[0], Y[1], 7) == 7", True),
        ("X[0] / 8 == 0.5", True),
        ("-X[0] < +u", True),
        ("X[-1] == 1", True),
        ("u in (0, 64)", True),
        ("mode not in ['fast']", False),
        ("X[0] % u == 0", False),  # a division by zero cannot hold
        ("True", True),
    ],
)
def test_expressions(text, expected):
    assert Constraint(text, VALUES).holds(VALUES) is expected


def test_names_are_the_parameters_that_are_read():
    assert Constraint("X[0] <= max(Y) + u", VALUES).names == {"X", "Y", "u"}


numbers = st.integers(-9, 9).map(str)
expressions = st.recursive(
    st.one_of(numbers, st.sampled_from(["X[0]", "X[1]", "Y[0]", "u"])),
    lambda inner: st.builds(
        lambda a, op, b: f"({a} {op} {b})",
        inner,
        st.sampled_from(["+", "-", "*", "//", "%", "/", "<", "<=", "==", "and", "or"]),
        inner,
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_expressions_mean_what_python_says(text):
    constraint = Constraint(text, VALUES)
    try:
        expected = bool(eval(text, {"__builtins__": {}}, VALUES))  # noqa: S307  (the oracle; the text is made above)
    except ZeroDivisionError:
        expected = False
    assert constraint.holds(VALUES) is expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("__import__('os').system('true')", "the functions are min, max, len"),
        ("X.__class__", "'X.__class__' is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("[x for x in X]", "is not allowed"),
        ("9 ** 9 ** 9", "is not allowed"),
        ("X[0:2]", "is not allowed"),
        ("min(X, key=len)", "is not allowed"),
        ("f'{X}'", "is not allowed"),
        ("X[0] <= Z[0]", "'Z' is no parameter; parameters: X, Y, u, mode"),
        ("X[0] <=", "not an expression"),
        ("X = 1", "not an expression"),
        ("", "expected an expression"),
        (7, "expected an expression"),
        ("(" * 300 + "1" + ")" * 300, "not an expression"),
    ],
)
def test_what_is_not_in_the_language_is_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("(", r"\(").replace("*", r"\*")) as caught:
        Constraint(text, VALUES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["X[7] == 1", "c < 3", "X * 'a' == 1 and len(c) > X"])
def test_a_constraint_that_does_not_fit_its_parameters_is_refused_with_the_space(text):
    with pytest.raises(ValueError, match="cannot be evaluated"):
        SearchSpace.from_json(
            {"X": {"_type": "factor", "_value": [8, 2]}, "c": {"_type": "choice", "_value": ["a", "b"]}}, constraints=[text]
        )


def test_constraints_must_be_a_list():
    with pytest.raises(ValueError, match="expected a list of expressions"):
        SearchSpace.from_json({"X": {"_type": "factor", "_value": [8, 2]}}, constraints="X[0] < 3")
