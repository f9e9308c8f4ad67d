"""What code a stage's output depends on, read from the source without importing it."""

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "quantflow"
ROOT = Path(__file__).resolve().parent.parent
# How stages are run and how mistakes are worded; neither decides what a stage writes.
WITHOUT_EFFECT = (f"{PACKAGE}.pipeline", f"{PACKAGE}.errors")
# Distributions whose import name differs, and those that another one's results hang on.
DISTRIBUTIONS = {"yaml": ("pyyaml",), "transformers": ("transformers", "tokenizers")}


@dataclass(frozen=True)
class CodeIdentity:
    """The source and the libraries that a stage's function reaches through imports.

    Attributes:
        digest: SHA-256 over the syntax trees, docstrings and comments left out.
        modules: The quantflow modules reached, sorted.
        libraries: Distribution → installed version.
    """

    digest: str
    modules: tuple[str, ...]
    libraries: dict[str, str]


def code_identity(module: str) -> CodeIdentity:
    """Follow the imports of `module` through quantflow, those inside functions too.

    Args:
        module: Dotted name, e.g. `quantflow.data.stage`.
    """
    pending, seen, tops = [module], set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name.startswith(WITHOUT_EFFECT):
            continue
        seen.add(name)
        imported = _parse(name).imports
        pending.extend(i for i in imported if i.split(".")[0] == PACKAGE and _path(i) is not None)
        tops.update(i.split(".")[0] for i in imported)
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(f"{name}:{_parse(name).digest}\n".encode())
    outside = sorted(tops - {PACKAGE} - sys.stdlib_module_names)
    names = [dist for top in outside for dist in DISTRIBUTIONS.get(top, (top,))]
    return CodeIdentity(digest.hexdigest(), tuple(sorted(seen)), {n: _version(n) for n in names})


@dataclass(frozen=True)
class _Parsed:
    digest: str
    imports: tuple[str, ...]


@cache
def _parse(module: str) -> _Parsed:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = tuple(_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return _Parsed(digest, imports)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _path(module: str) -> Path | None:
    if module.split(".")[0] != PACKAGE:
        spec = find_spec(module)
        return Path(spec.origin) if spec and spec.origin else None
    base = ROOT.joinpath(*module.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
