"""A report for other programs: JUnit XML, Markdown, Prometheus metrics, a model card."""

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from quantflow.errors import RuntimeUnavailableError
from quantflow.gate.verdict import Verdict
from quantflow.report.junit import junit_xml
from quantflow.report.markdown import MOST_EVENTS, markdown
from quantflow.report.mlflow import log_to_mlflow
from quantflow.report.model_card import model_card
from quantflow.report.prometheus import prometheus_text
from quantflow.report.write import write_report
from tests.report.samples import EVENTS, artifact, criterion, report

HOSTILE = "<script>alert('x')</script> \x00\x1b[31m ]]> | `code` [link](http://x) \u202e 😀\n# title"


def cases(xml: str) -> dict[str, str]:
    """Test case → what it came to: nothing for a success."""
    found = ElementTree.fromstring(xml).iter("testcase")
    return {case.get("name", ""): case[0].tag if len(case) else "" for case in found}


def test_junit_fails_what_does_not_pass() -> None:
    found = report(Verdict.PASS, Verdict.FAIL)
    assert cases(junit_xml(found)) == {"perplexity": "", "kl (kl_mean)": "failure"}
    suite = ElementTree.fromstring(junit_xml(found))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")


def test_junit_takes_neither_an_inconclusive_criterion_nor_an_unjudged_artifact_for_a_success() -> None:
    found = report(Verdict.INCONCLUSIVE, Verdict.ERROR)
    assert cases(junit_xml(found)) == {"perplexity": "failure", "kl (kl_mean)": "error"}
    unjudged = found.model_copy(update={"criteria": ()})
    assert cases(junit_xml(unjudged)) == {"judged": "error"}


def test_junit_skips_an_advisory_criterion_that_misses() -> None:
    advisory = criterion("kl", Verdict.FAIL, required=False)
    found = report(Verdict.PASS, Verdict.PASS, criteria=(criterion("perplexity", Verdict.PASS), advisory))
    assert cases(junit_xml(found)) == {"perplexity": "", "kl (kl_mean)": "skipped"}


def test_hostile_text_breaks_no_form() -> None:
    found = report(
        Verdict.FAIL,
        Verdict.PASS,
        title=HOSTILE,
        reason=HOSTILE,
        recipe=HOSTILE,
        criteria=(criterion("perplexity", Verdict.FAIL, reason=HOSTILE, slice=HOSTILE, artifact="int4-awq"),),
    )
    ElementTree.fromstring(junit_xml(found))
    page = markdown(found)
    assert "<script>" not in page.replace("\\<script\\>", "")
    assert not [line for line in page.splitlines() if line.startswith("# ")]
    for row in page.splitlines():
        if row.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", row)) in (5, 10)
    assert all(line.startswith(("#", "quantflow_")) for line in prometheus_text(found).splitlines())


def test_markdown_has_verdict_criteria_and_the_first_events() -> None:
    page = markdown(report(Verdict.PASS, Verdict.FAIL, events=EVENTS * MOST_EVENTS))
    assert page.startswith("## ❌")
    assert "+8.13 %" in page and "+7.01 % … +9.26 %" in page
    assert f"and {len(EVENTS) * MOST_EVENTS - MOST_EVENTS} more" in page


def metrics(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_prometheus_metrics_say_what_the_report_says() -> None:
    found = report(Verdict.PASS, Verdict.FAIL)
    values = metrics(prometheus_text(found))
    assert values['quantflow_run_exit_code{recipe="quickstart"}'] == 1
    assert values['quantflow_run_verdict{recipe="quickstart",verdict="fail"}'] == 1
    assert values['quantflow_run_verdict{recipe="quickstart",verdict="pass"}'] == 0
    labels = 'recipe="quickstart",artifact="int4-awq",criterion="kl",metric="kl_mean",slice="all"'
    assert values[f"quantflow_criterion_change{{{labels}}}"] == found.criteria[1].delta
    assert found.run_id not in prometheus_text(found)


def test_promtool_finds_nothing_to_complain_of() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (of Debian's prometheus) is not installed")
    text = prometheus_text(report(Verdict.PASS, Verdict.FAIL))
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_card_carries_what_was_measured_as_the_hub_reads_it() -> None:
    found = report(Verdict.PASS, Verdict.PASS)
    card = model_card(found, found.artifacts[0])
    front = yaml.safe_load(card.split("---\n")[1])
    (index,) = front["model-index"]
    values = {m["type"]: m["value"] for result in index["results"] for m in result["metrics"]}
    measured = found.artifacts[0].measurements
    assert measured is not None and measured.kl is not None
    assert values["perplexity"] == measured.perplexity.value
    assert values["kl_divergence"] == measured.kl.mean


def test_a_model_card_of_what_was_not_measured_has_no_results() -> None:
    found = report(Verdict.ERROR, Verdict.ERROR)
    made = artifact(Verdict.ERROR, measurements=None, bytes=None)
    assert "model-index" not in model_card(found, made)


def test_mlflow_keeps_figures_tags_and_files_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed (extra mlflow)")
    monkeypatch.chdir(tmp_path)
    made, place = report(Verdict.FAIL, Verdict.PASS), tmp_path / "mlruns"
    write_report(made, tmp_path / "report")
    logged = log_to_mlflow(made, tmp_path / "report", str(place))
    run = mlflow.MlflowClient(str(place)).get_run(logged)
    assert run.data.tags["verdict"] == "fail"
    assert run.data.params["int4-awq.bits"] == "4"
    assert run.data.metrics["int4-awq.perplexity"] == made.criteria[0].delta
    assert run.data.metrics["exit_code"] == 1
    assert {path.name for path in place.rglob("report.*")} == {"report.html", "report.json"}


def test_what_mlflow_s_client_cannot_write_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra mlflow)")
    with pytest.raises(RuntimeUnavailableError, match=r"does not take the run.*(?s:.*)a folder"):
        log_to_mlflow(report(Verdict.PASS, Verdict.PASS), tmp_path, "nowhere://mlflow")
