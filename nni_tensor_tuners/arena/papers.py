"""The papers' figures and tables, made again by the commands that anybody can run, on the device there is."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass

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
        Of ``tensor-tuners``; the device, the minutes of a run, the seeds and the output are added.
    runs
        How many runs it makes for each seed: its share of the budget.
    drawings
        The files that it draws.
    seeded
        Whether it takes a number of seeds.
    """

    folder: str
    arguments: tuple
    runs: int
    drawings: tuple
    seeded: bool = True


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
        What makes it; none where it takes a script of the repository, which the caption names.
    published
        The paper's own numbers, rows of cells with the head first.
    """

    name: str
    paper: str
    title: str
    caption: str
    commands: tuple = ()
    published: tuple = ()


def _compared(workload, searches, *more, drawings=("trials.png", "time-trials.png", "clock-trials.png")):
    return Command(workload, ("compare", workload, "--searches", *searches, *more), len(searches), drawings)


OURS = "WalkGP"
PAPERS_OWN = f"{OURS} is ours, and in no paper; all others are theirs."
CURVES = (
    "Best TFLOPS so far, over the trials (mean and standard deviation over the seeds), and over each run's own wall-clock (mean "
    f"and standard error; and a line per run). {PAPERS_OWN} The paper has 500 trials, 5 runs, and a GTX 1080 Ti."
)
_SEARCHES = ("GBFS", "NA2C", "AutoTVM", "OpEvo", OURS)
_NOSE = ("NoSE", "Genetic", "AutoTVM", "Random", OURS)
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
        (Command("c12", ("record", "resnet18-c12", "--random", "100000"), 4, ("errors.png", "histogram.png"), seeded=False),),
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
        "figures 4 to 9: components and transfer",
        "Made by benchmarks/autotvm.py components, and transfer, of the repository.",
    ),
    Figure(
        "opevo-6",
        "OpEvo",
        "figure 6: AlexNet's inference time",
        "Made by benchmarks/networks.py alexnet of the repository; docs/networks.md has it.",
    ),
    Figure(
        "bansor-1",
        "Bansor",
        "tables I, III and IV: sketches, and networks",
        "Made by benchmarks/sketch_counts.py, benchmarks/sketches.py and benchmarks/networks.py of the repository; docs/programs.md "
        "and docs/networks.md have them.",
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
    runs = sum(command.runs * (seeds if command.seeded else 1) for _, command in commands)
    for number, (figure, command) in enumerate(commands, 1):
        folder = output / figure.name / command.folder
        share = round(minutes / runs * (1 if command.seeded else command.runs), 4)
        asked = {"minutes": share, "seeds": seeds, "target": target}
        made = folder / MADE
        if made.is_file() and json.loads(made.read_text(encoding="utf-8"))["asked"] == asked:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        arguments = [*command.arguments, "--minutes", str(share), "--target", target, "--output", str(folder)]
        arguments += ["--seeds", str(seeds)] if command.seeded else []
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
