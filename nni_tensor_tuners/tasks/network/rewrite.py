"""Rewriting the calls of a model. TVM is imported inside functions only."""

# What TVM's analysis calls functions that elementwise operators after them are fused with, and those that nothing is.
ELEMENTWISE_AFTER, OPAQUE = 4, 8


def rewritten(module, rewrite):
    """A model whose calls are replaced.

    Parameters
    ----------
    module
        An IRModule.
    rewrite
        Function of a call, the name of its operator ("" of none), and the block builder; returns what stands for the call.
    """
    from tvm import relax

    @relax.expr_functor.mutator
    class Rewrite(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            return rewrite(call, getattr(call.op, "name", ""), self.builder_)

    mutator = Rewrite(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return relax.transform.Normalize()(mutator.builder_.finalize())


def called(builder, value, *names):
    """The call of one of these operators that a variable stands for; None where it stands for something else."""
    call = builder.lookup_binding(value) if hasattr(value, "name") else None
    return call if getattr(getattr(call, "op", None), "name", "") in names else None
