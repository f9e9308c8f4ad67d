"""The command line: parse, call, print, exit code."""

import io
import json
import shlex
import sys
import traceback
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quantflow.commands.clean import clean
from quantflow.commands.compare import compare_runs
from quantflow.commands.decide import approve, waive
from quantflow.commands.doctor import doctor
from quantflow.commands.export import export
from quantflow.commands.history import history
from quantflow.commands.judging import judging
from quantflow.commands.plan import plan
from quantflow.commands.process import discard_output, take_signals
from quantflow.commands.release import publish, rollback, verify_artifact
from quantflow.commands.report import report
from quantflow.commands.runs import runs
from quantflow.commands.runtime import runtime
from quantflow.commands.scan import scan
from quantflow.commands.several import run_all
from quantflow.errors import QuantFlowError, RecipeError
from quantflow.pipeline.deadline import parse_duration
from quantflow.pipeline.run import RunResult
from quantflow.pipeline.run import run as run_recipe
from quantflow.pipeline.several import recipes_in
from quantflow.pipeline.storage import of_storage, storage_error
from quantflow.pipeline.store import WORKSPACE
from quantflow.pipeline.terminal import terminal_for
from quantflow.recipe.json_schema import json_schema
from quantflow.recipe.load import load_recipe
from quantflow.report.terminal import criteria_view, verdict_line
from quantflow.report.terminal_data import data_view, drift_view
from quantflow.report.terminal_spared import spared_view
from quantflow.report.write import report_json

ERROR_EXIT = 2
USAGE_EXIT = RecipeError.exit_code
# What typer makes of an interrupt within a command.
INTERRUPTED = 130
# Typer shows the leaves of its exceptions only; this is the one above all that a wrong command line raises.
UsageError: type[Any] = typer.BadParameter.__mro__[1]
# Wide enough for the criteria table where no terminal says how wide it is.
LOG_WIDTH = 120

