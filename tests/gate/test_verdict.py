from itertools import product

from quantflow.gate.verdict import Verdict, combine, exit_code


def test_the_worst_verdict_wins_in_the_order_error_fail_inconclusive_pass() -> None:
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.ERROR]
    for first, second in product(order, order):
        assert combine([first, second]) is max(first, second, key=order.index)


def test_nothing_judged_is_inconclusive_never_a_pass() -> None:
    assert combine([]) is Verdict.INCONCLUSIVE


def test_exit_codes_are_0_pass_1_fail_2_error_3_inconclusive() -> None:
    codes = {verdict.value: exit_code(verdict) for verdict in Verdict}
    assert codes == {"pass": 0, "fail": 1, "error": 2, "inconclusive": 3}
