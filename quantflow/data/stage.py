"""The data stage: business text to token windows of three sets, every token accounted for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.account import Copies, account_split, add_counts
from quantflow.data.check import check_bos, check_overlap, check_sizes, check_vocabulary
from quantflow.data.cut import Cut, Cutting, cut_documents, pack_documents
from quantflow.data.documents import (
    SPLITS,
    Accounting,
    Document,
    FileKind,
    NearDuplicates,
    Reading,
    SplitAccounting,
    SplitName,
    save_accounting,
    save_documents,
)
from quantflow.data.draw import Drawn, Seen, draw
from quantflow.data.encode import Encoder, TokenizedDocument
from quantflow.data.encoding import Encoding, encoding_of
from quantflow.data.files import DataFile, find_files, total_bytes
from quantflow.data.mistakes import Mistakes
from quantflow.data.near import NEAR_DUPLICATE, clusters, sizes
from quantflow.data.need import need_of
from quantflow.data.notices import report_draw, report_files, report_sizes
from quantflow.data.overlap import overlap, overlapping_documents
from quantflow.data.params import DataParams
from quantflow.data.rank import rank
from quantflow.data.read import read_records
from quantflow.data.split import Corpus, assign_splits, drop_copies
from quantflow.data.windows import (
    CALIBRATED_FILE,
    CALIBRATION_FILE,
    EVALUATION_FILE,
    SELECTION_FILE,
    Windows,
    make_windows,
    save_windows,
)
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

_FILES: Mapping[SplitName, str] = {
    "calibration": CALIBRATION_FILE,
    "selection": SELECTION_FILE,
    "evaluation": EVALUATION_FILE,
}


def run(params: DataParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Read, draw, tokenize, split and cut the business text.

    Args:
        params: Files, sizes, shares and seed.
        inputs: Finished output of `source`.
        output: Folder to write to.
        reporter: Told of copies, of what was left out and of data that is too little.

    Raises:
        DataError: Files or lines that cannot be used, too little text for a calibration window or an
            evaluation, or an evaluation that calibration has word for word.
        SourceError: The tokenizer cannot be loaded or does not belong to the model.
    """
    folder = load_checkpoint(inputs["source"]).folder
    encoder = Encoder(folder)
    cutting = Cutting(params.evaluation_length, params.evaluation_stride, check_bos(encoder, params))
    files = find_files(params)
    encodings = _encodings(files, params, reporter)
    report_files(files, encodings, params.reading.encoding, reporter)

    mistakes = Mistakes(params.reading.invalid)
    drawn, seen = _draw(files, encodings, params, encoder, cutting, mistakes, reporter)
    kept = [item for item in drawn if item.document is not None]
    corpus = drop_copies([item.document for item in kept if item.document is not None])
    check_vocabulary(folder, corpus.documents)
    near = _near_duplicates(corpus, kept)
    shares: dict[SplitName, float] = {
        "calibration": params.calibration_share,
        "selection": params.selection_share,
        "evaluation": params.evaluation_share,
    }
    splits = assign_splits(corpus.documents, shares, params.seed, near.tolist())
    copies = _copies(corpus, kept)

    accounts: dict[SplitName, SplitAccounting] = {}
    windows: dict[SplitName, Windows] = {}
    for split in SPLITS:
        indices = [i for i, of in enumerate(splits) if of == split]
        if split == "calibration":
            indices.sort(key=lambda i: rank(params.seed, "pack", corpus.documents[i].digest))
        members = [corpus.documents[i] for i in indices]
        of_split = [copy for at, copy in copies if splits[at] == split]
        later = [bool(near[i] != i) for i in indices]
        if split == "calibration":
            wanted, length = params.calibration_windows, params.calibration_length
            tokens = [document.tokens for document in members]
            cut = pack_documents(tokens, encoder.eos, length, wanted, params.seed)
            accounts[split] = account_split(cut, members, later, of_split, length)
            used = np.flatnonzero(cut.used)
            whole = make_windows([tokens[i] for i in used], [indices[i] for i in used])
            save_windows(output / CALIBRATED_FILE, whole)
        else:
            members, cut = _cut(members, indices, cutting, encoder.bos, params)
            accounts[split] = account_split(
                cut,
                members,
                later,
                of_split,
                cutting.length,
                stride=cutting.stride,
                bos=cutting.bos is not None,
                overlap=overlap(cut.windows, list(windows.values())),
                documents_overlapping=overlapping_documents(cut.windows, list(windows.values())),
            )
        windows[split] = cut.windows
        save_windows(output / _FILES[split], cut.windows)

    accounting = Accounting(
        seed=params.seed,
        reading=_reading(seen, drawn, mistakes, files, encodings),
        near_duplicates=_near_accounting(near),
        total=add_counts(split.total for split in accounts.values()),
        splits=accounts,
    )
    report_draw(accounting, drawn, mistakes, encoder, seen, reporter)
    check_sizes(params, files, accounting)
    check_overlap(params, accounting, reporter)
    # As the gate counts them: near duplicates are one.
    scored = np.unique(near[windows["evaluation"].document]).size
    report_sizes(params, accounting, scored, reporter)
    grouped = sizes(near)
    save_documents(
        output,
        [
            Document(item.id, item.slice, split, len(item.tokens), int(at) if int(at) in grouped else None)
            for item, split, at in zip(corpus.documents, splits, near, strict=True)
        ],
    )
    save_accounting(output, accounting)


