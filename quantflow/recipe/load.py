"""From a recipe file to a checked recipe, or to every mistake in it at once."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.recipe.document import MalformedError, read_document
from quantflow.recipe.files import NoFilesError, expand_files
from quantflow.recipe.nodes import Loc, MapNode, Node, Problem, Scalar, dotted, walk
from quantflow.recipe.overrides import apply_overrides
from quantflow.recipe.scalars import to_data
from quantflow.recipe.schema import Recipe
from quantflow.recipe.validate import place_of, validate
from quantflow.source.uri import parse

# A hundred times the longest recipe one would write: a model given by mistake is not read to its end.
LARGEST_RECIPE = 1 << 20


def load_recipe(
    path: Path | str, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Recipe:
    """Read, complete and check a recipe.

    Args:
        path: The YAML file.
        overrides: `key=value` of each `--set`, later ones over earlier ones.
        environ: Environment for `${NAME}` and `${NAME:-default}` in texts.

    Returns:
        The recipe, with `data.files` expanded to sorted absolute paths.

    Raises:
        RecipeError: The file cannot be read, or the recipe is wrong; names each mistake with line,
            key and remedy.
    """
    shown_as = str(path)
    try:
        root, problems = read_document(_read_text(Path(path)), shown_as)
    except MalformedError as error:
        raise _error([error.problem], shown_as) from error
    if root is None:
        raise RecipeError("the recipe is empty", where=shown_as, hint="Start from recipes/quickstart.yaml.")
    if not isinstance(root, MapNode):
        raise RecipeError(
            "a recipe is a mapping of keys", where=root.place.text, hint="Start from recipes/quickstart.yaml."
        )
    changed, wrong_overrides = apply_overrides(root, tuple(overrides))
    problems.extend(wrong_overrides)
    assert isinstance(changed, MapNode)  # an override replaces values inside the root, never the root
    data, unreadable = to_data(changed, environ)
    assert isinstance(data, dict)
    recipe = validate(changed, data)
    unreadable_keys = {dotted(loc) for loc, _ in unreadable}
    problems.extend(problem for _, problem in unreadable)
    if isinstance(recipe, list):
        # What could not be read as a value is not also called a value of the wrong kind.
        problems.extend(problem for problem in recipe if problem.key not in unreadable_keys)
    absolute = Path(path).parent.resolve() / Path(path).name
    reported = {problem.key for problem in problems}
    nodes = dict(walk(changed))
    problems.extend(_source_problems(data, nodes, absolute.parent, reported))
    files, missing = _files("files", data, nodes, absolute.parent, reported)
    reference, missing_too = _files("reference", data, nodes, absolute.parent, reported)
    problems.extend((*missing, *missing_too))
    if problems or isinstance(recipe, list):
        raise _error(problems, shown_as)
    places = {dotted(loc): node.place.text for loc, node in nodes.items() if loc}
    variables = {
        dotted(loc): node.text
        for loc, node in nodes.items()
        if isinstance(node, Scalar) and "${" in node.text
    }
    return recipe.placed(absolute, files, reference, places, variables)


def _read_text(path: Path) -> str:
    where = str(path)
    try:
        if path.is_dir():
            raise RecipeError(
                "this is a folder, not a recipe", where=where, hint="Name the .yaml file in it."
            )
        if not path.exists():
            raise RecipeError("there is no such recipe", where=where, hint=_neighbours(path))
        if not path.is_file() or path.stat().st_size > LARGEST_RECIPE:
            raise RecipeError("this is not a recipe", where=where, hint="A recipe is a short YAML file.")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise RecipeError(f"the recipe cannot be read: {error}", where=where) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecipeError(
            "the file is not UTF-8 text", where=f"{where}:{line}", hint="Save it in the encoding UTF-8."
        ) from error


def _neighbours(path: Path) -> str:
    found = sorted(other.name for other in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
    return f"Recipes in that folder: {', '.join(found)}." if found else ""


def _section(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _source_problems(
    data: Mapping[str, object], nodes: Mapping[Loc, Node], base: Path, reported: set[str]
) -> list[Problem]:
    model = _section(data, "model")
    source, loc = model.get("source"), ("model", "source")
    if not isinstance(source, str) or not source or dotted(loc) in reported:
        return []
    try:
        kind = parse(source, base).kind
    except RecipeError as error:
        message = f"{error.message}: {error.where}" if error.where else error.message
        return [Problem(place_of(loc, nodes), dotted(loc), message, error.hint)]
    if kind != "hub" and model.get("revision") is not None:
        message = f"a revision is for models of a hub, this source is a {kind}"
        loc = ("model", "revision")
        return [Problem(place_of(loc, nodes), dotted(loc), message, "Remove the key.")]
    return []


def _files(
    key: str, data: Mapping[str, object], nodes: Mapping[Loc, Node], base: Path, reported: set[str]
) -> tuple[tuple[str, ...], list[Problem]]:
    patterns = _section(data, "data").get(key)
    found: set[str] = set()
    problems: list[Problem] = []
    for index, pattern in enumerate(patterns if isinstance(patterns, list) else []):
        loc = ("data", key, index)
        if not isinstance(pattern, str) or dotted(loc) in reported:
            continue
        try:
            found.update(expand_files(pattern, base))
        except NoFilesError as error:
            problems.append(Problem(place_of(loc, nodes), dotted(loc), *error.args))
    return tuple(sorted(found)), problems


def _error(problems: list[Problem], shown_as: str) -> RecipeError:
    """One error of all problems, each on its line in reading order."""
    ordered = sorted(problems, key=lambda problem: problem.place)
    if len(ordered) == 1:
        only = ordered[0]
        message = f"{only.key}: {only.message}" if only.key else only.message
        return RecipeError(message, where=only.place.text, hint=only.hint)
    listing = "\n".join(str(problem) for problem in ordered)
    return RecipeError(f"{len(ordered)} mistakes\n{listing}", where=shown_as)
