"""A run in MLflow: parameters, measurements, and the report's files."""

import os
from pathlib import Path

from quantflow.errors import RuntimeUnavailableError
from quantflow.report.model import Report

EXPERIMENT = "quantflow"
# MLflow ≥ 3.6 refuses folders, which are all that its client alone can write, unless this is said.
_FOLDERS_TOO = "MLFLOW_ALLOW_FILE_STORE"


def log_to_mlflow(report: Report, folder: Path, tracking: str) -> str:
    """Log a run; returns MLflow's id of it.

    Args:
        report: The run's report.
        folder: Where report.json and report.html lie.
        tracking: A folder, made if it is not there; or MLflow's tracking URI, such as a server's address.
            Databases (`sqlite:///mlflow.db`) need the whole of MLflow, not its client alone.

    Raises:
        RuntimeUnavailableError: MLflow is not installed, or its server does not take the run.
    """
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise RuntimeUnavailableError(
            "MLflow is not installed",
            hint="Install QuantFlow with its extra: pip install 'quantflow[mlflow]'.",
        ) from error
    if "://" not in tracking or tracking.startswith("file:"):
        os.environ.setdefault(_FOLDERS_TOO, "true")
    try:
        mlflow.set_tracking_uri(tracking)
        mlflow.set_experiment(EXPERIMENT)
        with mlflow.start_run(run_name=f"{report.recipe} {report.run_id}") as run:
            mlflow.set_tags(
                {"recipe": report.recipe, "run_id": report.run_id, "verdict": report.verdict.value}
            )
            mlflow.log_params(_params(report))
            mlflow.log_metrics(_metrics(report))
            mlflow.log_artifacts(str(folder))
            return str(run.info.run_id)
    except (MlflowException, OSError) as error:
        raise RuntimeUnavailableError(
            f"MLflow does not take the run: {error}",
            where=tracking,
            hint="Give a folder or a server's address; a database needs all of MLflow: pip install mlflow.",
        ) from error


def _params(report: Report) -> dict[str, str]:
    found = {"source": report.baseline.source} if report.baseline else {}
    for artifact in report.artifacts:
        found[f"{artifact.name}.format"] = artifact.format
        found[f"{artifact.name}.bits"] = str(artifact.scheme.bits)
    return found


def _metrics(report: Report) -> dict[str, float]:
    found: dict[str, float] = {"exit_code": report.exit_code}
    for artifact in report.artifacts:
        if artifact.bytes is not None:
            found[f"{artifact.name}.bytes"] = artifact.bytes
    for criterion in report.criteria:
        if criterion.delta is not None:
            key = f"{criterion.artifact}.{criterion.metric}"
            found[key if criterion.slice == "all" else f"{key}.{criterion.slice}"] = criterion.delta
    return {_name(key): value for key, value in found.items()}


def _name(key: str) -> str:
    """A key in the letters that MLflow allows."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in key)
