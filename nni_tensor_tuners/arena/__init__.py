"""Searches against each other: replayed on recorded landscapes, or live."""
