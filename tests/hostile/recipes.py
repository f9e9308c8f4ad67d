"""Recipes that are none, or ask for what is not there: exit code 4, before anything is loaded."""

from collections.abc import Callable
from functools import partial

from tests.hostile.ground import FILES, Case, Ground

WINDOWS = "windows: 8, length: 64"
ARTIFACT = "{name: int4, format: awq, bits: 4, group_size: 32}"
BOMB = "\n".join(
    ["k0: &k0 [x, x, x, x, x, x, x, x, x]"]
    + [f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]" for i in range(1, 12)]
)


def text(content: str | bytes) -> Callable[[Ground], None]:
    """The whole recipe is this."""
    encoded = content if isinstance(content, bytes) else content.encode()
    return lambda ground: void(ground.recipe.write_bytes(encoded))


def void(written: int) -> None:
    """Write, and leave the arguments as they are."""


def changed(before: str, after: str) -> Callable[[Ground], None]:
    """A piece of the recipe is another."""
    return lambda ground: ground.change(before, after)


def source(value: str) -> Callable[[Ground], None]:
    """The recipe names this model."""
    return lambda ground: ground.source(value)


def arguments(*given: str) -> Callable[[Ground], tuple[str, ...]]:
    """The command is given these; `HERE` is the folder."""
    return lambda ground: tuple(word.replace("HERE", str(ground.folder)) for word in given)


def weights_as_recipe(ground: Ground) -> tuple[str, ...]:
    (ground.folder / "large.yaml").write_bytes(bytes(2 << 20))
    return ("run", str(ground.folder / "large.yaml"))


def in_the_way(ground: Ground) -> None:
    (ground.folder / "texts").mkdir()
    ground.change(FILES, "[texts]")


def looping_data(ground: Ground) -> None:
    (ground.folder / "loop.jsonl").symlink_to("loop.jsonl")
    ground.change(FILES, "[loop.jsonl]")


case = partial(Case, code=4)
CASES = [
    case("no such recipe", arguments("run", "HERE/gone.yaml"), "there is no such recipe"),
    case("a folder as recipe", arguments("run", "HERE"), "this is a folder, not a recipe"),
    case("weights as recipe", weights_as_recipe, "this is not a recipe"),
    case("an empty recipe", text(""), "the recipe is empty"),
    case("a byte order mark and no more", text(b"\xef\xbb\xbf"), "the recipe is empty"),
    case("comments only", text("# model\n---\n"), "the recipe is empty"),
    case("a list", text("- version: 1\n"), "a recipe is a mapping of keys"),
    case("UTF-16", text("version: 1\n".encode("utf-16")), "the file is not UTF-8 text"),
    case("Latin-1", text(b"version: 1\nname: caf\xe9\n"), "the file is not UTF-8 text"),
    case("a control character", text("version: \x01\n"), "is not allowed in YAML"),
    case("a tab", changed("\n  files", "\n\tfiles"), "a tab where YAML wants spaces"),
    case("an open bracket", changed(FILES, "[letters.jsonl"), "this is not valid YAML"),
    case("a glob without quotes", changed(FILES, "[*.jsonl]"), "has to be quoted"),
    case("two documents", text("version: 1\n---\nversion: 1\n"), "a second one begins here"),
    case("aliases that blow up", text(BOMB), "more than 10000 values"),
    case("brackets 5,000 deep", text("a: " + "[" * 5000 + "]" * 5000), "nested more than 20 levels deep"),
    case("an object to build", changed("name: tiny", "name: !!python/object:os.system x"), "tags such as"),
    case("a key twice", changed("version: 1", "version: 1\nversion: 1"), "the key is already there"),
    case("a merge key", changed("version: 1", "<<: {version: 1}"), "merge keys (<<) are not supported"),
    case("a key misspelt", changed("group_size", "groupsize"), "Did you mean `group_size`?"),
    case("a key missing", changed("version: 1\n", ""), "version: this key is missing"),
    case("text for a number", changed(WINDOWS, "windows: many, length: 64"), "has to be a whole number"),
    case("a number out of range", changed(WINDOWS, "windows: 0, length: 64"), "is out of range"),
    case("a format that is none", changed("format: awq", "format: awk"), "`awk` is not allowed"),
    case("shares that sum to 1.2", changed("evaluation: 0.5", "evaluation: 0.7"), "have to sum to 1"),
    case("a name that leads out", changed("name: int4", "name: ../up"), "cannot be the name of a folder"),
    case("a variable that is not set", changed(FILES, '["${NO_SUCH}"]'), "NO_SUCH is not set"),
    case("an override of no key", arguments("run", "HERE/tiny.yaml", "--set", "data.sede=1"), "data.sede"),
    case("no such model", source("./gone"), "there is no such model folder or GGUF file"),
    case("a file that is no GGUF", source("./tiny.yaml"), "has to be a .gguf file"),
    case("an address", source("https://example.org/model"), "this kind of address cannot be a model source"),
    case("a wheel without its hash", source("wheel://a==1/m.gguf"), "needs the wheel's SHA-256"),
    case(
        "a wheel's path that leads out",
        source(f"wheel://a==1/../../m.gguf#sha256={'0' * 64}"),
        "must not lead out of it",
    ),
    case(
        "a revision of a folder",
        lambda ground: ground.source(str(ground.shared), ", revision: main"),
        "a revision is for models of a hub",
    ),
    case("no such data", changed(FILES, "[gone/*.jsonl]"), "no file matches"),
    case("a folder as data", in_the_way, "this is a folder"),
    case("a link to itself as data", looping_data, "no file matches"),
    case("no GPU", changed("version: 1", "version: 1\nruntime: {device: cuda}"), "no usable CUDA device"),
    case(
        "groups that do not divide",
        changed("group_size: 32", "group_size: 128"),
        "does not divide the 64 input channels",
    ),
    case(
        "windows longer than the model's context",
        changed("evaluation: {length: 64}", "evaluation: {length: 512}"),
        "do not fit the model, which was made for 256",
    ),
]  # fmt: skip
