"""What of a text stands in other texts."""

import pytest

from quantflow.leakage.find import PASSAGE, SHORTEST, Passages, near_documents
from tests.tiny_models import documents

LETTERS = documents(12, seed=3)
OTHER = "The council met on a Tuesday in the old town hall, where the mayor spoke of bridges and of schools."
CHINESE = "请长按按钮六秒钟直到指示灯变成蓝色然后打开应用选择房间并点击修复如果仍然没有声音请更换两节电池"


def test_a_passage_is_found_whatever_stands_around_it_and_however_it_is_written() -> None:
    planted = f"Question 7. {OTHER.upper()}  Answer:\n no."
    assert Passages([*LETTERS, f"Minutes.\n{OTHER}\nEnd."]).find(planted) == len(LETTERS)


def test_what_is_one_word_off_every_dozen_is_no_passage() -> None:
    changed = " ".join(word if at % 9 else "indeed" for at, word in enumerate(OTHER.split()))
    assert Passages([OTHER]).find(changed) is None


@pytest.mark.parametrize(("letters", "found"), [(PASSAGE, 0), (PASSAGE - 1, None)])
def test_a_passage_has_so_many_letters(letters: int, found: int | None) -> None:
    piece = OTHER[:letters].strip()
    text = piece + "#" * 60  # what follows is nowhere
    assert Passages([OTHER[: len(piece)] + "!" * 60]).find(text) == (found if len(piece) == letters else None)


def test_a_short_text_counts_if_all_of_it_is_there() -> None:
    passages = Passages([*LETTERS, OTHER])
    whole = OTHER[10 : 10 + SHORTEST + 9]
    assert passages.find(whole) == len(LETTERS)
    assert passages.find(whole + "?!") is None  # its beginning alone is not it
    assert passages.find(OTHER[: SHORTEST - 1]) is None  # too short to tell
    # Another document that begins alike does not hide it.
    assert Passages([f"{whole[:SHORTEST]} and so on", *LETTERS, OTHER]).find(whole) == len(LETTERS) + 1


def test_chinese_characters_count_for_three() -> None:
    passages = Passages([f"您好。{CHINESE}谢谢。"])
    assert passages.find(f"问题：{CHINESE[5:35]}？") == 0
    assert passages.find(f"问题：{CHINESE[5:20]}？不对，应该先联系我们的客户服务") is None


def test_nearly_the_same_document_is_found() -> None:
    item = LETTERS[4].replace("Write", "Speak", 1)
    assert near_documents([item, OTHER], LETTERS) == [4, None]
    assert near_documents([], LETTERS) == [] and near_documents([item], []) == [None]
