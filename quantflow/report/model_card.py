"""An artifact's Hugging Face model card: what it is, and what was measured of it, as `eval_results`."""

from quantflow.report.figures import size
from quantflow.report.markdown import escape, markdown
from quantflow.report.model import ArtifactReport, Report

DATASET = "the team's own evaluation documents"


def model_card(report: Report, artifact: ArtifactReport) -> str:
    """README.md of an artifact: metadata as the hub reads it, and the report's summary of this artifact.

    Args:
        report: The run's report.
        artifact: One of its artifacts.
    """
    from huggingface_hub import EvalResult, ModelCardData

    metrics = _metrics(artifact)
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="private",
            dataset_name=DATASET,
            metric_type=kind,
            metric_name=name,
            metric_value=value,
        )
        for kind, name, value in metrics
    ]
    base = report.baseline.source if report.baseline and report.baseline.kind == "hub" else None
    data = ModelCardData(
        model_name=f"{report.recipe}-{artifact.name}",
        base_model=base,
        pipeline_tag="text-generation",
        library_name="transformers" if artifact.format != "onnx" else "onnxruntime",
        tags=["quantflow", artifact.format],
        eval_results=results or None,
    )
    own = report.model_copy(
        update={
            "artifacts": (artifact,),
            "criteria": tuple(c for c in report.criteria if c.artifact == artifact.name),
        }
    )
    how = f"{artifact.scheme.method or artifact.scheme.dtype}, {artifact.scheme.bits} bits"
    return "\n".join(
        [
            "---",
            data.to_yaml().strip(),
            "---",
            f"# {escape(report.title)}: {escape(artifact.name)}",
            "",
            f"Made by QuantFlow: format {artifact.format}, {escape(how)}, "
            f"{'size unknown' if artifact.bytes is None else size(artifact.bytes)}. "
            "Figures are of the files as read back from disk, beside the lossless model on the same text.",
            "",
            markdown(own),
        ]
    )


def _metrics(artifact: ArtifactReport) -> list[tuple[str, str, float]]:
    measured = artifact.measurements
    if measured is None:
        return []
    found = [("perplexity", "Perplexity", measured.perplexity.value)]
    if measured.kl is not None and not measured.kl.at_least:
        found += [
            ("kl_divergence", "Mean KL from the lossless model, nats per token", measured.kl.mean),
            ("top1_agreement", "Agreement on the likeliest token", measured.kl.top1_agreement),
        ]
    return found
