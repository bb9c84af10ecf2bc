"""Constraints between parameters: boolean expressions such as ``X[2] * Y[2] <= 1024``.

The language is Python's, cut down to arithmetic (``+ - * / // %``), comparison (``== != < <= > >= in``), ``and or not``,
indexing, literals, and ``min max len``. A parameter inside a nested choice is written ``schedule.X``, the name of its branch
``schedule._name``; a constraint that comes to a parameter that is not active says nothing about that configuration. An
expression is parsed with ``ast`` and turned into closures node by node; nothing
is handed to the interpreter, and what is not on the list is refused when the constraint is read.
"""

import ast
import operator

BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
UNARY = {ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos}
COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
FUNCTIONS = {"min": min, "max": max, "len": len}
ALLOWED = "arithmetic + - * / // %, comparison, and/or/not, indexing, min, max, len"


class _NotActive(Exception):
    """A parameter is not there in this configuration."""


class Constraint:
    """One boolean expression over parameter values.

    Parameters
    ----------
    text
        The expression.
    parameters
        The names it may use.

    Raises
    ------
    ValueError
        If the text is no expression, uses a name that is no parameter, or anything the language does not have.

    Attributes
    ----------
    names
        The parameters that the expression reads.

    >>> Constraint("X[1] * X[2] <= 8", ["X"]).holds({"X": (4, 2, 4)})
    True
    """

    def __init__(self, text, parameters):
        self.text = " ".join(text.split()) if isinstance(text, str) else text
        self.names = set()
        self._parameters = list(parameters)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"constraint {text!r}: expected an expression such as 'X[2] * Y[2] <= 1024'")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._error(f"not an expression ({error.args[0] if error.args else error})") from None
        self._evaluate = self._compile(tree.body)

    def holds(self, values):
        """Whether the expression is true of ``values`` (name -> value), or comes to a name that is not among them.

        A division by zero counts as false.

        Raises
        ------
        ValueError
            If the expression does not fit the values (an index out of range, a comparison of a string with a number).
        """
        try:
            return bool(self._evaluate(values))
        except _NotActive:
            return True
        except ZeroDivisionError:
            return False
        except (TypeError, IndexError, KeyError, ValueError, OverflowError, MemoryError) as error:
            used = {name: values[name] for name in sorted(self.names) if name in values}
            raise self._error(f"cannot be evaluated for {used} ({error})") from None

    def _error(self, message):
        return ValueError(f"constraint '{self.text}': {message}")

    def _compile(self, node):
        """Turn a syntax node into a function of the values."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, bool)):
            constant = node.value
            return lambda values: constant
        if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and self._is_in_a_choice(ast.unparse(node))):
            return self._name(ast.unparse(node))
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            apply, left, right = BINARY[type(node.op)], self._compile(node.left), self._compile(node.right)
            return lambda values: apply(left(values), right(values))
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            apply, operand = UNARY[type(node.op)], self._compile(node.operand)
            return lambda values: apply(operand(values))
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.Compare) and all(type(op) in COMPARE for op in node.ops):
            return self._comparison(node)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            sequence, index = self._compile(node.value), self._compile(node.slice)
            return lambda values: sequence(values)[index(values)]
        if isinstance(node, (ast.Tuple, ast.List)):
            elements = [self._compile(element) for element in node.elts]
            return lambda values: tuple(element(values) for element in elements)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._error(f"'{ast.unparse(node)}' is not allowed; allowed: {ALLOWED}")

    def _is_in_a_choice(self, name):
        return any(parameter.startswith(name.partition(".")[0] + ".") for parameter in self._parameters)

    def _name(self, name):
        if name not in self._parameters:
            raise self._error(f"'{name}' is no parameter; parameters: {', '.join(self._parameters)}")
        self.names.add(name)

        def value(values):
            if name not in values:
                raise _NotActive
            return values[name]

        return value

    def _boolean(self, node):
        operands = [self._compile(value) for value in node.values]
        decided_by = isinstance(node.op, ast.Or)  # the first operand that is true decides an "or", the first false one an "and"

        def decide(values):
            for operand in operands:
                result = operand(values)
                if bool(result) is decided_by:
                    break
            return result

        return decide

    def _comparison(self, node):
        operands = [self._compile(operand) for operand in (node.left, *node.comparators)]
        compares = [COMPARE[type(op)] for op in node.ops]
        if len(compares) == 1:
            (compare,), (left, right) = compares, operands
            return lambda values: compare(left(values), right(values))

        def chain(values):
            results = [operand(values) for operand in operands]
            return all(compare(a, b) for compare, a, b in zip(compares, results, results[1:]))

        return chain

    def _call(self, node):
        function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._error(f"'{ast.unparse(node)}' is not allowed; the functions are {', '.join(FUNCTIONS)}")
        arguments = [self._compile(argument) for argument in node.args]
        return lambda values: function(*(argument(values) for argument in arguments))
