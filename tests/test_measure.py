import errno
import itertools
import mmap
import os
import random
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import TESTS, wait_for
from faulty_template import FAULTS, Faulty

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import ErrorCode, Limits, cores, measure, measure_reference, reference, timing
from nni_tensor_tuners.measure.lock import DeviceLock
from nni_tensor_tuners.measure.process import STAGES
from nni_tensor_tuners.measure.timing import HUGE_PAGE, place, time_repeatedly
from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.tasks import WORKLOADS, shared
from nni_tensor_tuners.tasks.device import GENERIC, Device, find_device
from nni_tensor_tuners.tasks.matmul import LAYOUTS, Matmul

CPU = find_device("cpu")
SMALL = Matmul(16, 24, 32)
FAULTY = Faulty(16, 24, 32)
QUICK = Limits(build_seconds=8, run_seconds=4, repeats=3, repeat_seconds=0.001)


@pytest.fixture(autouse=True)
def _template_is_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_cpu_template_is_right_in_every_layout(layout):
    config = {"X": [2, 2, 1, 4], "Y": [2, 1, 1, 16], "K": [3, 2, 4]}
    result = measure(Matmul(16, 24, 32, layout), config, CPU, QUICK)
    assert (result["error_code"], result["error"]) == (ErrorCode.NO_ERROR, "")
    assert result["tflops"] == pytest.approx(2 * 16 * 24 * 32 / result["latency_ms"] / 1e9)
    assert 0 < result["compile_seconds"] < QUICK.build_seconds


def test_odd_shapes():
    config = {"X": [5, 1, 3, 2], "Y": [7, 1, 1, 2], "K": [5, 3, 1]}
    assert measure(Matmul(30, 15, 14, "TN"), config, CPU, QUICK)["error_code"] == ErrorCode.NO_ERROR


@pytest.mark.parametrize(
    "fault, code, message",
    [
        ("fine", ErrorCode.NO_ERROR, ""),
        ("raises", ErrorCode.INSTANTIATION_ERROR, "this configuration is refused"),
        ("segfaults", ErrorCode.INSTANTIATION_ERROR, "the worker was killed by SIGSEGV in stage instantiate"),
        ("does_not_compile", ErrorCode.COMPILE_HOST, "Check failed"),
        ("hangs_while_building", ErrorCode.BUILD_TIMEOUT, "took longer than 8 s to instantiate"),
        ("hangs_while_running", ErrorCode.RUN_TIMEOUT, "took longer than 4 s to run"),
        ("aborts_while_running", ErrorCode.RUNTIME_DEVICE, "the worker was killed by SIGABRT in stage run"),
        ("wrong_answer", ErrorCode.WRONG_ANSWER, "elements differ from the reference"),
        ("reports_nan", ErrorCode.WRONG_ANSWER, "512 of 512 elements differ from the reference"),
    ],
)
def test_every_fault_has_its_error_code_and_leaves_no_process(fault, code, message):
    assert fault in FAULTS
    result = measure(FAULTY, {"fault": fault}, CPU, QUICK)
    assert (ErrorCode(result["error_code"]), message in result["error"]) == (code, True), result
    spent = result["stage_seconds"]
    assert list(spent) == list(STAGES)[: len(spent)]
    if code in (ErrorCode.BUILD_TIMEOUT, ErrorCode.RUN_TIMEOUT):
        last = list(spent)[-1]
        assert spent[last] >= getattr(QUICK, STAGES[last][0])
    (keeper,) = psutil.Process().children()
    wait_for(lambda: keeper.children() == [])


def test_a_child_of_the_worker_does_not_outlive_it():
    measure(FAULTY, {"fault": "leaves_a_child"}, CPU, QUICK)
    psutil.wait_procs([p for p in psutil.process_iter() if "12345.678" in _command(p)], timeout=10)
    assert not any("12345.678" in _command(p) for p in psutil.process_iter())


def test_the_worker_ends_when_its_parent_is_killed():
    code = "from test_measure import *\nmeasure(FAULTY, {'fault': 'hangs_while_building'}, CPU, Limits(build_seconds=600))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=TESTS) as parent:
        keeper, worker = wait_for(lambda: (found := psutil.Process(parent.pid).children(recursive=True))[1:] and found)
        parent.kill()
        _, alive = psutil.wait_procs([keeper, worker], timeout=20)
    assert alive == []


