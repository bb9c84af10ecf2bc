AXES = {1: "x", 2: "yx", 3: "zyx"}


def search_space(workload, extended=False):
    names = AXES[len(workload.image)]
    f, c = workload.out_channels // workload.groups, workload.in_channels // workload.groups
    space = {"tile_f": {"_type": "factor", "_value": [f, 4]}}
    space.update({f"tile_{a}": {"_type": "factor", "_value": [e, 4]} for a, e in zip(names, workload.output)})
    space["tile_rc"] = {"_type": "factor", "_value": [c, 2]}
    space.update({f"tile_r{a}": {"_type": "factor", "_value": [e, 2]} for a, e in zip(names, workload.kernel)})
    space["auto_unroll_max_step"] = {"_type": "discrete", "_value": [0, 512, 1500]}
    space["unroll_explicit"] = {"_type": "choice", "_value": [0, 1]}
    return space
