"""The papers' figures and tables, made again by the commands that anybody can run, on the device there is."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec

from ..tasks.shared import write_whole

# What a command has made is described in this file of its folder.
MADE = "made.json"


@dataclass(frozen=True)
class Command:
    """A command that makes part of a figure.

    Attributes
    ----------
    folder
        Where, inside the figure's.
    arguments
        Of ``tensor-tuners``, ``{figure}`` being the figure's folder; the device, and what it ``takes``, are added.
    runs
        How many runs it makes for each seed: its share of the budget.
    drawings
        The files that it draws.
    takes
        Of the minutes of a run, the seeds and the output, which it takes.
    """

    folder: str
    arguments: tuple
    runs: int
    drawings: tuple
    takes: tuple = ("minutes", "seeds", "output")


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper.

    Attributes
    ----------
    name, paper, title
        How it is asked for, whose it is, and which.
    caption
        What is seen, and what is otherwise than in the paper.
    commands
        What makes it, in this order.
    published
        The paper's own numbers, rows of cells with the head first.
    """

    name: str
    paper: str
    title: str
    caption: str
    commands: tuple
    published: tuple = ()


def _compared(
    workload, searches, *more, folder=None, runs=None, drawings=("trials.png", "time-trials.png", "clock-trials.png")
):
    arguments = ("compare", *workload.split(), "--searches", *searches, *more)
    return Command(folder or workload, arguments, runs or len(searches), drawings)


def _collected(folder, workloads, features, runs):
    arguments = ("collect", *workloads, "--features", *features)
    return Command(folder, arguments, runs, (), ("minutes", "output"))


def _transferred(workload, features, sources="sources", folder=None):
    """AutoTVM with several kinds of features, each from scratch and with what was collected."""
    searches = [f"AutoTVM:features={each}:batch_size=16" for each in features]
    more = ("--transfer", f"{{figure}}/{sources}")
    return _compared(workload, searches, *more, folder=folder, runs=2 * len(searches), drawings=("trials.png",))


OURS = "WalkGP"
PAPERS_OWN = f"{OURS} is ours, and in no paper; all others are theirs."
CURVES = (
    "Best TFLOPS so far, over the trials (mean and standard deviation over the seeds), and over each run's own wall-clock (mean "
    f"and standard error; and a line per run). {PAPERS_OWN} The paper has 500 trials, 5 runs, and a GTX 1080 Ti."
)
_SEARCHES = ("GBFS", "NA2C", "AutoTVM", "OpEvo", OURS)
_NOSE = ("NoSE", "Genetic", "AutoTVM", "Random", OURS)
_RELATION = "AutoTVM:features=relation:batch_size=16"
_COMPONENTS = (
    _RELATION,
    f"{_RELATION}:objective=regression",
    f"{_RELATION}:candidates=1",
    f"{_RELATION}:candidates=4",
    f"{_RELATION}:acquisition=ei",
    f"{_RELATION}:acquisition=ucb",
    *(["AutoTVM:model=treegru:batch_size=16"] if find_spec("torch") else []),
    "Genetic",
    "Random",
)
_SINGLE = ("c1d", "c2d", "c3d", "gmm", "grp", "dil", "dep", "t2d", "cap", "nrm")
_SUBGRAPHS = ("conv_layer", "tbs")
_SKETCHES = ("Bansor", "Bansor:selection=random")
_NETWORK = (
    "TaskScheduler:selection=gradient:inner=Bansor:inner.selection=random",
    "TaskScheduler:selection=gradient:inner=Bansor",
    "TaskScheduler:selection=ucb:inner=Bansor",
)
_HEAD = ("TFLOPS, mean (deviation)", "G-BFS", "N-A2C", "AutoTVM", "OpEvo")

