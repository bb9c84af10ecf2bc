"""How a measurement can end."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes of the NoSE paper, table I, which are AutoTVM's."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1  # the template refuses the configuration, or a static limit of the device does
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8

    @property
    def words(self):
        """Its name as one reads it: "wrong answer"."""
        return self.name.lower().replace("_", " ")
