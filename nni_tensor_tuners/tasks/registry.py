"""Schedule templates: a configuration in, an s_tir.Schedule out.

A template is a module with three functions: ``search_space(workload, extended)`` (NNI search-space JSON),
``constraints(workload, device, extended)`` (expressions for `SearchSpace`) and ``schedule(workload, config)``. Extended, a space
has parameters that the papers' do not have; a configuration without them stays valid. TVM is imported only by `schedule`.
"""

from . import conv_cpu, conv_cuda, matmul_cpu, matmul_cuda

SPACES = ("paper", "extended")

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
