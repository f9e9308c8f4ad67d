"""From what a recipe says of an artifact to the scheme that its weights are quantized in."""

from quantflow.quantize.params import Scheme
from quantflow.recipe.artifacts import GptqArtifact, QuantizedArtifact


def scheme_of(artifact: QuantizedArtifact) -> Scheme:
    """The scheme of a quantized artifact; artifacts with one scheme share their codes.

    Settings that its method does not look at have one value, whatever the recipe's defaults are.
    """
    if not isinstance(artifact, GptqArtifact):
        return Scheme(method=artifact.method, bits=artifact.bits, group_size=artifact.group_size)
    rounding = Scheme(
        method=artifact.method,
        bits=artifact.bits,
        group_size=artifact.group_size,
        symmetric=artifact.symmetric,
        scale_search=artifact.scale_search,
    )
    if artifact.method != "gptq":
        return rounding
    return rounding.model_copy(
        update={
            "desc_act": artifact.desc_act,
            "static_groups": artifact.static_groups,
            "damping": artifact.damping,
        }
    )
