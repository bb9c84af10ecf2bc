"""What is optimised: from a metric, or from a record, to the fitness that a search maximises."""

import math
from dataclasses import dataclass

OPTIMIZE_MODES = ("maximize", "minimize")


@dataclass(frozen=True)
class Objective:
    """Turns measurements into fitness (higher is better), once, at the edge.

    ``minimize`` takes the reciprocal: strictly decreasing, and positive, so that fitness-proportional selection (OpEvo
    equation 2) works on latencies as on TFLOPS. What is to be minimised must be positive.

    Attributes
    ----------
    mode
        "maximize" or "minimize".
    of
        Where in a metric, a dict, the number is.

    >>> Objective("minimize").fitness(0.25)
    4.0
    """

    mode: str = "maximize"
    of: str = "default"

    def __post_init__(self):
        if self.mode not in OPTIMIZE_MODES:
            raise ValueError(f"optimize_mode must be one of {', '.join(OPTIMIZE_MODES)}, got {self.mode!r}")

    @property
    def field(self):
        """The field of a record that is optimised: "tflops", or "latency_ms" where it is minimised."""
        return "tflops" if self.mode == "maximize" else "latency_ms"

    def fitness(self, metric):
        """The fitness of a metric (a number, its text, or a dict with it under ``of``); None if the trial failed."""
        if isinstance(metric, dict):
            if metric.get("error_code"):
                return None
            metric = metric.get(self.of)
        if isinstance(metric, bool) or not isinstance(metric, (int, float, str)):
            return None
        try:
            value = float(metric)
        except ValueError:
            return None
        if not math.isfinite(value) or (self.mode == "minimize" and value <= 0):
            return None
        return 1 / value if self.mode == "minimize" else value

    def of_record(self, record):
        """The fitness of a record, None if its trial failed."""
        return self.fitness({self.of: record.get(self.field), "error_code": record.get("error_code")})

    def complaint(self, metric):
        """What is wrong with a metric that has no fitness, in one line."""
        hint = self.mode == "minimize" and Objective().fitness(metric) is not None
        return f"the trial reported {metric!r}{'; to be minimised, a value must be > 0' if hint else ''}"
