"""Schedule templates: a configuration in, an s_tir.Schedule out.

A template is a module with three functions: ``search_space(workload, extended=False)`` (NNI search-space JSON),
``constraints(workload, device, extended=False)`` (expressions for `SearchSpace`) and ``schedule(workload, config)``. The
extended space adds parameters to the papers'; a configuration without them is one where they do nothing. TVM is imported only
by the last one.
"""

from . import conv_cuda, matmul_cpu, matmul_cuda

TEMPLATES = {
    ("matmul", "cuda"): matmul_cuda,
    ("batch_matmul", "cuda"): matmul_cuda,
    ("conv1d", "cuda"): conv_cuda,
    ("conv2d", "cuda"): conv_cuda,
    ("conv3d", "cuda"): conv_cuda,
    ("matmul", "cpu"): matmul_cpu,
}


def get_template(workload, kind):
    """The template of a workload's operator for a device kind; ValueError if there is none."""
    template = TEMPLATES.get((workload.operator, kind))
    if template is None:
        known = ", ".join(f"{operator} on {device}" for operator, device in TEMPLATES)
        raise ValueError(f"no template for {workload.operator} on {kind}; there are: {known}")
    return template
