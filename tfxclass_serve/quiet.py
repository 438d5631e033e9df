"""Its import loads TensorFlow, without the notes that this prints.

The log level is set, too, where it is not. Import this before all else that
loads TensorFlow.
"""

import contextlib
import os
import re
import sys
import tempfile

# Of its libraries' start, whatever the log level. All else is passed on.
_NOTES = re.compile(
    rb"(?m)^(WARNING: All log messages before absl::InitializeLog|"
    rb"I\d{4} .*|\d{4}-\d\d-\d\d .*: I .*|To enable the following "
    rb"instructions: .*)[^\n]*\n?"
)


@contextlib.contextmanager
def without_notes():
    """What goes to stderr is printed at the end, without the notes."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            os.write(2, _NOTES.sub(b"", held.read()))


# At 2, oneDNN's fallbacks on some processors are "errors". What fails is told
# by exceptions and statuses.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Who lacks it is told by who needs it.
with without_notes(), contextlib.suppress(ModuleNotFoundError):
    import tensorflow  # noqa: F401
