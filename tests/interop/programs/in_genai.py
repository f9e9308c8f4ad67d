"""What ONNX Runtime GenAI's builder and runtime make of artifacts. Imports nothing of QuantFlow."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime_genai as og

# Without these the builder would quantize what the artifact keeps.
KEPT_NODES = "/lm_head/MatMul,/model/embed_tokens/Gather"
FLOAT32_ACTIVATIONS = 1
"""`accuracy_level` of MatMulNBits. The builder writes 4, which rounds activations to 8 bits: that is not what
is looked at here, and its option for it does not reach the nodes of models that come quantized."""


def build(folder: str, output: Path) -> None:
    """Have the builder make a graph, and let it compute in float32."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", str(output)]
    command += ["-p", "int4", "-e", "cpu", "-c", str(output / "cache")]
    command += ["--extra_options", f"nodes_to_exclude={KEPT_NODES}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    path = output / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = FLOAT32_ACTIVATIONS
    path.write_bytes(model.SerializeToString())


def said(artifact: Mapping[str, Any], new_tokens: int, output: Path) -> dict[str, Any]:
    """Log-probabilities of every token that came, and greedy continuations; or why there are none."""
    try:
        build(artifact["folder"], output)
        model = og.Model(str(output))
        targets, greedy = [], []
        for ids in artifact["ids"]:
            params = og.GeneratorParams(model)
            params.set_search_options(max_length=len(ids) + new_tokens, do_sample=False)
            generator = og.Generator(model, params)
            generator.append_tokens(np.array([ids], dtype=np.int32))
            logits = generator.get_output("logits")[0, :-1].astype(np.float64)
            log_p = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
            log_p -= logits.max(-1, keepdims=True)
            targets.append(log_p[np.arange(len(ids) - 1), ids[1:]].tolist())
            while not generator.is_done():
                generator.generate_next_token()
            greedy.append([int(token) for token in generator.get_sequence(0)[len(ids) :]])
        return {"targets": targets, "greedy": greedy, "dtype": "float32"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    graphs = Path(sys.argv[2]).parent
    results = {
        name: said(artifact, job["new_tokens"], graphs / name) for name, artifact in job["artifacts"].items()
    }
    Path(sys.argv[2]).write_text(json.dumps(results))
