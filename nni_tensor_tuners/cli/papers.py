"""The command that makes the papers' figures again."""

from pathlib import Path

from ..tasks.arguments import duration, positive
from ..tasks.device import KINDS
from .progress import Progress


def add_commands(command):
    """Add the command to a parser; ``command`` as for `arena.add_commands`."""
    sub = command(
        "paper",
        _paper,
        "Make the figures and tables of the papers again, on this device; one HTML page has all that have been made so far.",
        "Without a figure's name the figures are listed. The same command goes on where it was interrupted; with a larger budget "
        "its runs go on.\n\nexamples: tensor-tuners paper all --budget 30    tensor-tuners paper opevo-3 nose-5 --budget 600 --seeds 5",
    )
    sub.add_argument("figures", nargs="*", metavar="FIGURE", help="names of figures, or all")
    sub.add_argument(
        "--budget",
        type=duration,
        default=30.0,
        metavar="MINUTES",
        help="for all runs together (default: 30); models are read, and their default schedules measured, beside it",
    )
    sub.add_argument("--seeds", type=positive, default=2, help="runs of each search (default: 2)")
    sub.add_argument("--target", choices=["auto", *KINDS], default="auto", help="device to run on (default: auto)")
    sub.add_argument("--output", metavar="FOLDER", default="runs/paper", help="where (default: runs/paper)")


def _paper(args):
    from ..arena.page import page
    from ..arena.papers import FIGURES, figures_named, make
    from ..tasks.shared import write_whole

    progress = Progress()
    if not args.figures:
        for figure in FIGURES:
            progress.say(f"{figure.name:<16}{figure.paper}, {figure.title}")
        return
    figures, output = figures_named(args.figures), Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    try:
        make(figures, args.budget, args.seeds, args.target, output, progress)
    finally:
        write_whole(output / "index.html", page(output))
        progress.say(f"written to {output}: index.html")
