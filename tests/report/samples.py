"""Reports to render: figures are invented, shapes are those of a real run."""

from typing import Any

from quantflow.data.documents import (
    Accounting,
    Counts,
    FileKind,
    NearDuplicates,
    Reading,
    SplitAccounting,
)
from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict, exit_code
from quantflow.measure.measurement import KlValue, Measurement, PerplexityValue, RuntimeInfo, SliceValue
from quantflow.pipeline.events import Event
from quantflow.report.model import ArtifactReport, BaselineReport, DataReport, Report, Scheme

SLICES = {"articles": (20, 6120), "billing": (15, 5230), "devices": (13, 4377), "orders": (12, 4161)}


def measurement(scale: float, kl: bool) -> Measurement:
    tail = KlValue(
        mean=0.0612 * scale,
        median=0.0214 * scale,
        p90=0.1402 * scale,
        p95=0.2331 * scale,
        p99=0.6120 * scale,
        p999=1.8730 * scale,
        max=4.2119 * scale,
        top1_agreement=0.8812,
    )
    slices = {
        name: SliceValue(
            perplexity=(10 + 0.7 * index) * (1 + 0.04 * scale * (index + 1) * kl),
            kl_mean=0.05 * scale * (index + 1) if kl else None,
            tokens=tokens,
            documents=documents,
        )
        for index, (name, (documents, tokens)) in enumerate(SLICES.items())
    }
    runtime = RuntimeInfo(
        name="torch",
        version="2.13.0",
        device="cpu",
        dtype="float32",
        options={"attention": "sdpa", "threads": "2"},
    )
    perplexity = PerplexityValue(value=11.482 * (1 + 0.08 * scale * kl), nll=2.44, tokens=19888, documents=60)
    return Measurement(runtime=runtime, perplexity=perplexity, kl=tail if kl else None, slices=slices)