def test_a_worker_is_forked_where_tvm_is_imported_and_begins_as_its_job_says(tmp_path, monkeypatch):
    """One process imports, for as many measurements as there are; a new one where Python imports from elsewhere, or after a kill."""

    def keeper():
        assert measure(FAULTY, {"fault": "fine"}, CPU, QUICK)["error_code"] == ErrorCode.NO_ERROR
        (found,) = psutil.Process().children()
        return found

    first = keeper()
    assert keeper() == first
    first.kill()
    second = keeper()
    assert second != first
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSOR_TUNERS_TEST", "of the job")
    third = keeper()
    assert third != second and not second.is_running()
    monkeypatch.setenv("TENSOR_TUNERS_TEST", "of the next job")
    result = measure(FAULTY, {"fault": "tells_its_environment"}, CPU, QUICK)
    assert result["error"] == f"{tmp_path} of the next job"
    assert keeper() == third


def test_workers_begin_with_the_modules_that_a_task_names(tmp_path, monkeypatch):
    """Imported once: each import of the module planted here leaves a line."""
    (tmp_path / "planted_module.py").write_text(f"open({str(tmp_path / 'imports')!r}, 'a').write('imported\\n')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monkeypatch.setattr(Faulty, "imports", lambda self, device: ["planted_module", "no_such_module"])
    for _ in range(2):
        assert measure(FAULTY, {"fault": "tells_its_modules"}, CPU, QUICK)["error"] == "['planted_module']"
    assert (tmp_path / "imports").read_text() == "imported\n"


def test_a_keeper_leaves_pytorch_alone(tmp_path, monkeypatch):
    """TVM imports it where it is installed, and asks it for a GPU: workers that were forked after that could not use one."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"open({str(tmp_path / 'imports')!r}, 'a').write('imported\\n')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    assert measure(FAULTY, {"fault": "fine"}, CPU, QUICK)["error_code"] == ErrorCode.NO_ERROR
    assert not (tmp_path / "imports").exists()


def test_processes_that_share_a_keeper_import_tvm_once_and_die_alone(tmp_path):
    shared = "from test_measure import *\nfrom nni_tensor_tuners.measure import workers\n"
    shared += f"workers.IDLE_SECONDS = 4\nworkers.share_keeper({str(tmp_path)!r})\n"
    fine = shared + "assert measure(FAULTY, {'fault': 'fine'}, CPU, QUICK)['error_code'] == 0"
    hanging = shared + "measure(FAULTY, {'fault': 'hangs_while_building'}, CPU, Limits(build_seconds=600))"
    environment = {**os.environ, "TENSOR_TUNERS_TEST": str(tmp_path)}

    def started(code):
        return subprocess.Popen([sys.executable, "-c", code], cwd=TESTS, env=environment)

    def of_the_keeper():
        found = [p for p in psutil.process_iter(["cmdline", "environ"]) if "nni_tensor_tuners.measure.keeper" in _command(p)]
        return [p for p in found if (p.info["environ"] or {}).get("TENSOR_TUNERS_TEST") == str(tmp_path)]

    with started(hanging) as first:
        try:
            keeper, worker = wait_for(lambda: (found := sorted(of_the_keeper(), key=lambda p: p.pid))[1:] and found)
            path = keeper.cmdline()[-2]
            assert path.endswith(".socket")
            assert started(fine).wait() == 0
            wait_for(lambda: of_the_keeper() == [keeper, worker])
        finally:
            first.kill()
    wait_for(lambda: worker not in of_the_keeper())
    assert keeper.is_running()
    assert started(fine).wait() == 0
    wait_for(lambda: not of_the_keeper())  # nobody is there any more
    assert not os.path.exists(path)


def _command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_a_kernel_far_slower_than_the_best_is_not_timed_at_length():
    def timed(times, best):
        times, runs = iter(times), []

        def run(number, repeat):
            runs.append(number * repeat)
            return [next(times) for _ in range(repeat)]

        return time_repeatedly(
            run, Limits(early_stop=5, repeats=3, repeat_seconds=0.001, warm_seconds=0), best_seconds=best
        ), sum(runs)

    slow = {"latency_ms": 10.0, "spread": 0.0, "early_stopped": True}
    assert timed([0.010], best=0.0001) == (slow, 1)
    assert timed([0.012, 0.010, 0.011], best=0.001) == (slow, 3)
    disturbed_once, runs = timed([0.012] + [0.004] * 5, best=0.001)
    assert disturbed_once["early_stopped"] is False and disturbed_once["latency_ms"] == pytest.approx(4.0) and runs == 6
    assert timed([0.010] * 4, best=0.009)[1] == 4


@pytest.mark.parametrize("others, latency", [(None, 10.2), (lambda: False, 10.1)])
def test_timing_warms_up_and_repeats_what_was_disturbed(others, latency):
    """Of what counts: the median, or, where others use the device, too, the fastest repeat."""
    disturbed, steady = [0.0102] * 4 + [0.030] * 5, [0.0101] * 4 + [0.0102] * 5
    rounds, asked = iter([[0.010], [0.0105], disturbed, [0.010], steady, ["one more round"]]), []

    def run(number, repeat):
        asked.append((number, repeat))
        return next(rounds)

    result = time_repeatedly(run, Limits(repeats=9, repeat_seconds=0.02, warm_seconds=0.1), disturbed=others)
    assert result == {"latency_ms": pytest.approx(latency), "spread": pytest.approx(0.01, abs=0.001), "early_stopped": False}
    # One run, a tenth of a second to warm up, nine repeats, another tenth as something disturbs, nine repeats.
    assert asked == [(1, 1), (10, 1), (2, 9), (10, 1), (2, 9)]
    assert next(rounds) == ["one more round"]


@pytest.mark.parametrize("seconds, expected", [(0.001, 60), (0.01, 40), (0.2, 3), (3.0, 1), (30.0, 1)])
def test_slow_kernels_are_timed_a_few_times_within_a_quarter_of_the_limit(seconds, expected):
    asked = []

    def run(number, repeat):
        asked.append(repeat)
        return [seconds] * repeat

    time_repeatedly(run, Limits(run_seconds=20, warm_seconds=0))
    assert asked[-1] == expected


def test_rounds_that_were_disturbed_all_along_are_made_again():
    rounds = iter([[0.02], [0.02] * 9, [0.02], [0.01] * 9, ["one more round"]])
    disturbed = iter([True, False])
    limits = Limits(repeats=9, repeat_seconds=0.02, warm_seconds=0)
    result = time_repeatedly(lambda number, repeat: next(rounds), limits, disturbed=lambda: next(disturbed))
    assert result == {"latency_ms": 10.0, "spread": 0.0, "early_stopped": False}
    assert next(rounds) == ["one more round"]


def test_two_threads_on_one_core_are_noticed():
    core = min(os.sched_getaffinity(0))
    wait_for(lambda: cores.share([core, core]))  # others may have slowed what it compares with
    assert len(os.sched_getaffinity(0)) == CPU.cores  # only the threads that looked were tied to it


@pytest.mark.skipif(CPU.cores < 2, reason="takes two cores")
def test_a_thread_that_stays_awake_for_a_moment_is_not_taken_for_another_machine():
    """TVM's do after a kernel."""
    usable = sorted(os.sched_getaffinity(0))[:2]

    def awake():
        os.sched_setaffinity(0, usable[:1])  # of this thread
        x, end = np.ones((200, 200), dtype=np.float32), time.perf_counter() + 0.05
        while time.perf_counter() < end:
            np.dot(x, x)

    def told_apart():
        thread = threading.Thread(target=awake)
        thread.start()
        shared = cores.share(usable)
        thread.join()
        return not shared

    wait_for(told_apart)  # at times they do share


@pytest.mark.parametrize(
    "siblings, usable, expected",
    [
        (["0", "1", "2", "3"], [0, 1, 2, 3], True),
        (["0", "1", "2", "3"], [2], False),
        (["0,2", "1,3", "0,2", "1,3"], [0, 1, 2, 3], False),
        (["0-1", "0-1", "2-3", "2-3"], [1, 3], True),
        ([], [0, 1], False),
    ],
)
def test_threads_of_a_core_are_no_disturbance_where_they_are_what_there_is(tmp_path, siblings, usable, expected):
    for core, text in enumerate(siblings):
        file = tmp_path / f"cpu{core}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(text + "\n")
    assert cores.could_share(usable, tmp_path) is expected


def test_on_a_machine_that_others_use_timing_ends_within_its_limit(monkeypatch):
    """A run alone takes a microsecond, but in a series, between which others have the cores, four milliseconds each."""
    now, slowness = 0.0, itertools.cycle([1.0, 1.0, 1.5])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)

    def run(number, repeat):
        nonlocal now
        means = [1e-6 if number == 1 else 4e-3 * next(slowness) for _ in range(repeat)]
        now += number * sum(means)
        return means

    result = time_repeatedly(run, Limits(run_seconds=3))
    assert now < 3 and result["latency_ms"] == pytest.approx(4.0) and result["spread"] > 0.05


