"""The rooms of the package, and what may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "nni_tensor_tuners"
NAME = PACKAGE.name

# Each room may import those of lower rank, and itself.
RANKS = {
    "space": 0,
    "search": 1,
    "tasks": 1,
    "study": 2,
    "measure": 2,
    "report": 3,
    "export": 3,
    "networks": 4,
    "frontends": 5,
    "arena": 6,
    "cli": 7,
    "trial": 8,
    "tuner": 8,
    "__main__": 8,
}


def modules():
    """Dotted name -> path of every module of the package, the package itself left out."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del found[""]
    return found


def imports():
    """Module -> the package's modules that it imports, at its top or inside functions."""
    known = modules()
    found = {}
    for name, path in known.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == NAME:
                base = node.module.split(".")[1:]
            else:
                continue
            base = ".".join(filter(None, base))
            for alias in node.names:
                inside = f"{base}.{alias.name}".lstrip(".")
                found[name].add(inside if inside in known else base)
        found[name] -= {"", name}
    return found


def test_every_module_is_in_a_room():
    assert {name.partition(".")[0] for name in modules()} == set(RANKS)


def test_no_lower_room_imports_a_higher_one():
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name.partition(".")[0] != (room := other.partition(".")[0]) and RANKS[name.partition(".")[0]] <= RANKS[room]
    ]
    assert wrong == []


def test_there_is_no_circle():
    graph = imports()
    state = {}

    def visit(name, path):
        if state.get(name) == "done":
            return
        assert name not in path, f"circle: {' -> '.join([*path[path.index(name) :], name])}"
        for other in graph.get(name, ()):
            # A package's own __init__ gathers what is in it.
            if not name.startswith(f"{other}."):
                visit(other, [*path, name])
        state[name] = "done"

    for name in graph:
        visit(name, [])


def test_an_operator_s_cpu_side_does_not_know_its_cuda_side():
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name.startswith("tasks.") and name.endswith("cpu") and "cuda" in other
    ]
    assert wrong == []


def test_few_files_at_the_root():
    files = [path.name for path in PACKAGE.iterdir() if path.is_file()]
    assert len(files) <= 8, files


def loaded_by(code):
    """Top-level names of the modules in a fresh interpreter after some code."""
    script = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "code, absent",
    [
        ("import nni_tensor_tuners.cli.main", {"nni", "tvm", "numpy", "scipy", "xgboost", "matplotlib", "yaml"}),
        ("import nni_tensor_tuners.report", {"nni", "tvm", "numpy", "matplotlib"}),
        ("import nni_tensor_tuners.frontends.nni.check", {"nni", "tvm", "numpy"}),
        ("import nni_tensor_tuners.frontends.local", {"nni", "tvm", "numpy"}),
        ("import nni_tensor_tuners.frontends.optuna", {"nni", "tvm"}),
        ("import nni_tensor_tuners.arena.landscape", {"nni", "tvm", "numpy"}),
        ("import nni_tensor_tuners.trial", {"nni", "tvm", "numpy"}),
        ("from nni_tensor_tuners import SearchSpace, create_search", {"nni", "tvm", "numpy"}),
    ],
)
def test_what_a_module_does_not_load(code, absent):
    assert loaded_by(code) & absent == set()