app = typer.Typer(
    help="Quantize language models, with the evidence on which to ship or refuse them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"quantflow {version('quantflow')}")
        raise typer.Exit


@app.callback()
def quantflow(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Quantize language models, with the evidence on which to ship or refuse them."""


@app.command()
def run(
    recipes: Annotated[
        list[Path], typer.Argument(help="The recipe, a YAML file; several run one after another.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. data.calibration.windows=8."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print verdict and report path only.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every stored file again and check its hash.")
    ] = False,
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Stop after 90s, 30m, 6h or 1d, resumable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run even where memory or disk seem not to be enough.")
    ] = False,
) -> int:
    """Run a recipe: quantize, measure, judge, report.

    Several recipes share what they have in common; one that fails does not stop the others.

    Exit codes: 0 pass, 1 fail, 2 error or incomplete, 3 inconclusive, 4 recipe or usage invalid. Of several,
    the worst: 2, 4, 1, 3, 0.
    """
    given = tuple(overrides or ())
    limit = parse_duration(time_limit) if time_limit else None
    terminal = partial(terminal_for, quiet=quiet)

    def run_one(recipe: Path, seconds: float | None) -> RunResult:
        return run_recipe(
            load_recipe(recipe, given),
            terminal=terminal(),
            overrides=given,
            verify=verify,
            time_limit=seconds,
            force=force,
        )

    if len(recipes) > 1:
        return run_all(recipes, run_one, limit, as_json=as_json, quiet=quiet)
    return _told(run_one(recipes[0], limit), as_json=as_json, quiet=quiet)


@app.command()
def gate(
    baseline: Annotated[str, typer.Option(help="The lossless model: what model.source may say.")],
    candidate: Annotated[Path, typer.Option(help="Folder of the artifact to judge, whoever made it.")],
    recipe: Annotated[Path, typer.Option(help="Whose data, gate and runtime hold; not its artifacts.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as for `run`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print verdict and report path only.")] = False,
) -> int:
    """Judge an artifact that is there already against a baseline, by a recipe's data and gate.

    Exit codes: 0 pass, 1 fail, 2 error or incomplete, 3 inconclusive, 4 recipe or usage invalid.
    """
    given = (*(overrides or ()), *judging(baseline, candidate))
    result = run_recipe(load_recipe(recipe, given), terminal=terminal_for(quiet=quiet), overrides=given)
    return _told(result, as_json=as_json, quiet=quiet)


def _told(result: RunResult, *, as_json: bool, quiet: bool) -> int:
    for error in result.errors:
        _complain(str(error))
    if as_json:
        print(report_json(result.report), end="")
    else:
        _show(result, quiet=quiet)
    return result.exit_code


@app.command()
def nightly(
    folder: Annotated[Path, typer.Argument(help="Folder of recipes (*.yaml).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print verdicts and paths only.")] = False,
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Stop all after 90s, 30m, 6h or 1d, resumable."),
    ] = None,
) -> int:
    """Run every recipe of a folder, one after another; the exit code is the worst of theirs."""

    def run_one(recipe: Path, seconds: float | None) -> RunResult:
        return run_recipe(load_recipe(recipe), terminal=terminal_for(quiet=quiet), time_limit=seconds)

    limit = parse_duration(time_limit) if time_limit else None
    return run_all(recipes_in(folder), run_one, limit, as_json=as_json, quiet=quiet)


app.command()(plan)
app.command()(scan)
app.command()(history)
app.command("compare")(compare_runs)
app.command()(approve)
app.command()(waive)
app.command()(export)
app.command()(publish)
app.command()(rollback)
app.command("verify-artifact")(verify_artifact)
app.command()(doctor)
app.command()(clean)
app.command()(runs)
app.command()(report)
app.add_typer(runtime, name="runtime")


@app.command()
def schema() -> int:
    """Print the JSON Schema of recipes, for editors."""
    print(json.dumps(json_schema(), indent=2))
    return 0


def main() -> None:
    """Entry point of the `quantflow` command."""
    take_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter is no reason to fail
    try:
        code = _exit_code()
    except KeyboardInterrupt:  # a further one, while the first was being answered
        code = ERROR_EXIT
    sys.exit(code)


def _exit_code() -> int:
    try:
        code = int(app(standalone_mode=False) or 0)
        sys.stdout.flush()
    except QuantFlowError as error:
        _complain(str(error))
        return error.exit_code
    except UsageError as error:
        _complain(error.format_message())
        return USAGE_EXIT
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (SystemExit, BrokenPipeError):
        # The reader of a pipe has gone; typer would end with 1, which is a verdict's code.
        discard_output(sys.stdout)
        return ERROR_EXIT
    except OSError as error:
        return _storage_failure(error)
    except Exception as error:
        return _unexpected(error)
    if code == INTERRUPTED:
        _complain(_interrupted())
        return ERROR_EXIT
    return code


def _interrupted() -> str:
    if sys.argv[1:2] not in (["run"], ["scan"], ["nightly"], ["gate"]):
        return "interrupted"
    command = shlex.join(["quantflow", *sys.argv[1:]])
    return f"interrupted; what is finished is kept, to the last block or batch.\n  Go on with: {command}"


def _storage_failure(error: OSError) -> int:
    """A disk, a share or a permission, met outside of a run; or standard output itself."""
    if of_storage(error) is None:
        return _unexpected(error)
    if error.filename is None:  # every file is opened by name, and a run explains what it writes to
        discard_output(sys.stdout)
        _complain(
            f"could not write to standard output: {error.strerror}\n"
            "  What was to be said there is lost; what a run made is kept, and its report is in reports/."
        )
        return ERROR_EXIT
    _complain(str(storage_error(error, Path.cwd(), kept="")))
    return ERROR_EXIT


def _unexpected(error: Exception) -> int:
    """A mistake of ours: the trace goes to a file that can be sent to us, finished work stays."""
    name = f"{type(error).__name__}: {error}"
    trace = Path(WORKSPACE) / "traceback.txt"
    try:
        trace.parent.mkdir(exist_ok=True)
        trace.write_text(traceback.format_exc())
        _complain(f"unexpected {name}\n  This is a bug. Finished stages are kept; the trace is in {trace}.")
    except OSError:
        _complain(f"unexpected {name}\n{traceback.format_exc()}")
    return ERROR_EXIT


def _show(result: RunResult, *, quiet: bool) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    if not quiet and result.report.data is not None:
        console.print(data_view(result.report.data.accounting, console.width))
        drift = drift_view(result.report.data)
        if drift is not None:
            console.print(drift)
    spared = None if quiet else spared_view(result.report, console.width)
    if spared is not None:
        console.print(spared)
    if not quiet and result.report.criteria:
        console.print(criteria_view(result.report, console.width))
    if result.verified:
        console.print(result.verified, soft_wrap=True, markup=False)
    console.print(verdict_line(result.report), soft_wrap=True)
    page = result.report_folder / "report.html"
    shown = page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page
    console.print(f"Report: {shown}", soft_wrap=True, markup=False)


def _complain(message: str) -> None:
    try:
        print(f"quantflow: {message}", file=sys.stderr, flush=True)
    except OSError:  # nobody can read it any more; the exit code says the rest
        discard_output(sys.stderr)
