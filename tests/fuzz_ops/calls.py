"""A call of an op: as code that can be run, and run."""

import contextlib
import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.fuzz_ops.values import Index
from tests.fuzz_ops.values import Typed
from tests.fuzz_ops.values import Variable
from tfxclass.ops.library import ops

#: What a user may be shown. The last two are what Python's side raises.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
    tf.errors.NotFoundError,  # a variable that is not initialised
    TypeError,
    ValueError,
)
_number = itertools.count()


class BrokenPromise(Exception):
    """What an op returned is not what it promises."""


class Call(NamedTuple):
    """A call of `tfxclass.ops.library.ops.<op>` with named arguments."""

    op: str
    args: dict
    in_graph: bool = False

    def snippet(self):
        """Python code that repeats the call."""
        args = "".join(
            f"        {name!r}: {source(value)},\n"
            for name, value in self.args.items()
        )
        return (
            "from numpy import array, inf, int64, nan, zeros\n"
            "from tests.fuzz_ops.calls import Call, Index, Typed\n"
            "from tests.fuzz_ops.calls import Variable, run\n"
            f"print(run(Call({self.op!r}, {{\n{args}}}, {self.in_graph})))\n"
        )


def source(value):
    """Python code of an argument."""
    if isinstance(value, Variable):
        return f"Variable({source(value.value)})"
    if isinstance(value, Typed):
        return f"Typed({source(value.value)})"
    if isinstance(value, Index):
        return (
            f"Index({value.kind!r}, {source(value.kernel)}, "
            f"{source(value.options)}, {value.pending})"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if isinstance(value, dict):
        pairs = (f"{key!r}: {source(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (np.ndarray, np.generic)):
        if value.size == 0:
            return f"zeros({value.shape}, {value.dtype.name!r})"
        return f"array({value.tolist()!r}, {value.dtype.name!r})"
    return repr(value)


def run(call, check=None):
    """The outputs of a call, a list of arrays; None for a resource.

    Args:
        check: `check(args, outputs, live)`, called while the resources are
            still there; `live` are the arguments as the op got them.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.device("CPU:0"))
        live = {name: _live(value, stack) for name, value in call.args.items()}
        results = _call_in_graph(call, live) if call.in_graph else None
        if results is None:
            results = _as_list(getattr(ops, call.op)(**live))
        outputs = [
            None if r.dtype == tf.resource else r.numpy() for r in results
        ]
        if check is not None:
            _keep(check, call.args, outputs, live)
    return outputs


def _keep(check, *args):
    try:
        check(*args)
    except (MemoryError, tf.errors.ResourceExhaustedError):
        return  # there is room for the call, not for its check
    except Exception as e:  # whatever it is, it is no refusal
        raise BrokenPromise(f"{type(e).__name__}: {e}") from e


def _call_in_graph(call, live):
    shapes = []

    @tf.function(autograph=False)
    def traced():
        results = _as_list(getattr(ops, call.op)(**live))
        shapes.extend(r.shape for r in results)
        return results

    results = _as_list(traced())
    for static, result in zip(shapes, results):
        if not static.is_compatible_with(result.shape):
            raise AssertionError(f"promised {static}, not {result.shape}")
    return results


def _as_list(result):
    if result is None or isinstance(result, tf.Operation):
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _live(value, stack):
    if isinstance(value, Variable):
        return _variable(value, stack)
    if isinstance(value, Typed):
        return tf.constant(value.value)
    if isinstance(value, Index):
        return _index(value, stack)
    if isinstance(value, list):
        return [_live(each, stack) for each in value]
    return value


def _variable(variable, stack):
    value = variable.value
    handle = tf.raw_ops.VarHandleOp(
        dtype=tf.float32 if value is None else tf.as_dtype(value.dtype),
        shape=None,
        shared_name=f"fuzzed_{next(_number)}",
    )
    stack.callback(_destroy, handle)
    if value is not None:
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


def read(handle, dtype=tf.float32):
    """The value of a variable."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype).numpy()


def _index(index, stack):
    handle = index_op(index.kind, "handle")(
        shared_name=f"fuzzed_{next(_number)}"
    )
    stack.callback(_destroy, handle)
    if index.kernel is None:
        return handle
    kernel = _variable(Variable(index.kernel), stack)
    index_op(index.kind, "build")(handle, kernel, **index.options)
    if index.pending:
        advance(index.kind, handle, kernel, 5, index.options)
    return handle


def index_op(kind, name):
    return getattr(ops, f"tfxclass_{kind}_{name}")


def advance(kind, handle, kernel, step, options):
    """Begins what is due at `step`, with the options of a build."""
    more = {}
    if kind in ("forest", "lsh"):
        more = {"lag": 2, "drifted": False}
    index_op(kind, "advance")(
        handle, kernel, step=step, interval=3, **more, **options
    )


def _destroy(handle):
    tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