FIGURES = (
    Figure(
        "opevo-3",
        "OpEvo",
        "figure 3 and table 1: matrix multiplication",
        CURVES,
        tuple(_compared(name, _SEARCHES) for name in ("mm1", "mm2", "mm3")),
        (
            _HEAD,
            ("MM1", "7.22 (.04)", "6.39 (.61)", "4.86 (.18)", "6.89 (.58)"),
            ("MM2", "7.80 (.57)", "7.00 (.90)", "7.39 (.20)", "7.90 (.84)"),
            ("MM3", "6.98 (.24)", "6.77 (.25)", "6.91 (.21)", "6.89 (.18)"),
        ),
    ),
    Figure(
        "opevo-4",
        "OpEvo",
        "figure 4 and table 2: batched matrix multiplication",
        CURVES,
        tuple(_compared(name, ("AutoTVM", "OpEvo", OURS)) for name in ("bmm1", "bmm2", "bmm3")),
        (
            (_HEAD[0], *_HEAD[3:]),
            ("BMM1", "4.30 (.47)", "5.46 (.02)"),
            ("BMM2", "5.11 (.37)", "5.65 (.03)"),
            ("BMM3", "4.34 (.75)", "4.82 (.06)"),
        ),
    ),
    Figure(
        "opevo-5",
        "OpEvo",
        "figure 5 and table 3: convolution",
        CURVES,
        tuple(_compared(name, ("AutoTVM", "OpEvo", OURS)) for name in ("c1", "c2")),
        ((_HEAD[0], *_HEAD[3:]), ("C1", "3.36 (.73)", "3.62 (.46)"), ("C2", "6.33 (.45)", "8.00 (.39)")),
    ),
    Figure(
        "opevo-7",
        "OpEvo",
        "figures 7 and 8: mutation rate q and parents size lambda",
        "Best TFLOPS so far of OpEvo on MM1, mean and standard deviation over the seeds. The paper does not print all of its values.",
        (Command("mm1", ("sensitivity", "mm1"), 9, ("mutate_rate.png", "parents_size.png")),),
    ),
    Figure(
        "nose-3",
        "NoSE",
        "figures 3 and 4: how configurations end, and how fast the valid ones are",
        "Random configurations of C12 of ResNet-18: shares of error codes by count and by time, and the valid ones' GFLOPS. The "
        "paper has all 844,800 of its template's on a GTX 1080 Ti; here the constraints leave those out that break a limit.",
        (
            Command(
                "c12",
                ("record", "resnet18-c12", "--random", "100000"),
                4,
                ("errors.png", "histogram.png"),
                ("minutes", "output"),
            ),
        ),
    ),
    Figure(
        "nose-5",
        "NoSE",
        "figures 5 to 8: over the wall-clock",
        "Best TFLOPS so far over each run's own wall-clock, mean and standard error over the seeds; below, the same over the genetic "
        "algorithm's at the same time, what the time went into, and how trials ended, by count and by time. "
        f"{PAPERS_OWN} The paper has an hour, 4 runs, and a GTX 1080 Ti.",
        tuple(_compared(f"resnet18-c{i}", _NOSE, "--baseline", "Genetic", drawings=("time-trials.png",)) for i in range(3, 11)),
    ),
    Figure(
        "autotvm-4",
        "AutoTVM",
        "figures 4 to 7: components",
        "Best TFLOPS so far on C6 of ResNet-18, mean and deviation over the seeds, and over the wall-clock: boosted trees on "
        "relation features that rank or regress, lambda (candidates) 1, 2 and 4, expected improvement and upper confidence bound in the "
        "mean's place; the TreeGRU where PyTorch is installed. The paper's x 2 are the curves of Genetic and Random, read at twice "
        "the trials. It has 800 trials in batches of 64.",
        (_compared("resnet18-c6", _COMPONENTS, drawings=("trials.png", "time-trials.png")),),
    ),
    Figure(
        "autotvm-8",
        "AutoTVM",
        "figures 8 and 9: transfer",
        "Best TFLOPS so far from scratch, and with records of random configurations of C1 to C6 of ResNet-18 (figure 9a: of C7 "
        "itself): features of the configuration, of the loops, and of their relations. Configurations of a matrix product are "
        "others than a convolution's. Figure 9d, from one device to another, takes two.",
        (
            _collected("sources", [f"resnet18-c{i}" for i in range(1, 7)], ("loop", "relation"), 12),
            _transferred("resnet18-c7", ("configuration", "loop", "relation")),
            _transferred("resnet18-c8", ("relation",)),
            _transferred("resnet18-c9", ("relation",)),
            _transferred("matmul --n 1024 --k 1024 --m 1024", ("loop", "relation"), folder="matmul-1024"),
            _collected("c7", ("resnet18-c7",), ("loop", "relation"), 2),
            _transferred("resnet18-c7", ("configuration", "loop", "relation"), "c7", "in-domain"),
        ),
    ),
    Figure(
        "opevo-6",
        "OpEvo",
        "figure 6: AlexNet's inference time",
        "Runs a second of AlexNet, estimated by the best kernels known of its tasks, over the trials and over the wall-clock; tasks begin "
        f"with default schedules, whose measuring no run is charged with. {PAPERS_OWN} The paper has milliseconds, and a GTX 1080 Ti.",
        (_compared("alexnet", ("AutoTVM", "OpEvo", OURS)),),
    ),
    Figure(
        "bansor-table-1",
        "Bansor",
        "table I: sketches",
        "Those of TVM's rules for this device, with their configurations, where the paper counts those of Ansor's.",
        tuple(Command(name, ("space", name, "--analyse"), 0, (), ()) for name in (*_SINGLE, *_SUBGRAPHS)),
        (
            ("", *(name.upper() for name in _SINGLE), "ConvLayer", "TBS"),
            ("CPU", *["3"] * len(_SINGLE), "not legible", "27"),
            ("GPU", *["-"] * len(_SINGLE), "1", "4"),
        ),
    ),
    Figure(
        "bansor-2",
        "Bansor",
        "figures 2 and 3: operators and subgraphs",
        "Best TFLOPS so far: sketches chosen by the bandit, and at random, which is Ansor's way; WalkGP inside. The paper has four "
        "shapes of each operator, batch 1 and 16, and 1,000 trials.",
        tuple(_compared(name, _SKETCHES, drawings=("trials.png",)) for name in (*_SINGLE, *_SUBGRAPHS)),
    ),
    Figure(
        "bansor-4",
        "Bansor",
        "figure 4: rounds of 16 and 64 trials",
        "Best TFLOPS so far on c1d, sketches chosen by the bandit, and at random. The paper has 1,000 trials, the median of 5 runs.",
        (_compared("c1d", [f"{each}:round_size={size}" for size in (16, 64) for each in _SKETCHES]),),
    ),
    Figure(
        "bansor-table-3",
        "Bansor",
        "tables III and IV: networks",
        "Runs a second, estimated by the best kernels known of the tasks: Ansor (tasks by the gradient, sketches at random), Bansor1 "
        "(the sketches by the bandit) and Bansor2 (the tasks as well). Table IV is the trials after which a curve reaches Ansor's "
        "end. The paper has 1,000 trials for each task, and, in table III, milliseconds.",
        tuple(_compared(name, _NETWORK) for name in ("dcgan", "bert", "resnet3d18")),
        (
            ("ms, batch 1, on a CPU", "Ansor", "Bansor1", "Bansor2"),
            ("DCGAN", "6.74", "5.74", "6.04"),
            ("BERT", "62.83", "56.99", "56.90"),
            ("3D-ResNet-18", "141.76", "134.05", "133.73"),
        ),
    ),
)


