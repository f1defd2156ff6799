"""The command line: ``coursekit`` or ``python -m coursekit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coursekit.diagnose.cli import DiagnoseCliError, diagnose
from coursekit.launch.cli import LaunchCliError
from coursekit.launch.cli import app as launch_app
from coursekit.measure.cli import BenchError, bench
from coursekit.plan.cli import PlanCliError, plan
from coursekit.ranks.cli import app as ranks_app
from coursekit.topology.cli import TopoCliError, topo

# Imports stand in the commands: the help must not wait for what only one of them needs.

NAME = "coursekit"
COLOURS = {"ok": "green", "attention": "yellow", "missing": "red"}

app = typer.Typer(
    name=NAME,
    help="Hands-on multi-GPU communication: real ranks behind a notebook cell.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ranks_app, name="ranks")
app.add_typer(launch_app, name="launch")
app.command()(bench)
app.command()(diagnose)
app.command()(plan)
app.command()(topo)


class UsageError(Exception):
    """A mistake in how a command was called: one line on the terminal, exit code 2."""


@app.callback(invoke_without_command=True)
def coursekit(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Hands-on multi-GPU communication: real ranks behind a notebook cell."""
    if version:
        from importlib.metadata import version as installed

        print(installed(NAME))
        raise typer.Exit


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a screen.")] = False,
) -> None:
    """Tell whether the course can run here, and the next step where something is missing.

    Exit code 0 when it can, 1 when it cannot.
    """
    from coursekit import doctor

    lines = doctor.examine()
    colour = sys.stdout.isatty()
    paint = (lambda state, word: typer.style(word, fg=COLOURS[state])) if colour else None
    print(doctor.as_json(lines) if json else doctor.as_text(lines, paint))
    raise typer.Exit(0 if doctor.can_run(lines) else 1)


@app.command()
def lessons(
    names: Annotated[
        list[str] | None, typer.Argument(help="Such as 00_why; all when none is named.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is stale or breaks a rule.")
    ] = False,
    execute: Annotated[bool, typer.Option(help="Run what changed.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Run everything.")] = False,
) -> None:
    """Build the notebooks from their sources, in English and Chinese.

    Exit code 1 when --check finds something.
    """
    if check and names:
        raise UsageError(f"--check looks at all lessons, got {' '.join(names)}; leave them out")
    from coursekit import lessons

    root = course_root()
    if check:
        problems = lessons.check(root)
        print("\n".join(problems) or "The notebooks fit their sources.")
        raise typer.Exit(1 if problems else 0)
    try:
        written = lessons.build(root, names or None, execute=execute, force=force)
    except lessons.LessonError as error:
        raise UsageError(str(error)) from None
    print("\n".join(f"wrote {path.relative_to(root)}" for path in written) or "Nothing to do.")


def course_root() -> Path:
    """The folder with the lessons: here or above, else where the package was cloned."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[1]):
        if (folder / "notebooks" / "source").is_dir():
            return folder
    raise UsageError("the folder notebooks/source must be here or above; go to your clone first")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1, 2 for a user's mistake, or 130."""
    try:
        code = app(arguments, standalone_mode=False)
    except (
        UsageError,
        BenchError,
        DiagnoseCliError,
        LaunchCliError,
        PlanCliError,
        TopoCliError,
    ) as error:
        return _mistake(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        sys.stdout = None  # nobody reads any more; do not complain at exit
        return 1
    except Exception as error:
        # Typer's own usage errors; their class moved between releases.
        told = getattr(error, "format_message", None)
        if told is None:
            raise
        return _mistake(told())
    return code if isinstance(code, int) else 0


def _mistake(message: str) -> int:
    # A command without arguments has printed its help already and says no more.
    if message:
        print(f"{NAME}: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