def test_buffers_are_placed_alike():
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    placed = place(array)
    assert placed.ctypes.data % (1 << 21) == 0
    assert (placed == array).all() and placed.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("megabytes", [0.25, 2, 5])
def test_buffers_may_lie_in_huge_pages_as_a_whole(megabytes):
    placed = place(np.zeros(int(megabytes * (1 << 20)), dtype=np.uint8))
    first, last = placed.ctypes.data, placed.ctypes.data + placed.nbytes - 1
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        low, high, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (....)", mapping).groups()
        if int(low, 16) <= first < int(high, 16):
            break
    assert rights == "rw-p"  # the system grants none to what could be shared
    assert "hg" in mapping[mapping.index("VmFlags:") :].splitlines()[0].split()
    assert last // HUGE_PAGE * HUGE_PAGE + HUGE_PAGE <= int(high, 16)


def test_wrong_answers_are_told_from_rounding():
    x, y = SMALL.inputs()
    exact = SMALL.reference(x.astype(np.float64), y.astype(np.float64))
    assert wrong_answer(SMALL.reference(x, y), exact) is None
    off = SMALL.reference(x, y)
    off[3, 4] -= x[3, 0] * y[0, 4]
    assert "1 of 512 elements differ" in wrong_answer(off, exact) and "(3, 4)" in wrong_answer(off, exact)
    off[0, 0] = np.nan
    assert "2 of 512" in wrong_answer(off, exact)


