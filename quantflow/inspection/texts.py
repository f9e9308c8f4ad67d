"""Texts of our own that every model is tried on, in kinds of which a sound one knows at least one."""

from collections.abc import Mapping

READING: Mapping[str, str] = {
    "english": "The museum opens at nine in the morning and closes at six. On Fridays it stays open until "
    "eight, and entry is free for children. Last year more than two hundred thousand people came to see the "
    "paintings, most of them from other countries.",
    "letter": "Hello, and thank you for writing to us. If the light stays red, please hold the button for "
    "six seconds, wait until it turns green and then open the app again. If that does not help, send the "
    "device back in its box: we will change it or give you your money back within five working days.",
    "chinese": "今天天气很好，我们早上去公园散步，中午在一家小饭馆吃了面条。下午开始下雨，"
    "所以大家回家看书、喝茶。晚上他给妈妈打了一个电话，告诉她下个星期会回去看她。",
    "code": "def mean(values):\n    if not values:\n        raise ValueError('no values')\n    total = 0.0\n"
    "    for value in values:\n        total += value\n    return total / len(values)\n",
}
"""Kind → text. What is read best decides, so that a model of one language or of code alone is not blamed."""

SPELLING: Mapping[str, str] = {
    **READING,
    "emoji": "Thanks a lot 👍🏽, see you tomorrow 🎉👩‍👩‍👧! ¿Café, naïve œuvre, Größe 42 °C, 5 €?",
    "spaces": "  two spaces before,\ttab,\n\nempty line, trailing   ",
}
"""Kind → text that a tokenizer takes apart and puts together again."""

PROMPT_CHARACTERS = {"english": 19, "letter": 39, "chinese": 14, "code": 17}
"""Kind → how much of its text is given to the model to go on with."""


def prompts() -> tuple[str, ...]:
    """Beginnings of the texts for reading."""
    return tuple(READING[kind][:length].rstrip() for kind, length in PROMPT_CHARACTERS.items())
