"""Runs a SavedModel through TensorFlow's C API; knows no TensorFlow Python.

The development server runs models with it. `python c_loader.py LIBRARY_FOLDER
FOLDER` asks a model in a process that does not import tensorflow: it writes
`FOLDER/ops.pb`, the ops that TensorFlow and the libraries register (an OpList),
and answers the runs:

    request.json: {"libraries": [path, ...], "model": folder,
                   "runs": [{"inputs": [tensor, ...],
                   "outputs": {key: tensor}}, ...]}, tensors as "node:0"
    inputs_0.npz: arr_0, arr_1, ... of the first run; strings are arrays of
        bytes objects
    outputs_0.npz: an array for each key of its outputs

Any failure of TensorFlow's is its message on stderr and exit status 1.
"""

import ctypes
import json
import os
import sys

import numpy as np

_STRING = 7
_UNIMPLEMENTED = 12
# DataType of types.proto. (float16 is DT_HALF.)
_TYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    9: "int64",
    10: "bool",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_CODES = {name: code for code, name in _TYPES.items()}
# sizeof(TF_TString), of tensorflow/core/platform/ctstring_internal.h.
STRING_SIZE = 24


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    ]


class _Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


_POINTER = ctypes.c_void_p
_RESULTS = {
    "TF_AllocateTensor": _POINTER,
    "TF_Dim": ctypes.c_int64,
    "TF_GetAllOpList": ctypes.POINTER(_Buffer),
    "TF_GetCode": ctypes.c_int,
    "TF_GraphOperationByName": _POINTER,
    "TF_LoadLibrary": _POINTER,
    "TF_LoadSessionFromSavedModel": _POINTER,
    "TF_Message": ctypes.c_char_p,
    "TF_NewGraph": _POINTER,
    "TF_NewSessionOptions": _POINTER,
    "TF_NewStatus": _POINTER,
    "TF_NumDims": ctypes.c_int,
    "TF_StringGetDataPointer": _POINTER,
    "TF_StringGetSize": ctypes.c_size_t,
    "TF_TensorByteSize": ctypes.c_size_t,
    "TF_TensorData": _POINTER,
    "TF_TensorType": ctypes.c_int,
}


