"""exp, erf and tanh of float32 by polynomials on a CPU, which vectorise; LLVM otherwise calls libm for each element.

They are functions in LLVM's own language, which a kernel that needs them is linked with and which are inlined. As expressions of
TVM's they would not do: its simplifier writes a variable's value out wherever the variable stands.
"""

import math
import struct
from functools import cache

from .target import pass_context

# exp(r) = 1 + r + r^2 q(r) for |r| <= log(2) / 2, to 2^-28; erf(x) and tanh(x) = x P(x^2) / Q(x^2) up to where they round to 1, to
# 2^-25. The coefficients are those of least relative error, by Lawson's iteration of weighted least squares.
EXP = 0.4999999403953552, 0.1666651964187622, 0.04166839271783829, 0.008368780836462975, 0.0013814467238262296
ERF = (
    3.925,
    (
        1.1283791065216064,
        0.1905941665172577,
        0.05276934802532196,
        0.003772566793486476,
        0.0002848437870852649,
        2.04602292797e-06,
    ),
    (1.0, 0.502242386341095, 0.11418288946151733, 0.014983231201767921, 0.0011638615978881717, 3.8047743146307766e-05),
)
TANH = (
    9.02,
    (1.0, 0.13379713892936707, 0.00349403009749949, 2.058340578514617e-05, 1.331897081513489e-08),
    (1.0, 0.46713030338287354, 0.02587105520069599, 0.00032830852433107793, 7.761977371956164e-07),
)

EXP_LEAST, EXP_MOST = -104.0, 89.0  # exp is 0 there, and infinite
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # the first times any |n| < 2^13 is exact
TO_INTEGER, TO_INTEGER_BITS = 1.5 * 2.0**23, 0x4B400000  # adding it rounds to an integer, which is then the lowest bits

# Elements of the vectors that there are functions of.
LANES = (*range(1, 17), 32, 64)


def lowering():
    """The ``PassContext`` to compile a module in that was `linked`; for a CPU."""
    _register()
    return pass_context({"tirx.enable_fast_math": True})


@cache
def _register():
    from tvm import tirx
    from tvm.ir import register_op_attr

    def called(name):
        def lower(call):
            element, _, lanes = str(call.ty).partition("x")
            lanes = int(lanes or 1)
            if element != "float32" or lanes not in LANES:
                return call
            return tirx.call_pure_extern(str(call.ty), _symbol(name, lanes), call.args[0])

        return lower

    for name in FUNCTIONS:
        register_op_attr(f"tirx.{name}", "llvm.fastmath.FLowerIntrinsic", called(name))


def linked(module):
    """A module whose PrimFuncs import the functions, where they may come to call them."""
    import tvm
    from tvm import tirx

    changed = {
        variable: _importing(function)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and may_call(function.body)
    }
    if not changed:
        return module
    return tvm.IRModule({**dict(module.functions_items()), **changed}, attrs=module.attrs)


def may_call(statement):
    """Whether a statement of TIR has operations that become calls of these functions."""
    import tvm_ffi
    from tvm.ir import Call, Op

    found = []

    def look(call):
        if isinstance(call.op, Op) and call.op.name.removeprefix("tirx.") in CALLING:
            found.append(call)

    tvm_ffi.structural_walk(statement, (Call, look))
    return bool(found)


def _importing(function):
    from tvm import s_tir, tirx
    from tvm.ir import StringImm

    def importing(statement):
        return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", StringImm(_source()), statement)

    outer = function.body
    if not isinstance(outer, s_tir.SBlockRealize):
        return function.with_body(importing(outer))
    root = outer.block  # the outermost statement of what was scheduled stays a block
    root = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        importing(root.body),
        root.init,
        root.alloc_buffers,
        root.match_buffers,
        root.annotations,
    )
    return function.with_body(s_tir.SBlockRealize(outer.iter_values, outer.predicate, root))


@cache
def _source():
    """All functions, in LLVM's language; those that nothing calls are dropped."""
    bodies = [_Body(lanes) for lanes in LANES]
    return "\n".join([*(body.declared() for body in bodies), *(body.function(name) for body in bodies for name in FUNCTIONS)])


def _symbol(name, lanes):
    return f"tensor_tuners_{name}_{lanes}"


