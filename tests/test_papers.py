"""The papers' figures, made again, and the page that shows them."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import wait_for

from nni_tensor_tuners.arena import papers
from nni_tensor_tuners.arena.page import page
from nni_tensor_tuners.arena.summary import parse_search
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.cli.main import parser
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks.arguments import task_of
from nni_tensor_tuners.tasks.network import NETWORKS

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
C12 = papers.figures_named(["nose-3"])[0]


class Page(HTMLParser):
    """What a browser would see, and what it would have to fetch."""

    def __init__(self, text):
        super().__init__()
        self.images, self.fetched, self.figures, self.text, self.open = [], [], [], "", []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "img":
            kind, _, data = attrs["src"].partition(",")
            assert kind == "data:image/png;base64" and attrs["alt"]
            self.images.append(base64.b64decode(data))
        elif "src" in attrs or "href" in attrs:
            self.fetched.append(tag)
        if tag == "figure":
            self.figures.append(attrs["id"])
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def write_made(folder, figure, text="TFLOPS <& seconds"):
    """As if a figure had been made: each drawing is a file of its own bytes."""
    drawings = []
    for command in figure.commands:
        place = folder / figure.name / command.folder
        place.mkdir(parents=True)
        (place / papers.MADE).write_text(json.dumps({"command": ["compare", "mm1"], "text": text}))
        for drawing in command.drawings:
            drawings.append(f"{command.folder} {drawing}".encode())
            (place / drawing).write_bytes(drawings[-1])
    return drawings


def test_the_page_has_what_was_made_and_says_how_the_rest_is(tmp_path):
    (figure,) = papers.figures_named(["opevo-3"])
    drawings = write_made(tmp_path, figure)
    seen = Page(page(tmp_path))
    assert seen.images == drawings and seen.fetched == [] and seen.figures == ["opevo-3"]
    assert "TFLOPS <& seconds" in seen.text and "7.22 (.04)" in seen.text and figure.caption in seen.text
    assert "tensor-tuners compare mm1" in seen.text and "tensor-tuners paper nose-5" in seen.text
    assert all(other.title in seen.text for other in papers.FIGURES)


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_browser_shows_the_page(tmp_path):
    (figure,) = papers.figures_named(["opevo-3"])
    drawings = write_made(tmp_path / "made", figure)
    for place in (tmp_path / "made").rglob("*.png"):
        image = np.zeros((24, 32, 3))
        plt.imsave(place, image)
    told = "<script>document.title = JSON.stringify([...document.images].map(image => image.naturalWidth))</script>"
    shown = tmp_path / "page.html"
    shown.write_text(page(tmp_path / "made") + told, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    document = subprocess.run([*command, shown.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout
    assert f"<title>{json.dumps([32] * len(drawings), separators=(',', ':'))}</title>" in document


def test_every_figure_is_listed_and_an_unknown_one_refused(capsys):
    assert main(["paper"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == [figure.name for figure in papers.FIGURES]
    assert main(["paper", "opevo-33"]) == 1
    assert capsys.readouterr().err.startswith("error: unknown figure 'opevo-33'; allowed: all, opevo-3, ")
    with pytest.raises(SystemExit):
        main(["paper", "all", "--budget", "0"])


@pytest.mark.parametrize("figure", papers.FIGURES, ids=lambda figure: figure.name)
def test_the_commands_of_every_figure_are_ones_of_ours(figure, monkeypatch, tmp_path):
    """Their arguments are known, their searches and workloads too; what they take of others is made before them."""
    asked = []
    monkeypatch.setattr(papers, "_run", lambda arguments, what, progress: asked.append(arguments) or "made")
    papers.make([figure], 10, 3, "cpu", tmp_path, None)
    assert len(asked) == len(figure.commands) > 0
    made = set()
    for arguments in asked:
        args = parser().parse_args(arguments)
        for search in getattr(args, "searches", ()):
            parse_search(search)
        for args.workload in getattr(args, "sources", getattr(args, "workloads", [getattr(args, "workload", None)])):
            assert args.workload in NETWORKS or task_of(args).shapes
        assert set(getattr(args, "transfer", ())) <= made
        made.add(args.output)
    papers.make([figure], 10, 3, "cpu", tmp_path, None)
    assert len(asked) == len(figure.commands)  # what is made stays


def test_the_minutes_of_all_runs_are_the_budget(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(papers, "_run", lambda arguments, what, progress: asked.append(arguments) or "made")
    papers.make(papers.FIGURES, 60, 2, "cpu", tmp_path, None)
    minutes = 0.0
    for arguments, command in zip(asked, [command for figure in papers.FIGURES for command in figure.commands]):
        args = parser().parse_args(arguments)
        minutes += (getattr(args, "minutes", None) or 0.0) * (2 * command.runs if "seeds" in command.takes else 1)
    assert minutes == pytest.approx(60, rel=0.01)


def test_an_interrupted_figure_goes_on_and_one_that_is_made_stays(tmp_path):
    command = [sys.executable, "-m", "nni_tensor_tuners", "paper", C12.name, "--target", "cpu", "--output", str(tmp_path)]
    path = tmp_path / C12.name / "c12" / records.RECORDS
    # Ctrl-C counts, also where the tests run in the background of a shell that has it ignored.
    heeding = {"start_new_session": True, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen([*command, "--budget", "10"], **heeding) as process:
        wait_for(lambda: len(records.read(path)) > 1)
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C
    before = path.read_text()
    assert process.returncode == 130 and Page((tmp_path / "index.html").read_text()).figures == []
    subprocess.run([*command, "--budget", "0.05"], check=True)
    after = path.read_text()
    assert after.startswith(before) and len(after) > len(before)
    seen = Page((tmp_path / "index.html").read_text())
    assert seen.figures == [C12.name] and all(image.startswith(b"\x89PNG") for image in seen.images) and len(seen.images) == 2
    subprocess.run([*command, "--budget", "0.05"], check=True)
    assert path.read_text() == after
