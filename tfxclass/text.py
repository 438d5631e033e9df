"""Text in, names out: the public names of `tfxclass_text`."""

from tfxclass_text import *  # noqa: F403
from tfxclass_text import __all__  # noqa: F401
from tfxclass_text import __dir__  # noqa: F401
from tfxclass_text import readers  # noqa: F401
