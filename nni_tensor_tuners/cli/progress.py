"""Progress on the terminal."""

import sys
import time


class Progress:
    """One line that is rewritten on a terminal, and repeated every few seconds elsewhere."""

    def __init__(self, interval=10.0):
        self._stream = sys.stdout
        self._terminal = self._stream.isatty()
        self._interval = interval
        self._last = -interval
        self._width = 0

    def show(self, text):
        """Show the state of things."""
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        elif time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            self._stream.write(text + "\n")
        self._stream.flush()

    def say(self, text):
        """Say something that stays."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0
        self._stream.write(text + "\n")
        self._stream.flush()
