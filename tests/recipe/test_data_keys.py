"""The keys of `data`: what they may hold, and what becomes of them."""

import pytest

from quantflow.data.params import FieldParams
from quantflow.pipeline.data_params import data_params
from tests.recipe.conftest import SOUND, Load, Refusal

FILES = "data:\n  files: [texts/*.jsonl]"


def with_data(more: str) -> str:
    return SOUND.replace(FILES, f"{FILES}\n{more}")


def test_without_keys_the_defaults_hold(load: Load) -> None:
    params = data_params(load().data)
    assert params.reading.fields == FieldParams()
    assert (params.evaluation_length, params.evaluation_stride, params.evaluation_bos) == (2048, 2048, "auto")
    assert (params.calibration_windows, params.evaluation_windows) == (512, 512)
    assert params.slices == ("a", "b")
    assert params.max_overlap == 0.25


def test_a_text_may_be_one_field_or_several(load: Load) -> None:
    for written, paths in (("body", ("body",)), ("[subject, ticket.body]", ("subject", "ticket.body"))):
        fields = data_params(load(with_data(f"  fields: {{text: {written}}}")).data).reading.fields
        assert (fields.text, fields.messages) == (paths, "")


def test_messages_named_alone_make_every_row_a_conversation(load: Load) -> None:
    fields = data_params(load(with_data("  fields: {messages: 'turns[].message'}")).data).reading.fields
    assert (fields.text, fields.messages) == ((), "turns[].message")


def test_fields_that_are_named_are_required(load: Load) -> None:
    fields = data_params(load(with_data("  fields: {slice: team}")).data).reading.fields
    assert (fields.slice, fields.required) == ("team", ("slice",))


def test_the_data_words_for_roles_are_turned_around(load: Load) -> None:
    roles = "  roles: {user: [USER, human], assistant: [SYSTEM]}"
    assert data_params(load(with_data(roles)).data).reading.roles == {
        "USER": "user",
        "human": "user",
        "SYSTEM": "assistant",
    }


def test_an_encoding_goes_by_one_name_however_it_is_written(load: Load) -> None:
    for written, name in (
        ("GB18030", "gb18030"),
        ("UTF8", "utf-8"),
        ("utf_8_sig", "utf-8"),
        ("auto", "auto"),
    ):
        assert load(with_data(f"  encoding: {written}")).data.encoding == name


def test_a_stride_is_kept_and_a_delimiter_translated(load: Load) -> None:
    params = data_params(load(with_data("  evaluation: {length: 512, stride: 256}\n  delimiter: tab")).data)
    assert (params.evaluation_stride, params.reading.delimiter) == (256, "\t")


def test_text_files_that_are_documents_have_their_folder_as_slice(load: Load) -> None:
    for documents, slices in (("file", ("texts", "texts")), ("line", ("a", "b"))):
        text = with_data(f"  format: txt\n  documents: {documents}")
        assert data_params(load(text).data).slices == slices


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("  encoding: utf-9", "there is no text encoding `utf-9`"),
        ("  encoding: base64", "there is no text encoding `base64`"),
        ("  evaluation: {length: 64, stride: 65}", "a stride of 65 would skip tokens between windows of 64"),
        ("  roles: {user: [A, B], assistant: [B]}", "`B` stands for two roles"),
        ("  fields: {text: 'a..b'}", "`a..b` is no path"),
        ("  fields: {slice: '[0].a'}", "`[0].a` is no path"),
        ("  fields: {text: []}", "must not be empty"),
        ("  fields: {text: 7}", "has to be a list, this is `7`"),
        ("  documents: page", "`page` is not allowed"),
        ("  max_overlap: 1.5", "out of range"),
        ("  evaluation: {windows: 0}", "out of range"),
        ("  fields: {body: text}", "there is no such key"),
    ],
)
def test_what_a_key_may_not_hold_is_refused_at_its_line(refusal: Refusal, more: str, message: str) -> None:
    error = refusal(with_data(more))
    assert message in error.message
    assert error.where == "r.yaml:7"
