"""The two texts that are compared: calibration documents as the data stage kept them, and production's."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.cut import Cutting
from quantflow.data.documents import MIN_DOCUMENTS, load_documents
from quantflow.data.draw import draw
from quantflow.data.encode import Encoder, TokenizedDocument
from quantflow.data.encoding import encoding_of
from quantflow.data.files import find_files, total_bytes
from quantflow.data.mistakes import Mistakes
from quantflow.data.near import clusters
from quantflow.data.need import Need
from quantflow.data.rank import rank
from quantflow.data.read import read_records
from quantflow.data.windows import CALIBRATED_FILE, load_windows
from quantflow.drift.params import DriftParams
from quantflow.errors import DataError
from quantflow.pipeline.events import Reporter

SPARE = 2
"""How many times the documents that a verdict takes are held at least: near duplicates count as one."""

_LONGEST_WINDOW = 1 << 30  # nothing is cut


@dataclass(frozen=True)
class Text:
    """Documents of one side, in random order.

    Attributes:
        tokens: Tokens of each document, [tokens] each, one at least.
        group: What stands for each and its near duplicates.
        slices: Slice of each.
    """

    tokens: Sequence[NDArray[np.int32]]
    group: Sequence[int]
    slices: Sequence[str]


def calibration_text(data: Path) -> Text:
    """The documents that calibration windows are packed from.

    Args:
        data: Finished output of the data stage.
    """
    windows, documents = load_windows(data / CALIBRATED_FILE), load_documents(data)
    chosen = [documents[i] for i in windows.document]
    group = [
        int(at) if document.near is None else document.near
        for at, document in zip(windows.document, chosen, strict=True)
    ]
    return Text(list(windows), group, [document.slice for document in chosen])


def reference_text(params: DriftParams, encoder: Encoder, reporter: Reporter) -> list[TokenizedDocument]:
    """Read, draw and tokenize the sample of production text, exact copies taken once.

    Args:
        params: Its files and how they are read.
        encoder: The model's tokenizer and chat template.
        reporter: Told of what was left out.

    Returns:
        Documents in random order; `id` of near duplicates is that of the first of them.

    Raises:
        DataError: A file cannot be read, or there is no document.
    """
    files = find_files(params)
    encodings = [
        None if file.format == "parquet" else encoding_of(file, params.reading.encoding) for file in files
    ]
    mistakes = Mistakes(params.reading.invalid)
    need = Need(tokens=params.tokens, windows=0, documents=SPARE * MIN_DOCUMENTS)
    with reporter.track("reading and tokenizing bytes of production text", total_bytes(files)) as advance:
        records = read_records(files, encodings, params.reading, advance)
        cutting = Cutting(_LONGEST_WINDOW, _LONGEST_WINDOW, None)
        drawn, _ = draw(records, encoder, need, params.seed, cutting, mistakes)
    kept = [(item.document, item.signature) for item in drawn if item.document is not None]
    if mistakes.undecodable or mistakes.invalid or len(kept) < len(drawn):
        number = mistakes.undecodable + mistakes.invalid + len(drawn) - len(kept)
        reporter.event(
            "reference-documents-skipped",
            f"{number} lines or rows of data.reference cannot be used and were left out.",
            documents=number,
        )
    if not kept:
        raise DataError(
            "the files hold no document",
            where="data.reference",
            hint="Give a sample of what the model reads in production, or remove the key.",
        )
    kept.sort(key=lambda item: rank(params.seed, "reference", item[0].digest))
    near = clusters(np.stack([signature for _, signature in kept]))
    return [
        TokenizedDocument(str(first), document.slice, document.digest, document.tokens)
        for (document, _), first in zip(kept, near, strict=True)
    ]


def not_calibrated(
    documents: Sequence[TokenizedDocument], calibration: Text, reporter: Reporter
) -> list[TokenizedDocument]:
    """Leave out of production's documents those that calibration has word for word.

    They are no second sample: chance does not make a text differ from itself, and a floor for what chance
    does would be taken off all the same.

    Args:
        documents: Production's.
        calibration: The other side.
        reporter: Told of what was left out.

    Raises:
        DataError: No other is left.
    """
    known = {tokens.astype(np.int32).tobytes() for tokens in calibration.tokens}
    kept = [one for one in documents if one.tokens.astype(np.int32).tobytes() not in known]
    if not kept:
        raise DataError(
            "all documents of it are calibration text, too, which would be compared with itself",
            where="data.reference",
            hint="Give a sample of production text that nothing is calibrated on.",
        )
    if len(kept) < len(documents):
        left_out = len(documents) - len(kept)
        reporter.event(
            "reference-documents-calibrated",
            f"{left_out} of {len(documents)} documents of data.reference are calibration text, too, and were "
            "left out: a text does not drift from itself.",
            documents=left_out,
            of=len(documents),
        )
    return kept


def as_text(documents: Sequence[TokenizedDocument]) -> Text:
    """Documents that `reference_text` read."""
    return Text(
        [document.tokens for document in documents],
        [int(document.id) for document in documents],
        [document.slice for document in documents],
    )


def main_script(text: str) -> str:
    """The writing system that most of a text's letters are of, by Unicode's names: `latin`, `cjk`.

    Languages that share one are not told apart; their tokens differ.
    """
    found: Counter[str] = Counter()
    for character, number in Counter(text).items():
        if character.isalpha():
            found[unicodedata.name(character, "other").partition(" ")[0].lower()] += number
    return max(sorted(found), key=found.__getitem__) if found else "none"


def shares(names: Sequence[str]) -> Mapping[str, float]:
    """Name → share, the most frequent first."""
    counted = Counter(names)
    return {name: counted[name] / len(names) for name in sorted(counted, key=lambda n: (-counted[n], n))}
