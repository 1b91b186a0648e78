"""How long the transitions of the double take."""

import time


class Clock:
    """Tells whether something that began is over."""

    def __init__(self):
        self.pace = 1.0

    def now(self):
        return time.monotonic()

    def over(self, since, seconds=None):
        """Whether `seconds`, or else the pace, have gone by since `since`."""
        return self.now() - since >= (self.pace if seconds is None else seconds)


CLOCK = Clock()