class _Body:
    """Functions of a vector of float32, or of one number where ``lanes`` is 1, as LLVM's instructions."""

    def __init__(self, lanes):
        self.lanes, self.lines = lanes, []
        self.floats, self.integers, self.flags = (self._vector(each) for each in ("float", "i32", "i1"))
        self.multiply_adding = f"{self.floats} @llvm.fmuladd.{f'v{lanes}f32' if lanes > 1 else 'f32'}"

    def declared(self):
        return f"declare {self.multiply_adding}({', '.join([self.floats] * 3)})"

    def function(self, name):
        self.lines = []
        result = FUNCTIONS[name](self, "%x")
        head = f"define linkonce_odr hidden {self.floats} @{_symbol(name, self.lanes)}({self.floats} %x) alwaysinline {{"
        return "\n".join([head, *self.lines, f"ret {self.floats} {result}", "}"])

    def _vector(self, element):
        return f"<{self.lanes} x {element}>" if self.lanes > 1 else element

    def _value(self, value):
        """A register as it is; a number as a constant, the same in all lanes."""
        if isinstance(value, str):
            return value
        element = "i32" if isinstance(value, int) else "float"
        if element == "float":  # LLVM writes them as the bits of a double
            single = struct.unpack("f", struct.pack("f", value))[0]
            value = f"0x{struct.pack('>d', single).hex().upper()}"
        return "<" + ", ".join([f"{element} {value}"] * self.lanes) + ">" if self.lanes > 1 else str(value)

    def _add(self, instruction):
        self.lines.append(f"%t{len(self.lines)} = {instruction}")
        return f"%t{len(self.lines) - 1}"

    def of_floats(self, operation, a, b):
        return self._add(f"{operation} {self.floats} {self._value(a)}, {self._value(b)}")

    def of_integers(self, operation, a, b):
        return self._add(f"{operation} {self.integers} {self._value(a)}, {self._value(b)}")

    def multiply_add(self, a, b, c):
        arguments = ", ".join(f"{self.floats} {self._value(each)}" for each in (a, b, c))
        return self._add(f"call {self.multiply_adding}({arguments})")

    def as_integers(self, value):
        return self._add(f"bitcast {self.floats} {value} to {self.integers}")

    def as_floats(self, value):
        return self._add(f"bitcast {self.integers} {value} to {self.floats}")

    def between(self, x, least, most):
        """x, least or most; NaN stays NaN."""
        for comparison, end in (("ogt", most), ("olt", least)):
            flag = self._add(f"fcmp {comparison} {self.floats} {x}, {self._value(end)}")
            x = self._add(f"select {self.flags} {flag}, {self.floats} {self._value(end)}, {self.floats} {x}")
        return x

    def polynomial(self, x, coefficients):
        result = coefficients[-1]
        for each in coefficients[-2::-1]:
            result = self.multiply_add(x, result, each)
        return result


def _exp(body, x):
    """2^n e^r with n = round(x / log(2)); 2^n as a product of two, as it may be no normal number."""
    x = body.between(x, EXP_LEAST, EXP_MOST)
    shifted = body.multiply_add(x, 1 / math.log(2), TO_INTEGER)
    whole = body.of_floats("fsub", shifted, TO_INTEGER)
    r = body.multiply_add(whole, -LN2_LOW, body.multiply_add(whole, -LN2_HIGH, x))
    power = body.of_floats("fadd", body.multiply_add(body.of_floats("fmul", r, r), body.polynomial(r, EXP), r), 1.0)
    n = body.of_integers("sub", body.as_integers(shifted), TO_INTEGER_BITS)
    half = body.of_integers("ashr", n, 1)
    for part in (half, body.of_integers("sub", n, half)):
        exponent = body.of_integers("shl", body.of_integers("add", part, 127), 23)
        power = body.of_floats("fmul", power, body.as_floats(exponent))
    return power


def _odd(end, above, below):
    """An odd function that is +-1 from +-end on, and x P(x^2) / Q(x^2) between."""

    def function(body, x):
        x = body.between(x, -end, end)
        square = body.of_floats("fmul", x, x)
        over = body.of_floats("fmul", x, body.polynomial(square, above))
        return body.between(body.of_floats("fdiv", over, body.polynomial(square, below)), -1.0, 1.0)

    return function


FUNCTIONS = {"exp": _exp, "erf": _odd(*ERF), "tanh": _odd(*TANH)}
CALLING = {*FUNCTIONS, "sigmoid", "exp10"}  # what becomes calls of them; TVM makes the last two of exp