def figures_named(names):
    """The figures of these names, all for "all"; ValueError for an unknown one."""
    by_name = {figure.name: figure for figure in FIGURES}
    for name in names:
        if name != "all" and name not in by_name:
            raise ValueError(f"unknown figure {name!r}; allowed: all, {', '.join(by_name)}")
    return [figure for figure in FIGURES if "all" in names or figure.name in names]


def make(figures, minutes, seeds, target, output, progress):
    """Run what makes some figures, each command with its share of the time; one that was interrupted goes on.

    Parameters
    ----------
    figures
        Of `FIGURES`.
    minutes
        For all of them.
    seeds
        Runs of each search.
    target
        "auto", or a kind of device.
    output
        A folder that exists; each figure has one in it.
    progress
        A `cli.progress.Progress`.

    Raises
    ------
    ValueError
        If a command fails; what others have made stays.
    """
    commands = [(figure, command) for figure in figures for command in figure.commands]
    runs = sum(command.runs * (seeds if "seeds" in command.takes else 1) for _, command in commands)
    for number, (figure, command) in enumerate(commands, 1):
        folder = output / figure.name / command.folder
        share = round(minutes / runs * (1 if "seeds" in command.takes else command.runs), 4) if command.runs else None
        asked = {"minutes": share, "seeds": seeds, "target": target}
        made = folder / MADE
        if made.is_file() and json.loads(made.read_text(encoding="utf-8"))["asked"] == asked:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        options = {**asked, "output": folder}
        arguments = [each.replace("{figure}", str(output / figure.name)) for each in command.arguments]
        for option in ("target", *command.takes):
            arguments += [f"--{option}", str(options[option])]
        text = _run(arguments, f"{number} of {len(commands)}, {figure.name} {command.folder}", progress)
        write_whole(made, json.dumps({"asked": asked, "command": arguments, "text": text}, indent=1))


def _run(arguments, what, progress):
    """Run a command; its progress is shown, and what it prints besides returned."""
    command, printed = [sys.executable, "-m", "nni_tensor_tuners", *arguments], []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            for line in process.stdout:
                if line.rstrip().endswith(" left"):
                    progress.show(f"{what}: {line.rstrip()}")
                else:
                    printed.append(line)
        except KeyboardInterrupt:  # the command ends by itself, and records what it has begun
            process.wait()
            raise
        if status := process.wait():
            errors.seek(0)
            raise ValueError(f"{what}: {(errors.read().strip().splitlines() or [f'ended with {status}'])[-1]}")
    return "".join(printed).strip()
