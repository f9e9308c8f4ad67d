"""The `data` section of a recipe: your own text, how it is read and how it is used."""

import codecs
import re
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Section

# A window shorter than this has hardly any context; one longer than any model's context is a slip of the pen.
SHORTEST_WINDOW, LONGEST_WINDOW = 8, 131_072
# 128 times the default: at 2048 tokens each that is 134 million tokens, more than any calibration gains from.
MOST_WINDOWS = 65_536
# Shares are written with a few digits: thirds as 0.333, 0.333 and 0.334 are meant to be taken.
SHARE_TOLERANCE = 1e-6
# Of evaluation tokens, in passages that were used before. Measured, of calibration: 0 to 0.01 on contracts,
# abstracts, annual reports, service dialogues and our own texts, 0.08 on formulaic dialogues; a system prompt
# that outweighs the conversations, or documents that are nearly the same, come to more.
DEFAULT_MAX_OVERLAP = 0.25

WindowLength = Annotated[int, Field(ge=SHORTEST_WINDOW, le=LONGEST_WINDOW)]
WindowCount = Annotated[int, Field(ge=1, le=MOST_WINDOWS)]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
# Names joined by dots, each of them with `[]` or `[3]` after it or not.
_PATH = re.compile(r"[^.\[\]]+(\[\d*\])*(\.[^.\[\]]+(\[\d*\])*)*")


def _path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise PydanticCustomError(
            "path",
            "`{path}` is no path: write names with dots between them, such as ticket.body, and turns[].text "
            "for every item of a list",
            {"path": path},
        )
    return path


FieldPath = Annotated[str, StringConstraints(min_length=1), AfterValidator(_path)]


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


FieldPaths = Annotated[
    tuple[FieldPath, ...],
    Field(min_length=1, strict=False),
    BeforeValidator(_one_or_more),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]
Names = Annotated[tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(strict=False)]


def _known_encoding(name: str) -> str:
    if name == "auto":
        return name
    try:
        "".encode(name)
        return codecs.lookup(name).name.removesuffix("-sig")  # a mark is taken off wherever there is one
    except (LookupError, UnicodeError) as error:
        raise PydanticCustomError("encoding", "there is no text encoding `{name}`", {"name": name}) from error


class FieldNames(Section):
    """Where in a row or object its parts are; a path such as `ticket.body` or `turns[].text` leads in."""

    text: FieldPaths | None = Field(
        default=None,
        description="Where the text is; of several fields the texts are joined by blank lines. Given this "
        "and not `messages`, rows are texts whatever else they hold. Default: null, the field `text`.",
    )
    messages: FieldPath | None = Field(
        default=None,
        description="Where the list of a conversation's messages is. Given this and not `text`, rows are "
        "conversations whatever else they hold. Default: null, the field `messages`.",
    )
    role: FieldPath = Field(
        default="role", description="Within a message: who speaks, see data.roles. Default: role."
    )
    content: FieldPath = Field(
        default="content", description="Within a message: what is said. Default: content."
    )
    tools: FieldPath | None = Field(
        default=None,
        description="Where a conversation's list of tools is, given to the chat template. Default: null, the "
        "field `tools` where there is one.",
    )
    slice: FieldPath | None = Field(
        default=None,
        description="Where the slice is: the part of your business a document belongs to. Default: null, the "
        "field `slice` where there is one, else the name of the file or, of a text file that is one "
        "document, of its folder.",
    )
    id: FieldPath | None = Field(
        default=None,
        description="Where a document's own name is. Default: null, the field `id` where there is one, else "
        "a hash of the content.",
    )