def test_timing_excludes_compiling_and_other_timing():
    lock = DeviceLock(Device("cpu", "test", f"test-{os.getpid()}"))
    order, entered, leave = [], threading.Event(), threading.Event()

    def compiler():
        with lock.shared():
            entered.set()
            leave.wait(30)
            order.append("compiled")

    def timer():
        with lock.exclusive():
            order.append("timed")

    first = threading.Thread(target=compiler)
    first.start()
    assert entered.wait(30)
    with lock.shared():  # compilers do not exclude each other
        pass
    second = threading.Thread(target=timer)
    second.start()
    leave.set()
    for thread in (first, second):
        thread.join(30)
    assert order == ["compiled", "timed"]


def test_numpy_is_timed_the_same_way():
    result = measure_reference(SMALL, QUICK)
    assert result["error_code"] == ErrorCode.NO_ERROR
    assert result["tflops"] == pytest.approx(SMALL.flop / result["latency_ms"] / 1e9)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "workload",
    [*WORKLOADS.values(), Matmul(1, 1, 1), Matmul(1, 7, 16), Matmul(7, 3, 1021), Matmul(30, 15, 14, "TT"), Matmul(3, 1000, 34)],
    ids=str,
)
def test_every_template_has_a_legal_configuration_for_every_shape(workload, kind):
    space = SearchSpace.from_json(workload.search_space(GENERIC[kind]), workload.constraints(GENERIC[kind]))
    assert space.contains(space.sample(random.Random(0)))


def test_cuda_without_a_gpu_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("nni_tensor_tuners.tasks.device._first_gpu", lambda: None)
    with pytest.raises(ValueError, match="target cuda: no usable NVIDIA GPU found"):
        find_device("cuda")
    assert find_device("auto").kind == "cpu"
    with pytest.raises(ValueError, match="unknown target 'tpu'; allowed: auto, cuda, cpu"):
        find_device("tpu")


def test_a_system_without_huge_pages_is_no_failure(monkeypatch):
    class Refused(mmap.mmap):
        def madvise(self, *_):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(timing.mmap, "mmap", Refused)
    placed = place(np.arange(3, dtype=np.float32))
    assert placed.tolist() == [0, 1, 2] and placed.ctypes.data % HUGE_PAGE == 0


