"""Whole networks, before and after the search: a model to tasks with sound schedules, and the best schedules to a model."""