class TensorFlowError(Exception):
    """A status of TensorFlow's; `code` is TF_Code's, of status.proto."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class CApi:
    """The functions of `libtensorflow_cc.so.2`; for any number of threads."""

    def __init__(self, folder):
        path = os.path.join(folder, "libtensorflow_cc.so.2")
        self.library = ctypes.CDLL(path)
        for name, result in _RESULTS.items():
            getattr(self.library, name).restype = result

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def checked(self, name, *arguments):
        """`call` with a status as last argument; TensorFlowError if not OK."""
        status = _POINTER(self.call("TF_NewStatus"))
        try:
            result = self.call(name, *arguments, status)
            code = self.call("TF_GetCode", status)
            if code:
                message = self.call("TF_Message", status)
                raise TensorFlowError(code, message.decode(errors="replace"))
            return result
        finally:
            self.call("TF_DeleteStatus", status)

    def load_ops(self, path):
        """Registers the ops of a shared object, as `tf.load_op_library`."""
        self.checked("TF_LoadLibrary", os.fsencode(path))

    def op_list(self):
        """Serialised OpList of the registered ops, bytes."""
        buffer = self.call("TF_GetAllOpList").contents
        return ctypes.string_at(buffer.data, buffer.length)

    def to_tensor(self, array):
        """A TF_Tensor with a copy of the array, strings as bytes objects."""
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        is_string = array.dtype == object
        code = _STRING if is_string else _CODES.get(array.dtype.name)
        if code is None:
            raise TensorFlowError(
                _UNIMPLEMENTED,
                f"Tensors of {array.dtype.name} are not supported.",
            )
        size = array.size * STRING_SIZE if is_string else array.nbytes
        tensor = _POINTER(
            self.call(
                "TF_AllocateTensor",
                ctypes.c_int(code),
                shape,
                ctypes.c_int(array.ndim),
                ctypes.c_size_t(size),
            )
        )
        data = self.call("TF_TensorData", tensor)
        if is_string:
            # Empty strings, so that they can be freed before all are there.
            ctypes.memset(data, 0, size)
            try:
                self._write_strings(data, array)
            except BaseException:
                self.delete_input(tensor, array)
                raise
        elif size:
            array = np.ascontiguousarray(array)
            ctypes.memmove(data, array.ctypes.data, size)
        return tensor

    def _write_strings(self, data, array):
        for position, text in enumerate(array.flat):
            at = _POINTER(data + position * STRING_SIZE)
            self.call("TF_StringCopy", at, text, ctypes.c_size_t(len(text)))

    def delete_input(self, tensor, array):
        """Frees what `to_tensor` made of `array`, its strings too."""
        if array.dtype == object:
            data = self.call("TF_TensorData", tensor)
            for position in range(array.size):
                at = _POINTER(data + position * STRING_SIZE)
                self.call("TF_StringDealloc", at)
        self.call("TF_DeleteTensor", tensor)

    def to_array(self, tensor):
        """A copy of a TF_Tensor, strings as bytes objects."""
        dims = range(self.call("TF_NumDims", tensor))
        shape = [self.call("TF_Dim", tensor, ctypes.c_int(d)) for d in dims]
        code = self.call("TF_TensorType", tensor)
        data = self.call("TF_TensorData", tensor)
        if code == _STRING:
            array = np.empty(shape, object)
            for position in range(array.size):
                array.flat[position] = self._string(data, position)
            return array
        if code not in _TYPES:
            raise TensorFlowError(
                _UNIMPLEMENTED, f"Tensors of type {code} are not supported."
            )
        size = self.call("TF_TensorByteSize", tensor)
        raw = ctypes.string_at(data, size) if size else b""
        return np.frombuffer(raw, _TYPES[code]).reshape(shape)

    def _string(self, data, position):
        at = _POINTER(data + position * STRING_SIZE)
        text = self.call("TF_StringGetDataPointer", at)
        return ctypes.string_at(text, self.call("TF_StringGetSize", at))


class Model:
    """A loaded SavedModel, as TensorFlow Serving loads it (tag `serve`)."""

    def __init__(self, api, folder):
        self.api = api
        self.graph = _POINTER(api.call("TF_NewGraph"))
        options = _POINTER(api.call("TF_NewSessionOptions"))
        tags = (ctypes.c_char_p * 1)(b"serve")
        try:
            self.session = _POINTER(
                api.checked(
                    "TF_LoadSessionFromSavedModel",
                    options,
                    None,
                    os.fsencode(folder),
                    tags,
                    ctypes.c_int(1),
                    self.graph,
                    None,
                )
            )
        except TensorFlowError:
            api.call("TF_DeleteGraph", self.graph)
            raise
        finally:
            api.call("TF_DeleteSessionOptions", options)

    def close(self):
        """Frees the session and the graph; no `run` may be under way."""
        self.api.checked("TF_CloseSession", self.session)
        self.api.checked("TF_DeleteSession", self.session)
        self.api.call("TF_DeleteGraph", self.graph)

    def run(self, inputs, outputs):
        """Computes the tensors `outputs` from values of `inputs`.

        Args:
            inputs: list of `(tensor name, array)`.
            outputs: list of tensor names.

        Returns:
            List of arrays.

        Raises:
            TensorFlowError: TensorFlow refuses the inputs, or an op fails.
        """
        feeds = self._outputs([name for name, _ in inputs])
        fetches = self._outputs(outputs)
        arrays = [array for _, array in inputs]
        tensors = []
        results = (_POINTER * len(outputs))()
        try:
            for array in arrays:
                tensors.append(self.api.to_tensor(array))
            self.api.checked(
                "TF_SessionRun",
                self.session,
                None,
                feeds,
                (_POINTER * len(tensors))(*tensors),
                ctypes.c_int(len(tensors)),
                fetches,
                results,
                ctypes.c_int(len(outputs)),
                None,
                ctypes.c_int(0),
                None,
            )
            return [self.api.to_array(_POINTER(x)) for x in results]
        finally:
            for result in filter(None, results):
                self.api.call("TF_DeleteTensor", _POINTER(result))
            for tensor, array in zip(tensors, arrays):
                self.api.delete_input(tensor, array)

    def _outputs(self, names):
        return (_Output * len(names))(*[self._output(n) for n in names])

    def _output(self, name):
        node, _, index = name.rpartition(":")
        operation = self.api.call(
            "TF_GraphOperationByName", self.graph, node.encode()
        )
        if not operation:
            raise TensorFlowError(5, f"The graph has no node {node!r}.")
        return _Output(operation, int(index))


def main(library_folder, folder):
    """Does what the head of this file says."""
    api = CApi(library_folder)
    with open(os.path.join(folder, "request.json")) as f:
        request = json.load(f)
    for path in request["libraries"]:
        api.load_ops(path)
    with open(os.path.join(folder, "ops.pb"), "wb") as f:
        f.write(api.op_list())
    if not request["runs"]:
        return
    model = Model(api, request["model"])
    for number, run in enumerate(request["runs"]):
        # Written by our own process: strings are arrays of objects.
        path = os.path.join(folder, f"inputs_{number}.npz")
        with np.load(path, allow_pickle=True) as arrays:
            inputs = list(zip(run["inputs"], arrays.values()))
        keys, tensors = zip(*run["outputs"].items())
        values = dict(zip(keys, model.run(inputs, tensors)))
        np.savez(os.path.join(folder, f"outputs_{number}.npz"), **values)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TensorFlowError as e:
        sys.exit(str(e))