@dataclass(frozen=True)
class Answer(Matmul):
    """A task whose answer is large for what it costs, and says how often it is asked for."""

    flop = 20e9

    def reference(self, x, y, out=None):
        ASKED.append(self)
        return np.full(self.shapes[-1], self.k, np.float32)


ASKED = []


def test_large_answers_are_kept_within_so_many_bytes(tmp_path):
    """Room for two of 40 kB: the oldest goes, also where a smaller one is enough; one that is larger than all is not kept."""
    ASKED.clear()
    tasks = [Answer(100, k, 100) for k in (1, 2, 3)]

    def ask(task):
        before = len(ASKED)
        answer = reference.expected_output(task, task.inputs(), tmp_path, kept_bytes=90_000)
        assert (answer == task.k).all() and answer.shape == (task.n, task.m)
        return len(ASKED) > before

    assert [ask(task) for task in (tasks[0], tasks[1], tasks[0], tasks[1])] == [True, True, False, False]
    (tmp_path / "reference-cut-short.part").write_bytes(bytes(40_000))
    os.utime(tmp_path / "reference-cut-short.part", (0, 0))
    for age, task in enumerate(tasks[:2], 1):
        os.utime(tmp_path / f"reference-{task.digest()[:16]}.npy", (age, age))
    assert ask(tasks[2]) and not ask(tasks[1]) and ask(tasks[0])
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 90_000
    before = sorted(file.name for file in tmp_path.iterdir())
    large = Answer(200, 1, 200)
    assert ask(large) and ask(large) and sorted(file.name for file in tmp_path.iterdir()) == before
    assert ask(Answer(1, 1, 1)) and not ask(Answer(1, 1, 1))


def test_one_of_those_that_want_an_answer_at_the_same_time_computes_it(tmp_path):
    """The trials that begin an experiment: the others wait, and read what it has kept."""
    ASKED.clear()
    task, together = Answer(10, 1, 10), threading.Barrier(4)

    def ask(_):
        together.wait()
        return reference.expected_output(task, task.inputs(), tmp_path)

    with ThreadPoolExecutor(4) as pool:
        assert all((answer == 1).all() for answer in pool.map(ask, range(4)))
    assert len(ASKED) == 1


def test_an_answer_that_cannot_be_kept_is_no_failure(tmp_path):
    task = Answer(10, 1, 10)
    assert (reference.expected_output(task, task.inputs(), tmp_path / "nowhere") == 1).all()
    (tmp_path / f"reference-{task.digest()[:16]}.npy").write_bytes(b"cut short")
    assert (reference.expected_output(task, task.inputs(), tmp_path) == 1).all()


def test_the_shared_folder_is_ours_or_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(shared.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"tensor-tuners-{os.getuid()}"
    assert shared.shared_folder() == folder == shared.shared_folder() and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(OSError, match=rf"^{folder}: others may write to it \(mode 777\); chmod 700 it, or remove it$"):
        DeviceLock(CPU)
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    for destination in ("elsewhere", "nothing", None):
        folder.symlink_to(tmp_path / destination) if destination else folder.touch()
        with pytest.raises(OSError, match=rf"^{folder}: expected a folder of ours, and it is none"):
            shared.shared_folder()
        folder.unlink()
    monkeypatch.setattr(shared.os, "getuid", lambda: 4711)
    (tmp_path / "tensor-tuners-4711").mkdir()
    with pytest.raises(OSError, match="tensor-tuners-4711: expected a folder of ours, and it belongs to user"):
        shared.shared_folder()


def test_a_shared_folder_that_is_not_ours_is_one_line_of_a_measurement(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / f"tensor-tuners-{os.getuid()}").symlink_to(tmp_path)
    result = measure(SMALL, {"X": [16, 1, 1, 1], "Y": [1, 1, 1, 32], "K": [24, 1, 1]}, CPU, QUICK)
    assert result["error_code"] == ErrorCode.UNKNOWN_ERROR and "expected a folder of ours" in result["error"], result


def test_processes_of_measuring_import_no_circle():
    for module in ("remote", "worker", "child", "lock", "reference", "serve"):
        command = [sys.executable, "-c", f"import nni_tensor_tuners.measure.{module}, sys; print('tvm' in sys.modules)"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "False\n", module