class RoleNames(Section):
    """What your data call those who speak, where it is not what chat templates call them."""

    system: Names = Field(default=(), description="Your names of `system`, the instructions. Default: [].")
    user: Names = Field(default=(), description="Your names of `user`, such as [USER, human]. Default: [].")
    assistant: Names = Field(
        default=(), description="Your names of `assistant`, such as [SYSTEM, gpt, agent]. Default: []."
    )
    tool: Names = Field(default=(), description="Your names of `tool`, what a tool answered. Default: [].")

    @model_validator(mode="after")
    def _one_meaning_each(self) -> Self:
        names = [name for role in type(self).model_fields for name in getattr(self, role)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PydanticCustomError("roles", "`{name}` stands for two roles", {"name": twice[0]})
        return self


class Calibration(Section):
    """The tokens that the quantizer looks at."""

    windows: WindowCount = Field(default=512, description="Number of calibration windows. Default: 512.")
    length: WindowLength = Field(
        default=2048, description="Length of a calibration window, tokens. Default: 2048."
    )


class Evaluation(Section):
    """The tokens that the gate looks at; selection windows are cut in the same way."""

    windows: WindowCount = Field(
        default=512,
        description="Most evaluation windows, and most selection windows; of more, a seeded draw is taken. "
        "Default: 512.",
    )
    length: WindowLength = Field(
        default=2048,
        description="Longest evaluation window, tokens, BOS included. Windows never cross documents. "
        "Default: 2048.",
    )
    stride: Annotated[int, Field(ge=1, le=LONGEST_WINDOW)] | None = Field(
        default=None,
        description="Tokens from the start of one window to that of the next. Less than `length` makes "
        "windows overlap: more context, more work; each position is scored once. Default: null, no overlap.",
    )
    bos: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether every window begins with the BOS token: auto does what the tokenizer does at "
        "the start of a text. Default: auto.",
    )

    @model_validator(mode="after")
    def _stride_within_length(self) -> Self:
        if self.stride is not None and self.stride > self.length:
            raise PydanticCustomError(
                "stride",
                "a stride of {stride} would skip tokens between windows of {length}",
                {"stride": self.stride, "length": self.length},
            )
        return self


class Split(Section):
    """How documents are shared out, by number of documents; the three shares sum to 1."""

    calibration: Share = Field(
        default=0.5, description="Share of documents that codes are fitted on, a fraction. Default: 0.5."
    )
    selection: Share = Field(
        default=0.25, description="Share of documents that choices are made on, a fraction. Default: 0.25."
    )
    evaluation: Share = Field(
        default=0.25, description="Share of documents that the gate alone sees, a fraction. Default: 0.25."
    )

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.calibration + self.selection + self.evaluation
        if abs(total - 1) > SHARE_TOLERANCE:
            raise PydanticCustomError(
                "shares", "the three shares have to sum to 1, these sum to {total}", {"total": f"{total:.6g}"}
            )
        return self


class Data(Section):
    """Your own business text and how it is used."""

    files: tuple[str, ...] = Field(
        min_length=1,
        strict=False,  # YAML has lists only; the items stay strict
        description="Files or globs, relative to the recipe: .jsonl, .json, .txt, .md, .csv, .tsv or "
        ".parquet, as they are or in .gz, .bz2, .xz, .zst or .zip.",
    )
    reference: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Files or globs with a sample of what the model reads in production, read like those of "
        "`files`: calibration text is compared with it, and nothing is calibrated or judged on it. "
        "Default: [].",
    )
    format: Literal["auto", "jsonl", "json", "txt", "csv", "parquet"] = Field(
        default="auto", description="Format of all files. Default: auto, each by its name."
    )
    encoding: Annotated[str, AfterValidator(_known_encoding)] = Field(
        default="auto",
        description="Text encoding of all files, such as utf-8, gb18030 or cp1252. Default: auto, UTF-8 or "
        "UTF-16 by their marks, else detected; what cannot be told for certain is refused.",
    )
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = Field(
        default="auto",
        description="What separates the columns of CSV files. Default: auto, told from the header.",
    )
    documents: Literal["file", "paragraph", "line"] = Field(
        default="file",
        description="What a document is in a text file: the whole file, a paragraph (blank lines around it) "
        "or a line. Default: file.",
    )
    fields: FieldNames = Field(
        default=FieldNames(), description="Where text, messages, slice and id are in a row or object."
    )
    roles: RoleNames = Field(
        default=RoleNames(), description="What your data call user, assistant, system and tool."
    )
    invalid: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="What to do about lines that cannot be used: refuse them all, naming the first, or skip "
        "and count them. Default: refuse.",
    )
    calibration: Calibration = Field(
        default=Calibration(), description="The tokens that codes are fitted on."
    )
    evaluation: Evaluation = Field(default=Evaluation(), description="The tokens that the gate judges on.")
    split: Split = Field(
        default=Split(), description="How documents are shared out between the three uses; shares sum to 1."
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="Seed of the draw of documents, the split and the draw of windows. Default: 0.",
    )
    max_overlap: float = Field(
        default=DEFAULT_MAX_OVERLAP,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Largest share of evaluation tokens, a fraction, that may stand in passages which the "
        f"calibration or selection text has word for word; more is refused. Default: {DEFAULT_MAX_OVERLAP}.",
    )
