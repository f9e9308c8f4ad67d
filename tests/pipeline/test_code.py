from collections.abc import Iterator
from pathlib import Path

import pytest

from quantflow.pipeline import code
from quantflow.pipeline.code import code_identity


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in {
        "__init__.py": "",
        "stage.py": "import json\nfrom quantflow.deep import half\nimport numpy as np\n",
        "deep.py": "def half(x):\n    from quantflow.deeper import two\n    return x / two\n",
        "deeper.py": "two = 2\n",
        "apart.py": "three = 3\n",
        "errors.py": "class E(Exception): ...\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    code._parse.cache_clear()
    yield tmp_path
    code._parse.cache_clear()


def change(package: Path, name: str, text: str) -> str:
    (package / name).write_text(text)
    code._parse.cache_clear()
    return code_identity("quantflow.stage").digest


def test_imports_are_followed_through_functions_and_other_modules(package: Path) -> None:
    found = code_identity("quantflow.stage")
    assert found.modules == ("quantflow.deep", "quantflow.deeper", "quantflow.stage")
    assert list(found.libraries) == ["numpy"]


def test_a_change_far_down_changes_the_identity(package: Path) -> None:
    before = code_identity("quantflow.stage").digest
    assert change(package, "deeper.py", "two = 2.5\n") != before


def test_comments_docstrings_and_other_modules_change_nothing(package: Path) -> None:
    before = code_identity("quantflow.stage").digest
    assert change(package, "deeper.py", '"""Two."""\n\n# the even prime\ntwo = 2\n') == before
    assert change(package, "apart.py", "three = 4\n") == before
    assert change(package, "errors.py", "class F(Exception): ...\n") == before
