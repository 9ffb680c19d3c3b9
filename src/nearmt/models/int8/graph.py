"""Builds an ONNX graph, and runs it.

Values are referred to by name. Large constants stay outside the protobuf, which can have at most two gigabytes, and are
passed to the session directly; it packs them in its own format and releases the originals.
"""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

_OPSET = 21
_IR_VERSION = 10
_MICROSOFT_OPS = frozenset({"FusedMatMul", "MatMulIntegerToFloat", "QuickGelu"})
_INLINE_BYTES = 1024


class Graph:
    """Nodes, constants, inputs and outputs of one network."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._large: dict[str, np.ndarray] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def add(self, op: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return the name of the output."""
        (output,) = self.add_many(op, 1, *inputs, **attributes)
        return output

    def add_many(self, op: str, count: int, /, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs; return their names."""
        outputs = [self._new_name() for _ in range(count)]
        domain = "com.microsoft" if op in _MICROSOFT_OPS else ""
        self._nodes.append(helper.make_node(op, list(inputs), outputs, domain=domain, **attributes))
        return outputs

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant; return its name."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        name = self._new_name()
        if array.nbytes <= _INLINE_BYTES:
            self._constants.append(numpy_helper.from_array(array, name))
            return name
        self._large[name] = array
        outside = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
        outside.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        for key, entry in (("location", "memory"), ("offset", "0"), ("length", str(array.nbytes))):
            outside.external_data.add(key=key, value=entry)
        self._constants.append(outside)
        return name

    def input(self, name: str, shape: list[str | int]) -> str:
        """Add a float32 input; return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def output(self, value: str, name: str) -> None:
        """Make a value a float32 output of the graph with this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def session(self) -> "GraphSession":
        """A session that runs the graph in the thread that calls it."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Not more: it would fuse sums and norms into one node that takes four times as long.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._large.values()]
        options.add_external_initializers(list(self._large), values)
        self._large = {}
        return GraphSession(onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]))


class GraphSession:
    """Runs a graph on torch tensors without copying them; many threads may use it at once."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._output_names = [output.name for output in session.get_outputs()]

    def run(self, inputs: dict[str, torch.Tensor], *, keeps_memory: bool = True) -> list[torch.Tensor]:
        """The outputs, in the order in which they were added to the graph.

        With `keeps_memory` the memory of a run is reused by the next one, which makes small runs faster. Large runs
        with ever different shapes should not keep it, because it would grow with every shape.
        """
        values = {name: onnxruntime.OrtValue.from_dlpack(tensor.contiguous()) for name, tensor in inputs.items()}
        outputs = self._session.run_with_ort_values(self._output_names, values, None if keeps_memory else _releasing())
        return [torch.utils.dlpack.from_dlpack(output) for output in outputs]

    def run_small(self, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """The same with a third of the overhead. Outputs are copied, so it is meant for small ones."""
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return [torch.from_numpy(output) for output in self._session.run(self._output_names, arrays)]


def _releasing() -> onnxruntime.RunOptions:
    """Options that release unused memory after the run."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options