def accounting() -> Accounting:
    def split(name: str, documents: int, tokens: int, used: int, **fates: int) -> SplitAccounting:
        counts = Counts(
            documents_read=documents,
            documents_duplicate=1 if "tokens_duplicate" in fates else 0,
            documents_used=documents - 1,
            tokens_read=tokens,
            tokens_used=used,
            **fates,
        )
        return SplitAccounting(
            length=256,
            windows=64,
            windows_available=158,
            windows_too_short=0,
            separators=119,
            scored_positions=0 if name == "calibration" else used - 64,
            overlap=None if name == "calibration" else 0.0123,
            total=counts,
            slices={slice: Counts(documents_used=number // 2) for slice, (number, _) in SLICES.items()},
        )

    return Accounting(
        seed=0,
        reading=Reading(
            documents=2540,
            characters=3_600_000,
            documents_undrawn=2300,
            characters_undrawn=3_250_000,
            documents_undecodable=2,
            kinds=(FileKind(format="jsonl", compression="", encoding="utf-8", told_by="utf-8", files=4),),
        ),
        near_duplicates=NearDuplicates(similarity=0.8, groups=3, documents=7, largest=3),
        total=Counts(documents_read=240, documents_used=237, tokens_read=80655, tokens_used=57000),
        splits={
            "calibration": split(
                "calibration", 120, 40512, 16384, tokens_undrawn=23872, tokens_incomplete=256
            ),
            "selection": split("selection", 60, 20011, 19999, tokens_too_short=12),
            "evaluation": split("evaluation", 60, 20132, 19948, tokens_duplicate=184),
        },
    )


def criterion(name: str, verdict: Verdict, **changes: Any) -> CriterionResult:
    """A criterion of `int4-awq` whose figures suit its verdict."""
    margin = 0.15
    delta, low, high = {
        Verdict.PASS: (0.0813, 0.0701, 0.0926),
        Verdict.FAIL: (0.2213, 0.2001, 0.2430),
        Verdict.INCONCLUSIVE: (0.1413, 0.1201, 0.1630),
        Verdict.ERROR: (None, None, None),
    }[verdict]
    judged = verdict is not Verdict.ERROR
    perplexity = name == "perplexity"
    figures: dict[str, Any] = {
        "artifact": "int4-awq",
        "name": name,
        "metric": "perplexity" if perplexity else "kl_mean",
        "baseline": 11.482 if judged and perplexity else None,
        "value": None if delta is None else 11.482 * (1 + delta) if perplexity else delta,
        "delta": delta,
        "ci_low": low,
        "ci_high": high,
        "margin": margin,
        "n": 19888 if judged else 0,
        "n_clusters": 60 if judged else 0,
        "verdict": verdict,
        "reason": f"The {name} criterion is {verdict} by figures that a gate would give here.",
        "needed_clusters": 412 if verdict is Verdict.INCONCLUSIVE else None,
    }
    return CriterionResult(**(figures | changes))


def report(*verdicts: Verdict, **changes: Any) -> Report:
    """A report whose perplexity and KL criteria have these verdicts."""
    criteria = tuple(
        criterion(name, verdict) for name, verdict in zip(("perplexity", "kl"), verdicts, strict=True)
    )
    worst = max(verdicts, key=[Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.ERROR].index)
    parts: dict[str, Any] = {
        "run_id": "20261130-051237-4f9a",
        "recipe": "quickstart",
        "title": "Quickstart: SmolLM2-135M-Instruct in INT4",
        "verdict": worst,
        "exit_code": exit_code(worst),
        "reason": " ".join(c.reason for c in criteria if c.verdict is worst),
        "criteria": criteria,
        "artifacts": (artifact(worst),),
        "baseline": baseline(),
        "data": DataReport.of(accounting()),
        "events": EVENTS,
        "provenance": PROVENANCE,
    }
    return Report(**(parts | changes))


def artifact(verdict: Verdict, **changes: Any) -> ArtifactReport:
    parts: dict[str, Any] = {
        "name": "int4-awq",
        "path": "artifacts/quickstart/int4-awq",
        "format": "awq",
        "scheme": Scheme(method="awq", bits=4, group_size=64),
        "bytes": 114_812_331,
        "verdict": verdict,
        "measurements": measurement(1.0, kl=True),
    }
    return ArtifactReport(**(parts | changes))


def baseline(**changes: Any) -> BaselineReport:
    parts: dict[str, Any] = {
        "source": "wheel://a-package==0.1.2/a_package/a-model.Q4_1.gguf#sha256=" + "bc" * 32,
        "kind": "wheel",
        "identity": "5d" * 32,
        "model_type": "llama",
        "dtype": "float16",
        "parameters": 134_515_008,
        "bytes": 269_060_552,
        "measurements": measurement(0.0, kl=False),
    }
    return BaselineReport(**(parts | changes))


EVENTS = (
    Event(
        code="gguf-dequantized",
        stage="source",
        message="The GGUF file holds quantized weights; the baseline is what they dequantize to.",
        detail={"types": {"Q4_1": 211, "F32": 61}, "stored_as": "float16"},
    ),
    Event(
        code="tokenizer-changed",
        stage="source",
        message="The end-of-text token was set to the one the model's metadata names.",
        detail={"eos_token": "<|im_end|>", "was": "<|im_start|>"},
    ),
)
PROVENANCE: dict[str, Any] = {
    "quantflow": "0.1.0",
    "python": "3.11.14",
    "libraries": {"torch": "2.13.0", "transformers": "5.17.0", "numpy": "2.4.6"},
    "machine": {"device": "cpu", "architecture": "x86_64", "instruction_sets": ["avx2"]},
    "recipe_text": "version: 1\nname: quickstart\nmodel:\n  source: org/model   # a comment\n",
    "command": "quantflow run recipes/quickstart.yaml",
    "recipe_resolved": {"version": 1, "data": {"seed": 0, "calibration": {"windows": 64}}},
    "overrides": [],
    "stages": [
        {"name": "source", "key": "a1" * 32, "reused": True, "seconds": 12.4},
        {"name": "quantize", "key": "b2" * 32, "reused": False, "seconds": None},
    ],
}
