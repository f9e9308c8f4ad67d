"""A unit that is stored as INT8 has to be computed so."""

from quantflow.formats.onnx.census_record import Census, Computes, UnitCensus
from quantflow.gate.census import census_criterion
from quantflow.gate.verdict import Verdict


def census(*found: Computes) -> Census:
    units = {
        f"model.layers.{number}.down": UnitCensus(expected="int8", found=one, operators={"MatMul": 1})
        for number, one in enumerate(found)
    }
    return Census(provider="CPUExecutionProvider", units=units, operators={}, float_share=0.0)


def test_it_passes_where_every_unit_runs_as_it_is_stored() -> None:
    result = census_criterion("a", census("int8", "int8"), required=True)
    assert (result.verdict, result.value, result.n) == (Verdict.PASS, 0, 2)


def test_it_fails_and_names_the_unit_that_fell_back() -> None:
    result = census_criterion("a", census("int8", "float", "int8"), required=True)
    assert (result.verdict, result.value, result.margin) == (Verdict.FAIL, 1, 0)
    assert "1 of 3 units" in result.reason
    assert "model.layers.1.down" in result.reason


def test_a_recipe_may_make_it_advice() -> None:
    assert not census_criterion("a", census("float"), required=False).required


def test_a_census_of_nothing_is_no_pass() -> None:
    judged = census_criterion("int8", census(), required=True)
    assert judged.verdict is Verdict.ERROR
    assert "nothing says what really runs" in judged.reason


def test_products_that_nothing_is_known_of_are_not_counted_as_fine() -> None:
    found = census("int8").model_copy(update={"unknown": ("/experts/QMoE",)})
    judged = census_criterion("theirs", found, required=True)
    assert judged.verdict is Verdict.INCONCLUSIVE and "/experts/QMoE" in judged.reason
    fallen = census("float").model_copy(update={"unknown": ("/experts/QMoE",)})
    assert census_criterion("theirs", fallen, required=True).verdict is Verdict.FAIL
