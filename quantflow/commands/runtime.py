"""`quantflow runtime`: install, list and remove the runtimes that models can be measured in."""

import json
from typing import Annotated, Literal

import typer
from rich.console import Console

from quantflow.plan.size import readable
from quantflow.runtime.environment import device_here, install, installed, remove
from quantflow.runtime.environment import runtimes_folder as folder_of_runtimes

runtime = typer.Typer(
    help="Install, list and remove the runtimes that models can be measured in, beside torch.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@runtime.command("install")
def install_runtime(
    name: Annotated[Literal["vllm"], typer.Argument(help="The runtime: vllm.")],
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option("--device", help="What it is to compute on; auto is the GPU if there is one."),
    ] = "auto",
    extra_index: Annotated[
        str | None,
        typer.Option("--extra-index", metavar="URL", help="Another package index that pip may use."),
    ] = None,
) -> int:
    """Install a runtime into an environment of its own, in your cache folder; kept until removed.

    Interrupted, the same command goes on.
    """
    console = Console(stderr=True, highlight=False)
    chosen = device_here(device)
    with console.status(f"installing {name} for {chosen}") as status:

        def say(line: str) -> None:
            if console.is_terminal:
                status.update(line[: console.width - 4])
            else:
                console.print(line, markup=False, soft_wrap=True)

        made = install(name, chosen, say, extra_index=extra_index)
    print(f"{made.name}: ready, {readable(made.record.bytes)} in {made.folder}")
    return 0


@runtime.command("list")
def list_runtimes(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> int:
    """List what is installed."""
    found = installed()
    if as_json:
        records = [
            {"name": name, "record": record.model_dump(mode="json") if record else None}
            for name, record in found
        ]
        print(json.dumps({"folder": str(folder_of_runtimes()), "runtimes": records}, indent=2))
        return 0
    for name, record in found:
        if record is None:
            print(f"{name}: not finished; `quantflow runtime install` goes on, `remove {name}` gives up")
        else:
            print(f"{name}: {readable(record.bytes)}, Python {record.python}")
    if not found:
        print("No runtime is installed; torch needs none. `quantflow runtime install vllm` installs vLLM.")
    return 0


@runtime.command("remove")
def remove_runtime(name: Annotated[str, typer.Argument(help="As `quantflow runtime list` has it.")]) -> int:
    """Remove a runtime and free its disk."""
    remove(name)
    print(f"{name}: removed")
    return 0
