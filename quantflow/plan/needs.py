"""What of a recipe has to run, why, and what each stage takes: known without running anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quantflow.data.params import DataParams
from quantflow.errors import DataError
from quantflow.pipeline.runner import StageKey
from quantflow.pipeline.stage import Stage, run_again
from quantflow.pipeline.store import Manifest, Store
from quantflow.plan.costs import Facts, cost_of
from quantflow.plan.model import find_model
from quantflow.plan.reasons import Reason, reasons
from quantflow.plan.text import counted_text, estimated_text
from quantflow.plan.work import Cost, Work
from quantflow.recipe.schema import Recipe
from quantflow.source.params import SourceParams
from quantflow.source.uri import parse

NOTHING = Cost(work=Work(), host_bytes=0, disk_bytes=0)
"""What a stage takes whose output is there."""


@dataclass(frozen=True)
class Need:
    """One stage.

    Attributes:
        stage: The stage.
        key: Its address in the store.
        cached: The finished output's folder; None where the stage has to run.
        reasons: Why it has to run; empty where it has not.
        cost: What it takes from its beginning; nothing where it is cached or made by another.
        resumes: Whether it goes on from where an interrupted run was.
    """

    stage: Stage
    key: str
    cached: Path | None
    reasons: tuple[Reason, ...]
    cost: Cost
    resumes: bool = False


@dataclass(frozen=True)
class Needs:
    """A recipe's stages and what their costs go by."""

    facts: Facts
    stages: tuple[Need, ...]

    @property
    def to_run(self) -> tuple[Need, ...]:
        """The stages that are not in the store."""
        return tuple(need for need in self.stages if need.cached is None)


def find_needs(recipe: Recipe, stages: Sequence[Stage], keys: Mapping[str, StageKey], store: Store) -> Needs:
    """Look every stage up and count what the missing ones take.

    Args:
        recipe: A loaded recipe.
        stages: Its stage graph.
        keys: Key of every stage by name.
        store: Where outputs are looked up.

    Raises:
        RecipeError: The model's architecture is not supported.
        StoreError: The store cannot be read.
    """
    again = run_again(stages)
    found = {
        stage.name: None if stage.name in again else store.find(stage.kind, keys[stage.name].key)
        for stage in stages
    }
    cached = {name: stored.folder if stored is not None else None for name, stored in found.items()}
    if all(cached.values()):
        facts = Facts(find_model(parse(recipe.model.source, recipe.base), None, cached["source"]))
        return Needs(facts, tuple(Need(s, keys[s.name].key, cached[s.name], (), NOTHING) for s in stages))
    facts = _facts(recipe, {stage.name: stage for stage in stages}, cached)
    manifests = [manifest for _, manifest in store.objects() if manifest is not None]
    makers: dict[str, str] = {}  # artifacts alike share stages: the first one's makes the output
    needs = []
    for stage in stages:
        key, folder = keys[stage.name], cached[stage.name]
        maker = makers.setdefault(key.key, stage.name)
        if folder is None and maker != stage.name and stage.name not in again:
            needs.append(Need(stage, key.key, None, (Reason(cause="made by", what=maker),), NOTHING))
        else:
            needs.append(_need(stage, key, folder, facts, manifests, store, again=stage.name in again))
    return Needs(facts, tuple(needs))


def _need(
    stage: Stage,
    key: StageKey,
    cached: Path | None,
    facts: Facts,
    manifests: Sequence[Manifest],
    store: Store,
    *,
    again: bool,
) -> Need:
    if cached is not None:
        return Need(stage, key.key, cached, (), NOTHING)
    if again:
        why: tuple[Reason, ...] = (Reason(cause="measured again"),)
    elif store.exists(stage.kind, key.key):
        why = (Reason(cause="damaged", what="output in the store"),)
    else:
        why = reasons(stage, key.made, [manifest for manifest in manifests if manifest.stage == stage.kind])
    resumes = stage.resumable and store.has_progress(key.key)
    return Need(stage, key.key, None, why, cost_of(stage.function, stage.params, facts), resumes)


def _facts(recipe: Recipe, stages: Mapping[str, Stage], cached: Mapping[str, Path | None]) -> Facts:
    source, data = stages["source"].params, stages["data"].params
    assert isinstance(source, SourceParams)
    assert isinstance(data, DataParams)
    model = find_model(parse(recipe.model.source, recipe.base), source.revision, cached["source"])
    finished = cached["data"]
    if finished is not None:
        return Facts(model, counted_text(finished))
    try:
        return Facts(model, estimated_text(data, model.tokenizer))
    except (DataError, OSError) as error:
        return Facts(model, no_text=f"how much text there is: {error}")