def _encodings(files: Sequence[DataFile], params: DataParams, reporter: Reporter) -> list[Encoding | None]:
    advance: Callable[[int], None]
    found: list[Encoding | None] = []
    with reporter.track("checking the encoding of bytes of text", total_bytes(files)) as advance:
        for file in files:
            of = None if file.format == "parquet" else encoding_of(file, params.reading.encoding)
            found.append(of)
            advance(file.ends_at - file.begins_at)
    return found


def _draw(
    files: Sequence[DataFile],
    encodings: Sequence[Encoding | None],
    params: DataParams,
    encoder: Encoder,
    cutting: Cutting,
    mistakes: Mistakes,
    reporter: Reporter,
) -> tuple[list[Drawn], Seen]:
    advance: Callable[[int], None]
    with reporter.track("reading and tokenizing bytes of text", total_bytes(files)) as advance:
        records = read_records(files, encodings, params.reading, advance)
        return draw(records, encoder, need_of(params), params.seed, cutting, mistakes)


def _near_duplicates(corpus: Corpus, kept: Sequence[Drawn]) -> NDArray[np.int64]:
    """For each document of the corpus the first of its near duplicates, its own index where it has none."""
    signatures = {item.document.digest: item.signature for item in kept if item.document is not None}
    if not corpus.documents:
        return np.empty(0, dtype=np.int64)
    return clusters(np.stack([signatures[document.digest] for document in corpus.documents]))


def _copies(corpus: Corpus, kept: Sequence[Drawn]) -> list[tuple[int, Copies]]:
    """Exact copies, each with the position in the corpus of the document kept for it."""
    position = {document.digest: i for i, document in enumerate(corpus.documents)}
    position |= {copy.digest: at for copy, at in corpus.copies}
    dropped = {copy.digest for copy, _ in corpus.copies}
    found: list[tuple[int, Copies]] = []
    for item in kept:
        document = item.document
        assert document is not None
        for name, count in sorted(item.occurrences.items()):
            # Of a kept document, one occurrence is itself.
            copies = count - (name == document.slice and document.digest not in dropped)
            if copies:
                found.append((position[document.digest], Copies(name, len(document.tokens), copies)))
    return found


def _cut(
    members: Sequence[TokenizedDocument],
    indices: Sequence[int],
    cutting: Cutting,
    bos: int | None,
    params: DataParams,
) -> tuple[list[TokenizedDocument], Cut]:
    never = params.evaluation_bos == "never" and bos is not None
    cleaned = [
        replace(member, tokens=member.tokens[1:]) if never and member.tokens[0] == bos else member
        for member in members
    ]
    tokens = [member.tokens for member in cleaned]
    names = [member.digest for member in cleaned]
    return cleaned, cut_documents(tokens, indices, cutting, params.evaluation_windows, params.seed, names)


def _reading(
    seen: Seen,
    drawn: Sequence[Drawn],
    mistakes: Mistakes,
    files: Sequence[DataFile],
    encodings: Sequence[Encoding | None],
) -> Reading:
    held = sum(item.occurrences.total() for item in drawn)
    characters = sum(item.characters * item.occurrences.total() for item in drawn)
    refused = sum(item.occurrences.total() for item in drawn if item.document is None)
    keys = [
        (f.format, f.compression, e.codec if e else "", e.told_by if e else "")
        for f, e in zip(files, encodings, strict=True)
    ]
    return Reading(
        documents=seen.documents,
        characters=seen.characters,
        documents_undrawn=seen.documents - held,
        characters_undrawn=seen.characters - characters,
        documents_undecodable=mistakes.undecodable,
        documents_invalid=mistakes.invalid,
        documents_refused=refused,
        slices=dict(sorted(seen.slices.items())),
        kinds=tuple(
            FileKind(format=a, compression=b, encoding=c, told_by=d, files=keys.count((a, b, c, d)))
            for a, b, c, d in sorted(set(keys))
        ),
    )


def _near_accounting(near: NDArray[np.int64]) -> NearDuplicates:
    grouped = sizes(near)
    return NearDuplicates(
        similarity=NEAR_DUPLICATE,
        groups=len(grouped),
        documents=sum(grouped.values()),
        largest=max(grouped.values(), default=0),
    )
