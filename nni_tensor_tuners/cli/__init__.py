"""The command ``tensor-tuners``."""

from .main import main

__all__ = ["main"]
