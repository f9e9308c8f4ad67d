"""Encodings are given, marked or detected; what cannot be told is refused: text is never silently wrong."""

import codecs
from pathlib import Path

import pytest

from quantflow.data.encoding import Encoding, encoding_of
from quantflow.data.files import find_files
from quantflow.data.record import Mistake
from quantflow.errors import DataError
from tests.data.reading import make_params, read, texts

CHINESE = (
    "您好，我上周买的恒温器一直连不上网关，指示灯闪了三次蓝光就灭了，请问应该怎么处理？\n"
    "非常抱歉给您带来不便。请先按住网关背面的按钮十五秒，等指示灯变成白色以后再重新配对。\n"
    "按照您说的做了，现在可以连接，谢谢。另外想问一下，过滤网多久需要更换一次？\n"
)
TRADITIONAL = (
    "您好，我上週買的恆溫器一直連不上閘道器，指示燈閃了三次藍光就滅了，請問應該怎麼處理？\n"
    "非常抱歉給您帶來不便。請先按住背面的按鈕十五秒，等指示燈變成白色以後再重新配對。\n"
)
JAPANESE = (
    "お問い合わせいただきありがとうございます。ご注文の商品は本日発送いたしました。\n"
    "返品は三十日以内に承りますので、お手数ですが箱のラベルをご利用ください。\n"
)
KOREAN = (
    "안녕하세요. 주문하신 상품이 오늘 발송되었습니다. 삼 일 이내에 받아보실 수 있습니다.\n"
    "반품은 삼십 일 이내에 가능하며 상자 안에 있는 라벨을 사용해 주시기 바랍니다.\n"
)
RUSSIAN = (
    "Здравствуйте! Ваш заказ отправлен сегодня, доставка займёт три рабочих дня.\n"
    "Возврат возможен в течение тридцати дней, наклейка лежит в коробке.\n"
)
GERMAN = (
    "Für die Rückgabe Ihres Geräts übernehmen wir selbstverständlich die Kosten; schöne Grüße.\n"
    "Die Prüfung läuft noch, wir melden uns spätestens übermorgen über die Lösung.\n"
)
FRENCH = (
    "Votre commande a été expédiée aujourd'hui. Vous recevrez le colis d'ici trois jours ouvrés.\n"
    "Les frais de retour sont à votre charge, sauf si l'appareil est défectueux. À bientôt.\n"
)
ENGLISH = "Your refund of £49.99 has been sent – it’s on its way.\n" * 8


def find(path: Path, asked: str = "auto") -> Encoding:
    (file,) = find_files(make_params(path))
    return encoding_of(file, asked)


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    return path


def test_utf8_is_known_by_being_utf8_throughout(tmp_path: Path) -> None:
    found = find(write(tmp_path, (CHINESE + FRENCH).encode()))
    assert (found.codec, found.told_by) == ("utf-8", "utf-8")


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_says_what_follows_and_is_no_part_of_the_text(tmp_path: Path, codec: str) -> None:
    marks = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    marks |= {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}
    path = write(tmp_path, marks[codec] + CHINESE.encode(codec))
    assert (find(path).codec, find(path).told_by) == (codec, "mark")
    assert texts(path, documents="line") == CHINESE.splitlines()


@pytest.mark.parametrize(
    ("text", "codec", "found"),
    [
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "gbk", "gb18030"),
        (TRADITIONAL, "big5", "cp950"),
        (JAPANESE, "shift_jis", "cp932"),
        (JAPANESE, "euc_jp", "euc_jp"),
        (KOREAN, "euc_kr", "cp949"),
        (RUSSIAN, "cp1251", "cp1251"),
        (RUSSIAN, "koi8-r", "koi8_r"),
        (GERMAN * 2, "latin-1", "cp1252"),
    ],
)
def test_what_can_be_told_is_detected_and_read_right(
    tmp_path: Path, text: str, codec: str, found: str
) -> None:
    path = write(tmp_path, text.encode(codec))
    assert (find(path).codec, find(path).told_by) == (found, "detected")
    assert texts(path, documents="line") == text.splitlines()


@pytest.mark.parametrize(
    ("text", "codec"), [(FRENCH * 2, "cp1252"), (ENGLISH, "cp1252"), (ENGLISH, "mac_roman")]
)
def test_what_may_be_several_encodings_is_refused_with_their_names(
    tmp_path: Path, text: str, codec: str
) -> None:
    path = write(tmp_path, b"plain\n" + text.encode(codec))
    with pytest.raises(DataError, match="may be any of") as caught:
        find(path)
    assert codec in caught.value.message
    assert caught.value.where == f"{path}:2"
    assert "data.encoding" in caught.value.hint
    assert find(path, codec) == Encoding(codec, "given")
    assert texts(path, documents="line", encoding=codec) == ["plain", *text.splitlines()]


def test_two_encodings_that_differ_in_one_byte_far_away_are_told_apart_or_refused(tmp_path: Path) -> None:
    # cp1252 and cp1250 make the same characters of German text, but not of an `ñ` that comes once.
    path = write(tmp_path, GERMAN.encode("cp1252") * 4000 + "Herr Núñez\n".encode("cp1252"))
    with pytest.raises(DataError, match="may be any of"):
        find(path)


