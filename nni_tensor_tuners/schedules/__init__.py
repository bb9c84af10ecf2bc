"""Schedule templates: a configuration in, an s_tir.Schedule out.

A template is a module with three functions: ``search_space(workload)`` (NNI search-space JSON), ``constraints(workload,
device)`` (expressions for `SearchSpace`) and ``schedule(workload, config)``. TVM is imported only by the last one.
"""

from . import conv_cpu, conv_cuda, matmul_cpu, matmul_cuda

TEMPLATES = {
    (operator, kind): template
    for operators, templates in (
        (("matmul", "batch_matmul"), {"cuda": matmul_cuda, "cpu": matmul_cpu}),
        (("conv1d", "conv2d", "conv3d"), {"cuda": conv_cuda, "cpu": conv_cpu}),
    )
    for operator in operators
    for kind, template in templates.items()
}


def get_template(workload, kind):
    """The template of a workload's operator for a device kind; ValueError if there is none."""
    template = TEMPLATES.get((workload.operator, kind))
    if template is None:
        known = ", ".join(f"{operator} on {device}" for operator, device in TEMPLATES)
        raise ValueError(f"no template for {workload.operator} on {kind}; there are: {known}")
    return template
