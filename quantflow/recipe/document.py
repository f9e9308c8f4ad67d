"""YAML text to nodes. YAML is data here: no tag is honoured, no object is built, aliases cannot blow up."""

from collections.abc import Iterator
from dataclasses import replace

import yaml

from quantflow.recipe.nodes import ListNode, Loc, MapNode, Node, Place, Problem, Scalar, dotted, walk

# A recipe has some fifty keys; these bounds are out of reach for one and well within reach of an attack.
MOST_NODES = 10_000
DEEPEST_NESTING = 20
NOT_A_RECIPE = "No recipe needs that: see recipes/quickstart.yaml for what one looks like."


class MalformedError(Exception):
    """The text cannot be a recipe at all; carries the one problem that ended the reading."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_document(text: str, shown_as: str) -> tuple[Node | None, list[Problem]]:
    """Read one YAML document.

    Args:
        text: The document.
        shown_as: How to name it in messages, normally the path of the file.

    Returns:
        The root (None for an empty document) and the mistakes that did not stop the reading: repeated keys,
        tags, merge keys.

    Raises:
        MalformedError: It is not YAML, or nests or repeats beyond any recipe.
    """
    builder = _Builder(shown_as, text.splitlines())
    try:
        root = builder.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        raise MalformedError(builder.syntax_problem(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"character #x{ord(text[error.position]):04x} is not allowed in YAML"
        raise MalformedError(Problem(builder.place(line), "", message, "Delete it.")) from error
    return root, builder.problems


class _Builder:
    """Builds nodes from parser events, so that no constructor of PyYAML ever runs."""

    def __init__(self, shown_as: str, lines: list[str]) -> None:
        self.shown_as = shown_as
        self.lines = lines
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node] = {}
        self.count = 0

    def place(self, line: int) -> Place:
        return Place(line, f"{self.shown_as}:{line}")

    def document(self, events: Iterator[yaml.Event]) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._malformed(
                        event,
                        "a recipe is one YAML document, a second one begins here",
                        "Remove the line ---.",
                    )
            elif isinstance(event, yaml.NodeEvent):
                root = self.node(event, events, ())
        return None if isinstance(root, Scalar) and root.plain and not root.text else root

    def node(self, event: yaml.Event, events: Iterator[yaml.Event], loc: Loc, line: int = 0) -> Node:
        """Build the node that `event` begins; `line` is that of its key, if it has one."""
        place = self.place(line or _line(event))
        if len(loc) > DEEPEST_NESTING:
            raise self._malformed(event, f"nested more than {DEEPEST_NESTING} levels deep", NOT_A_RECIPE)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place)
        self._count(event, 1)
        self._refuse_tag(event, place, loc)
        if isinstance(event, yaml.ScalarEvent):
            node: Node = Scalar(event.value, event.style is None, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = ListNode(tuple(self._items(events, loc)), place)
        else:
            node = MapNode(self._entries(events, loc), place)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _items(self, events: Iterator[yaml.Event], loc: Loc) -> Iterator[Node]:
        index = 0
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            yield self.node(event, events, (*loc, index))
            index += 1

    def _entries(self, events: Iterator[yaml.Event], loc: Loc) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._malformed(event, "a key has to be a plain word", NOT_A_RECIPE)
            key, line = event.value, _line(event)
            self._refuse_tag(event, self.place(line), (*loc, key))
            value = self.node(next(events), events, (*loc, key), line)
            if key == "<<" and event.style is None:
                message = "merge keys (<<) are not supported"
                self.problems.append(Problem(self.place(line), dotted(loc), message, "Write the keys out."))
            elif key in entries:
                message = f"the key is already there on line {entries[key].place.order}"
                problem = Problem(self.place(line), dotted((*loc, key)), message, "Keep one of the two.")
                self.problems.append(problem)
            else:
                entries[key] = value
        return entries

    def _alias(self, event: yaml.AliasEvent, place: Place) -> Node:
        if event.anchor not in self.anchors:
            hint = "Text that begins with * has to be quoted." if event.anchor else ""
            raise self._malformed(event, f"`*{event.anchor}` refers to nothing before it", hint)
        node = self.anchors[event.anchor]
        self._count(event, sum(1 for _ in walk(node)))
        return replace(node, place=place)

    def _count(self, event: yaml.Event, nodes: int) -> None:
        self.count += nodes
        if self.count > MOST_NODES:
            raise self._malformed(event, f"more than {MOST_NODES} values, aliases written out", NOT_A_RECIPE)

    def _refuse_tag(self, event: yaml.Event, place: Place, loc: Loc) -> None:
        tag = event.tag if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) else None
        if tag is not None:
            message = f"tags such as `{tag}` are not allowed: a recipe is data only"
            self.problems.append(Problem(place, dotted(loc), message, "Write the value without it."))

    def _malformed(self, event: yaml.Event, message: str, hint: str = "") -> MalformedError:
        return MalformedError(Problem(self.place(_line(event)), "", message, hint))

    def syntax_problem(self, error: yaml.MarkedYAMLError) -> Problem:
        mark = error.problem_mark or error.context_mark
        number = mark.line + 1 if mark else 1
        line = self.lines[number - 1] if number <= len(self.lines) else ""
        what = error.problem or error.context or "cannot be read"
        hint = "Close what this line or one before it opens: a bracket, a brace, a quote."
        if "\\t" in what or "\t" in line[: len(line) - len(line.lstrip())]:
            what, hint = "a tab where YAML wants spaces", "Indent with spaces."
        elif "alias" in (error.context or ""):
            hint = "Text that begins with * (a glob, for instance) has to be quoted."
        elif "${" in line and ("[" in line or line.count("{") > line.count("${")):
            hint = "Inside [ ] and { } a text with ${…} has to be quoted."
        elif "mapping values are not allowed" in what:
            hint = "Text that holds `: ` has to be quoted; keys of one mapping have to line up."
        context = f" ({error.context})" if error.context else ""
        return Problem(self.place(number), "", f"this is not valid YAML: {what}{context}", hint)


def _line(event: yaml.Event) -> int:
    """Line of the document on which an event begins, from 1."""
    return event.start_mark.line + 1 if event.start_mark else 1
