"""The report's words: one catalogue a language, the same keys in each."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from pydantic import JsonValue

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


class Wording:
    """The texts of one language.

    Texts are plain: what is filled in is escaped with the rest where they become part of a page.
    """

    def __init__(self, language: Language, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, /, **values: object) -> str:
        """The text of a key, with values in its places.

        Args:
            key: Section and name in the catalogue, e.g. `criteria.title`.
            values: What its places stand for.

        Raises:
            KeyError: The catalogue has no such key, or a place has no value.
        """
        return self.texts[key].format(**values)

    def named(self, kind: str, name: str) -> str:
        """The word for a name of the program's, such as a metric; the name itself where there is none."""
        return self.texts.get(f"{kind}.{name}", name)

    def counted(self, key: str, number: int, shown: str, **values: object) -> str:
        """A number of things: the text of `key.one` for one, of `key.other` for any other number."""
        return self(f"{key}.{'one' if number == 1 else 'other'}", count=shown, **values)

    def joined(self, names: Sequence[str]) -> str:
        """Names in a row: `a, b and c`."""
        *most, last = names or ("",)
        return self("list.and", most=self("list.comma").join(most), last=last) if most else last


@cache
def load_wording(language: Language) -> Wording:
    """The catalogue of a language."""
    text = (files("quantflow.report") / "catalogue" / f"{language}.toml").read_text(encoding="utf-8")
    return Wording(language, dict(_flat(tomllib.loads(text))))


def _flat(node: Mapping[str, JsonValue], within: str = "") -> Iterator[tuple[str, str]]:
    for name, value in node.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", str(value)
