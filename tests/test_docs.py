"""The documentation says what is so: examples run, commands parse, links lead somewhere, tables are those printed."""

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from nni_tensor_tuners.search import registry

main = import_module("nni_tensor_tuners.cli.main")  # the package has a function of that name

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
SOURCES = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # for what runs in another folder
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=NAMES)

README_LINES = 130
README_WIDTH = 128  # but for the rows of tables, which cannot be broken


def code_lines(page):
    """Lines of a page's fenced and indented blocks, quoted ones too, without their indentation."""
    found, fenced = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        line = re.sub(r"^> ?", "", line)
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            found.append(line.strip())
    return found


def commands(page):
    """The arguments of every ``tensor-tuners`` command of a page, also of those that ssh runs.

    A comment begins after two spaces. What ends in a backslash goes on in the next line. A line with "..." or "|" stands for
    more than one command, and is left out.
    """
    found, text = [], ""
    for line in code_lines(page):
        text += re.split(r"\s{2,}#", line)[0]
        if text.endswith("\\"):
            text = text[:-1]
            continue
        command = re.match(r"(?:\$ )?(?:ssh \S+ )?tensor-tuners (.+)", text)
        if command and "..." not in text and "|" not in text:
            found.append(command[1])
        text = ""
    return found


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def anchors(page):
    """What headings of a page can be linked by, as GitHub makes it of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run(command, folder, environment):
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


def between(text, begin, end):
    assert text.count(begin) == text.count(end) == 1, begin
    return text.partition(begin)[2].partition(end)[0].strip()


@pytest.mark.parametrize("page, number", [(page, n) for page in PAGES for n in range(len(python_blocks(page)))])
def test_python_examples_run(page, number, tmp_path):
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    command = [sys.executable, "-c", python_blocks(page)[number]]
    done = run(command, tmp_path, environment)
    assert done.returncode == 0, done.stderr


@EACH_PAGE
def test_commands_parse(page):
    for command in commands(page):
        try:
            main.parser().parse_args(shlex.split(command))
        except SystemExit:
            pytest.fail(f"tensor-tuners {command}")


def test_the_commands_are_found():
    found = [command for page in PAGES for command in commands(page)]
    assert "register" in found and len(found) > 20
    documented = "tune check register searches report export serve space replay compare sensitivity collect record paper"
    assert {command.split()[0] for command in found} == set(documented.split())


@EACH_PAGE
def test_trials_run(page, tmp_path):
    environment = {**os.environ, "PYTHONPATH": SOURCES, "TENSOR_TUNERS_TARGET": "cpu"}
    for line in code_lines(page):
        command = re.match(r"python3 (-m nni_tensor_tuners\.trial .+?)(\s{2,}#|$)", line)
        if command and "--rpc" not in line:
            command = [sys.executable, *shlex.split(command[1])]
            done = run(command, tmp_path, environment)
            assert done.returncode == 0, line + done.stderr


@EACH_PAGE
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {match[1] for line in code_lines(page) if (match := re.match(r"make (\w+)", line))}
    assert named <= targets


@EACH_PAGE
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@EACH_PAGE
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:benchmarks|docs|experiments|nni_tensor_tuners|tests|trials)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_readme_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert [line for line in lines if len(line) > README_WIDTH and not line.startswith("|")] == []


def test_the_table_of_searches_is_the_one_that_is_printed(capsys):
    assert main.main(["searches", "--markdown"]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == registry.as_markdown().strip()
    assert between(README.read_text(encoding="utf-8"), "<!-- searches -->", "<!-- /searches -->") == printed


def test_every_search_has_a_section():
    assert {name.lower() for name in registry.SEARCHES} <= anchors(ROOT / "docs" / "searches.md")


@EACH_PAGE
def test_results_are_those_recorded(page):
    text = page.read_text(encoding="utf-8")
    for name, block in re.findall(r"<!-- from (\S+) -->\n+```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        recorded = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in block.splitlines() if line not in recorded] == [], name


def test_the_readme_s_table_of_results_is_the_one_recorded():
    text = README.read_text(encoding="utf-8")
    (name,) = re.findall(r"<!-- from (\S+) -->", text)
    mean = (ROOT / name).read_text(encoding="utf-8").partition("mean of 11 landscapes, 20 seeds, 200 trials")[2]
    rows = re.findall(r"^\| `(\S+)` \| (\.\d+) \| (\.\d+) \| (\.\d+) \| (\.\d+) \| (\d+) % \|$", text, re.MULTILINE)
    assert {search.partition(":")[0] for search, *_ in rows} >= {n for n, e in registry.SEARCHES.items() if not e.nested}
    for search, *numbers in rows:
        (row,) = re.findall(rf"^{re.escape(search)} +(.*)$", mean, re.MULTILINE)
        *fractions, optimum = row.split()[:5]
        assert numbers == [*(fraction.removeprefix("0") for fraction in fractions), f"{float(optimum):.0%}"[:-1]], search