def test_too_few_bytes_to_tell_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few to tell") as caught:
        find(write(tmp_path, b"one\ncaf\xe9\n"))
    assert caught.value.where.endswith("a.txt:2")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    noise = bytes((i * i * 31 + i * 17 + 5) % 251 + 4 for i in range(50_000))
    with pytest.raises(DataError, match=r"binary data|may be any of|too few"):
        find(write(tmp_path, noise))


def test_nul_bytes_are_refused_and_utf16_without_a_mark_named_as_what_they_may_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="or UTF-16 without a mark") as caught:
        find(write(tmp_path, GERMAN.encode("utf-16-be")))
    assert "utf-16-be" in caught.value.hint
    assert texts(tmp_path / "a.txt", documents="line", encoding="utf-16-be") == GERMAN.splitlines()
    with pytest.raises(DataError, match=r"full of NUL bytes: binary data\n"):
        find(write(tmp_path, bytes(1000)))


def test_utf8_with_a_few_broken_lines_is_utf8_with_mistakes_at_those_lines(tmp_path: Path) -> None:
    path = write(tmp_path, CHINESE.encode() + b"broken \xff\xfe\n" + CHINESE.encode())
    assert find(path).codec == "utf-8"
    wrong = [outcome for outcome in read(path, documents="line") if isinstance(outcome, Mistake)]
    assert [mistake.where for mistake in wrong] == [f"{path}:4"]
    assert wrong[0].undecodable


def test_lines_in_another_encoding_than_the_rest_are_mistakes_at_those_lines(tmp_path: Path) -> None:
    path = write(tmp_path, CHINESE.encode("gb18030") * 30 + "Menü: Café\n".encode("cp1252"))
    with pytest.raises(DataError, match="binary data, or a mixture"):
        find(path)
    outcomes = read(path, documents="line", encoding="gb18030")
    wrong = [outcome for outcome in outcomes if isinstance(outcome, Mistake)]
    assert [mistake.where for mistake in wrong] == [f"{path}:91"]
    assert "not GB18030" in wrong[0].message


@pytest.mark.parametrize("codec", ["gb18030", "cp1251"])
def test_a_file_with_one_line_of_utf8_among_others_is_refused(tmp_path: Path, codec: str) -> None:
    text = CHINESE if codec == "gb18030" else RUSSIAN
    line = text.splitlines(keepends=True)[0].encode("utf-8")
    with pytest.raises(DataError, match="mixes encodings") as caught:
        find(write(tmp_path, text.encode(codec) * 40 + line + text.encode(codec) * 40))
    assert "data.invalid to skip" in caught.value.hint


def test_escape_sequences_of_seven_bit_encodings_do_not_pass_for_ascii(tmp_path: Path) -> None:
    path = write(tmp_path, JAPANESE.encode("iso2022_jp"))
    with pytest.raises(DataError, match="ISO-2022-JP"):
        find(path)
    assert texts(path, documents="line", encoding="iso2022_jp") == JAPANESE.splitlines()


@pytest.mark.parametrize("asked", ["gb18030", "cp1252", "iso2022_jp"])
def test_a_file_that_is_plainly_utf8_is_read_as_that_whatever_the_recipe_says_of_the_others(
    tmp_path: Path, asked: str
) -> None:
    for content in (CHINESE.encode(), codecs.BOM_UTF8 + b"plain\n"):
        found = find(write(tmp_path, content), asked)
        assert found.codec == "utf-8" and found.told_by in ("utf-8", "mark")
    assert find(write(tmp_path, b"plain\n"), asked) == Encoding(asked, "given")
    assert find(write(tmp_path, CHINESE.encode("gb18030")), asked) == Encoding(asked, "given")


@pytest.mark.parametrize("asked", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_an_unmarked_utf8_file_among_wide_ones_does_not_become_chinese(tmp_path: Path, asked: str) -> None:
    for content in (b"Dear customer, late.\n", CHINESE.encode()):
        assert find(write(tmp_path, content), asked) == Encoding("utf-8", "utf-8")
    for content in (GERMAN.encode(asked)[-60:], b""):
        assert find(write(tmp_path, content), asked) == Encoding(asked, "given")


def test_a_file_that_is_not_in_the_encoding_it_is_said_to_have_says_so_at_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"plain\n" + CHINESE.encode("gb18030"))
    wrong = [o for o in read(path, documents="line", encoding="cp1253") if isinstance(o, Mistake)]
    assert wrong and wrong[0].where == f"{path}:2" and "not cp1253" in wrong[0].message
    odd = write(tmp_path, b"\xff\xfe" + "plain\n".encode("utf-16-le") + b"\x00\xd8a\x00")
    with pytest.raises(DataError, match="not in the encoding") as caught:
        read(odd, documents="line")
    assert caught.value.where == f"{odd}:2"


def test_an_empty_file_is_utf8(tmp_path: Path) -> None:
    assert find(write(tmp_path, b"")).codec == "utf-8"
