"""What an ONNX artifact's units really run as, and how fast, as far as the page shows it."""

from quantflow.formats.onnx.census_record import Census, UnitCensus
from quantflow.gate.census import census_criterion
from quantflow.gate.verdict import Verdict
from quantflow.measure.speed_value import SPEED_METRICS, MemoryOf, MemoryValue, Pace, SpeedAt, SpeedValue
from quantflow.report.html import render_html
from quantflow.report.verdict import why
from quantflow.report.wording import load_wording
from tests.report.samples import artifact, measurement, report
from tests.report.test_html import Page

UNITS = {
    "model.layers.0.qkv": UnitCensus(expected="int8", found="int8", operators={"MatMulIntegerToFloat": 1}),
    "model.layers.0.down": UnitCensus(expected="int8", found="float", operators={"MatMul": 2}, float_parts=1),
}
CENSUS = Census(provider="CPUExecutionProvider", units=UNITS, operators={"MatMul": 2}, float_share=0.052)


def test_the_census_names_every_unit_and_which_fell_back() -> None:
    own = artifact(Verdict.FAIL, format="onnx", census=CENSUS)
    page = render_html(report(Verdict.FAIL, Verdict.FAIL, artifacts=(own,)))
    words = Page(page).words
    assert "CPUExecutionProvider computes all but 1 of 2 units as they are stored; 5.2 %" in words
    assert "model.layers.0.down int8 float MatMul × 2 1" in words
    assert page.count("fail said-verdict") == 1


def test_its_criterion_is_counted_and_has_nothing_to_draw() -> None:
    judged = census_criterion("int4-awq", CENSUS, required=True)
    page = Page(render_html(report(Verdict.FAIL, Verdict.FAIL, criteria=(judged,))))
    assert "Units not computed as stored int4-awq" in page.words and "2 units" in page.words
    assert not [attributes for tag, attributes in page.tags if attributes.get("class") == "limit"]
    assert (
        why(judged, load_wording("en")) == "Units not computed as stored (int4-awq): 1, where 0 is allowed."
    )


def test_speed_by_length_of_prompt_is_told_from_speed_by_requests() -> None:
    pace = Pace(throughput=76.0, time_to_first_token=0.4, time_per_output_token=0.013)
    ratios = dict.fromkeys(SPEED_METRICS, (2.0, 2.1, 2.2))
    at = SpeedAt(concurrency=1, baseline=pace, artifact=pace, speedup=ratios, prompt_tokens=256)
    speed = SpeedValue(computed_on="a CPU", prompt_tokens=256, output_tokens=32, rounds=3, at=(at,))
    of = MemoryOf(
        file_bytes=10**8, idle_bytes=10**7, peak_bytes=3 * 10**8, resident_bytes=2 * 10**8, load_seconds=1.5
    )
    memory = MemoryValue(device="cpu", baseline=of, artifact=of)
    measured = measurement(1.0, kl=True).model_copy(update={"speed": speed, "memory": memory})
    own = artifact(Verdict.PASS, format="onnx", measurements=measured)
    words = Page(render_html(report(Verdict.PASS, Verdict.PASS, artifacts=(own,)))).words
    assert "In ONNX Runtime on a CPU: 256 tokens in, 32 out" in words
    assert "Prompt Model Tokens per second" in words
    assert "prompts of 256 tokens" in words
    assert "Requests at a time" not in words  # one at a time, always
    assert "100 MB10 MB1.5 s200 MB300 MB" in words
