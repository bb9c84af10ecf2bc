"""How long a measurement may take, and how carefully it times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one measurement.

    Attributes
    ----------
    build_seconds
        For instantiating and compiling, waits for the device not counted.
    run_seconds
        For checking and timing on the device.
    warm_seconds
        The kernel runs for this long before it is timed.
    repeats
        Timed repeats, of which the fastest counts on a CPU, elsewhere the median.
    repeat_seconds
        Length of a repeat, which runs the kernel as often as fits.
    timing_seconds
        Repeats stop being added once they would take longer than this in all, beyond three where these take less than a quarter
        of ``run_seconds``, and beyond one.
    steady_spread
        Repeats whose interquartile range is more than this fraction of their median were disturbed, and are made again.
    rounds
        How often at most, and only in the first quarter of ``run_seconds``; the fastest round counts.
    early_stop
        A kernel this many times slower than the best known one is timed by single runs only.
    """

    build_seconds: float = 30.0
    run_seconds: float = 20.0
    warm_seconds: float = 0.15
    repeats: int = 60
    repeat_seconds: float = 0.005
    timing_seconds: float = 0.4
    steady_spread: float = 0.05
    rounds: int = 4
    early_stop: float = 5.0
