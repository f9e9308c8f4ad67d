"""Near duplicates are found, unrelated documents are not taken for them."""

import random
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quantflow.data.near import NEAR_DUPLICATE, SHINGLE, clusters, signature, sizes

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def vocabulary(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(2, 9))) for _ in range(count)]


WORDS = vocabulary(2000)


def letter(rng: random.Random, length: int = 120) -> list[str]:
    return rng.choices(WORDS, k=length)


def jaccard(first: str, second: str) -> float:
    """The exact similarity that signatures estimate."""

    def shingles(text: str) -> set[str]:
        plain = re.sub(r"\s+", " ", text.casefold()).strip()
        return {plain[i : i + SHINGLE] for i in range(len(plain) - SHINGLE + 1)}

    a, b = shingles(first), shingles(second)
    return len(a & b) / len(a | b)


def test_signatures_estimate_the_share_of_shingles_that_both_texts_have() -> None:
    rng = random.Random(1)
    errors = []
    for _ in range(60):
        words = letter(rng)
        changed = [rng.choice(WORDS) if rng.random() < rng.choice([0.02, 0.1, 0.4]) else w for w in words]
        one, other = " ".join(words), " ".join(changed)
        errors.append(float((signature(one) == signature(other)).mean()) - jaccard(one, other))
    assert abs(np.mean(errors)) < 0.015
    assert np.std(errors) < 0.04


@given(st.text(max_size=40))
def test_any_text_has_a_signature_and_case_and_blanks_do_not_change_it(text: str) -> None:
    spread = "\n ".join(text.split())
    assert (signature(spread.replace("\n ", " ")) == signature(f"  {spread}\t")).all()


def test_letters_that_differ_in_name_and_number_are_one_group_and_others_are_alone() -> None:
    rng = random.Random(2)
    form = letter(rng)
    texts = [" ".join(letter(rng)) for _ in range(40)]
    for at, name in ((3, "Marcus"), (17, "Aoife"), (38, "Priya")):
        texts[at] = f"Dear {name}, your order NL-{at:06} " + " ".join(form)
    found = clusters(np.stack([signature(text) for text in texts]))
    assert sizes(found) == {3: 3}
    assert [found[i] for i in (3, 17, 38)] == [3, 3, 3]
    assert all(found[i] == i for i in range(40) if i not in (17, 38))


def test_chinese_letters_are_compared_as_well() -> None:
    form = (
        "您好，您的订单{}已经发货，预计三个工作日内送达，如有问题请随时联系我们的客服，感谢您的支持与信任。"
    )
    other = "恒温器无法连接网关时，请先检查路由器是否只开启了二点四赫兹频段，再按住按钮十五秒重新配对。"
    more = "包裹里附有退货标签，三十天之内可以免费退货，退款会在五个工作日之内退回原来的付款账户。"
    texts = (form.format("一零二") + more, other + more, form.format("四五") + more)
    found = clusters(np.stack([signature(text) for text in texts]))
    assert found.tolist() == [0, 1, 0]


def test_groups_do_not_depend_on_the_order_of_documents() -> None:
    rng = random.Random(3)
    base = letter(rng)
    texts = [" ".join([*base[: 120 - k], *letter(rng, k)]) for k in (0, 2, 4, 60, 80)] + [
        " ".join(letter(rng))
    ]
    signatures = np.stack([signature(text) for text in texts])
    order = rng.sample(range(len(texts)), len(texts))
    straight, shuffled = clusters(signatures), clusters(signatures[order])
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            assert (shuffled[i] == shuffled[j]) == (straight[a] == straight[b])


def test_documents_on_both_sides_of_the_threshold_are_told_apart() -> None:
    rng = random.Random(4)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 40:
        words = letter(rng, 200)
        share = rng.choice([0.04, 0.25])
        changed = [rng.choice(WORDS) if rng.random() < share else word for word in words]
        one, other = " ".join(words), " ".join(changed)
        if abs(jaccard(one, other) - NEAR_DUPLICATE) > 0.08:
            pairs.append((one, other))
    found = clusters(np.stack([signature(text) for pair in pairs for text in pair]))
    for k, (one, other) in enumerate(pairs):
        assert (found[2 * k] == found[2 * k + 1]) == (jaccard(one, other) > NEAR_DUPLICATE), jaccard(
            one, other
        )


CHINESE_FORM = (
    "{}您好，您在我们商城的订单{}已经发货，快递将在三个工作日内送达，请保持电话畅通。如果包装有破损，"
    "请当场拒收并拍照联系我们，我们会免费为您重新寄出一份。感谢您的支持，祝您生活愉快。"
)


def test_a_form_letter_in_chinese_is_known_by_its_text_as_one_in_english_is() -> None:
    rng = random.Random(8)
    letters = [CHINESE_FORM.format(n, rng.randrange(10**8, 10**9)) for n in ("张伟", "王小明", "李娜")]
    other = (
        "我上周买的净水器一直漏水，机器放在厨房，麻烦安排师傅上门看一下。我们的订单号在附件里，请保持联系。"
    )
    found = clusters(np.stack([signature(text) for text in (*letters, other)]))
    assert found.tolist() == [0, 0, 0, 3]


def test_no_documents_and_one_document_have_no_groups() -> None:
    assert clusters(np.empty((0, 256), dtype=np.uint32)).tolist() == []
    assert sizes(clusters(signature("one")[None])) == {}
