"""The table of searches agrees with the classes, the experiments and what NNI is told."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import nni_tensor_tuners
from nni_tensor_tuners import SearchSpace, create_search, search
from nni_tensor_tuners.search import SEARCHES, Search, arguments_of, search_named_by_nni
from nni_tensor_tuners.space.nested import is_nested

PACKAGE = Path(nni_tensor_tuners.__file__).parent
EXPERIMENTS = sorted((PACKAGE.parent / "experiments").glob("*/*.yml"))
SPACE = {"X": {"_type": "factor", "_value": [8, 3]}}
HEAVY = ["numpy", "scipy", "xgboost", "tvm", "nni"]


def loaded_by(statements):
    """Which of the HEAVY modules a fresh interpreter has loaded after these statements."""
    code = f"import sys\n{statements}\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return done.stdout.strip()


def test_the_names_that_experiments_rely_on():
    assert list(SEARCHES) == ["WalkGP", "OpEvo", "GBFS", "NA2C", "AutoTVM", "NoSE", "Bansor", "TaskScheduler", "Genetic", "Random"]
    assert {entry.name for entry in SEARCHES.values() if entry.nni_name != entry.name} == {"Random"}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_table_has_the_arguments_and_defaults_of_the_class(name):
    parameters = list(inspect.signature(SEARCHES[name].load()).parameters.values())
    assert [parameter.name for parameter in parameters[:2]] == ["space", "seed"]
    table = [(argument.name, argument.default) for argument in SEARCHES[name].arguments]
    assert table == [(parameter.name, parameter.default) for parameter in parameters[2:]]
    assert arguments_of(name) == [argument for argument, _ in table]


@pytest.mark.parametrize("name", SEARCHES)
def test_the_class_documents_every_argument_and_what_the_paper_has(name):
    documented = inspect.getdoc(SEARCHES[name].load())
    listed = [part for line in documented.splitlines() if not line.startswith(" ") for part in line.split(", ")]
    for argument in SEARCHES[name].arguments:
        assert argument.name in listed
        if argument.paper.isdigit():
            assert f"{argument.paper} in " in documented


@pytest.mark.parametrize("name", SEARCHES)
def test_a_default_left_open_stands_for_what_the_table_says(name):
    created = create_search(name, SearchSpace.from_json({"nested": {"_type": "choice", "_value": [{"_name": "a", **SPACE}]}}))
    left_open = {
        "WalkGP": ["features"],
        "AutoTVM": ["objective", "chains", "steps"],
        "Bansor": ["inner_args"],
        "TaskScheduler": ["counts", "flop", "defaults", "inner_args"],
    }
    open_ones = [argument for argument in SEARCHES[name].arguments if argument.default is None]
    assert [argument.name for argument in open_ones] == left_open.get(name, [])
    assert all(getattr(created, argument.name) == argument.value for argument in open_ones)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_table_says_which_searches_learn_from_elsewhere(name):
    assert (SEARCHES[name].load().transfer is not Search.transfer) == SEARCHES[name].transfers


def test_every_text_is_one_line():
    texts = [entry.summary for entry in SEARCHES.values()]
    texts += [argument.help for entry in SEARCHES.values() for argument in entry.arguments]
    assert all(text and text == " ".join(text.split()) for text in texts)


def test_what_nni_is_told_to_register_is_the_table():
    algorithms = yaml.safe_load((PACKAGE / "algorithms.yml").read_text(encoding="utf-8"))["algorithms"]
    told = [(each["builtinName"], each["classArgs"]) for each in algorithms]
    assert told == [(entry.nni_name, {"search": entry.name}) for entry in SEARCHES.values()]


@pytest.mark.parametrize("name", SEARCHES)
def test_experiments_show_the_arguments_of_the_table(name):
    tuners = [yaml.safe_load(path.read_text(encoding="utf-8"))["tuner"] for path in EXPERIMENTS]
    of_this_one = [tuner["classArgs"] for tuner in tuners if tuner["name"] == SEARCHES[name].nni_name]
    spaces = [json.loads((folder / "search_space.json").read_text()) for folder in {path.parent for path in EXPERIMENTS}]
    of_use = [space for space in spaces if any(map(is_nested, space.values())) or not SEARCHES[name].nested]  # of no network
    assert len(of_this_one) == len(of_use)
    for class_args in of_this_one:
        # As text: 2 and 2.0 are equal, but a YAML that says 2 is to go on saying so.
        shown = {argument: value for argument, value in class_args.items() if argument in arguments_of(name)}
        assert json.dumps(shown) == json.dumps(SEARCHES[name].shown)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_found_by_the_name_nni_knows(name):
    assert search_named_by_nni(SEARCHES[name].nni_name) == name


@pytest.mark.parametrize(
    "nni_name, hint",
    [
        ("TPE", ""),
        (None, ""),
        (["OpEvo"], ""),
        ("Random", " (NNI keeps the name Random for its own; ours is RandomSearch)"),
    ],
)
def test_a_name_that_nni_does_not_know_is_refused(nni_name, hint):
    with pytest.raises(ValueError) as caught:
        search_named_by_nni(nni_name)
    known = "WalkGP, OpEvo, GBFS, NA2C, AutoTVM, NoSE, Bansor, TaskScheduler, Genetic, RandomSearch"
    assert str(caught.value) == f"expected one of {known}, got {nni_name!r}{hint}"


def test_the_table_loads_nothing_heavy_and_a_search_only_what_it_needs():
    assert loaded_by("from nni_tensor_tuners.search import SEARCHES, Search, arguments_of, check_names") == "[]"
    setting = "from nni_tensor_tuners import SearchSpace, create_search\nspace = SearchSpace.from_json(" + repr(SPACE) + ")\n"
    for name in ("Random", "OpEvo", "GBFS", "Genetic"):
        assert loaded_by(f"{setting}create_search({name!r}, space).ask(3)") == "[]"
    assert loaded_by(f"{setting}create_search('NoSE', space).ask(3)") == "['numpy']"


def test_the_classes_are_there_by_name():
    assert search.OpEvo is SEARCHES["OpEvo"].load() is type(create_search("OpEvo", SearchSpace.from_json(SPACE)))
    with pytest.raises(AttributeError, match="has no attribute 'OpEvoo'"):
        _ = search.OpEvoo
