"""Failures that a client is told: TensorFlow's status codes."""

from tfxclass_serve.c_loader import TensorFlowError

CANCELLED = 1
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14

NAMES = {
    0: "OK",
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
    16: "UNAUTHENTICATED",
}
# HTTP status of each, as TensorFlow Serving answers; others are 500.
HTTP = {
    0: 200,
    1: 499,
    3: 400,
    4: 504,
    5: 404,
    6: 409,
    7: 403,
    8: 429,
    9: 400,
    10: 409,
    11: 400,
    12: 501,
    14: 503,
    16: 401,
}


_LONGEST_NAME = 100
# gRPC carries it in a header, which clients limit to 8 KB.
_LONGEST_MESSAGE = 1_000


def short(text):
    """What a client sent, for a message: cut where it is long."""
    if len(text) <= _LONGEST_NAME:
        return text
    return text[:_LONGEST_NAME] + " ..."


def message_of(error):
    """What is told of an exception, cut where it is long."""
    text = str(error)
    if not isinstance(error, TensorFlowError):
        text = f"{type(error).__name__}: {text}"
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return text[:_LONGEST_MESSAGE] + " ..."


def invalid(message):
    """A `TensorFlowError` for a request that is wrong in itself."""
    return TensorFlowError(INVALID_ARGUMENT, message)


def unimplemented(message):
    """A `TensorFlowError` for what this server does not do."""
    return TensorFlowError(UNIMPLEMENTED, message)


def code_of(error):
    """The status code of an exception, or of None."""
    return 0 if error is None else getattr(error, "code", INTERNAL)
