"""The command line: commands, their options and their exit codes; everything else is imported when a command runs."""

import contextlib
import errno
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from agent.commands import bench, collect, export, models, rejudge, tasks, view
from agent.errors import EXIT_USAGE, AgentError, ConfigError
from agent.ui.console import prepare_streams, print_error, silence
from agent.ui.options import (
    ConfigOption,
    ConsentOption,
    DebugOption,
    ImageTarget,
    PolicyOption,
    PrecisionOption,
    RewardOption,
    SandboxOption,
    SearchKind,
    SetOption,
    TargetOption,
    ToolProtocol,
    judging_flags,
)

# The classes of the parser's errors have moved between releases; BadParameter is public in all of them.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]
EXIT_INTERRUPTED: Final = 130
_ANNOUNCED: Final = frozenset({"optimize", "collect", "bench", "rejudge", "export", "models", "tasks"})
# What standard output on a full disk raises, without a file's name.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


app = typer.Typer(
    name="agent",
    help="A language model turns a PyTorch model.py into faster kernels, and has to prove it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
image_app = typer.Typer(help="The Docker image that sandboxes run in.", no_args_is_help=True)
sandbox_app = typer.Typer(help="Sandboxes that runs on this machine have left behind.", no_args_is_help=True)
app.add_typer(image_app, name="image")
app.add_typer(sandbox_app, name="sandbox")


@app.command()
def optimize(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL.py", help="class Model, get_inputs(), get_init_inputs()")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="auto, builtin, local, replay, a name from `agent models`, or module:Class.", metavar="NAME"),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option("--model", help="Name of the model at the server; a GGUF file for local.", metavar="NAME"),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(help="Root of an OpenAI-compatible API.", metavar="URL"),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Variable that holds the key.", metavar="VARIABLE"),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option(help="Replay a run folder or a hand-written script.", metavar="PATH"),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The model's window in tokens: 4096, 32k; 0: unknown.", metavar="COUNT")
    ] = None,
    tool_protocol: Annotated[
        ToolProtocol | None,
        typer.Option(help="How the model calls actions: native calls, fenced text, or one JSON object."),
    ] = None,
    target: TargetOption = None,
    policy: PolicyOption = None,
    precision: PrecisionOption = None,
    reward: RewardOption = None,
    sandbox: SandboxOption = None,
    consent: ConsentOption = False,
    turns: Annotated[int | None, typer.Option(help="Turns of the model; 0: no limit.", min=0, metavar="N")] = None,
    time: Annotated[
        str | None,
        typer.Option(help="90, 15m, 1h30m; 0: no limit.", metavar="DURATION"),
    ] = None,
    tokens: Annotated[str | None, typer.Option(help="500k, 2M; 0: no limit.", metavar="COUNT")] = None,
    cost: Annotated[
        float | None,
        typer.Option(help="US dollars; 0: no limit.", min=0, metavar="USD"),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Tries in all.", min=1, metavar="N")] = None,
    search: Annotated[
        SearchKind | None,
        typer.Option(help="best-of: the best try is judged again; beam: in rounds that start from the best so far."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Tries side by side.", min=1, metavar="W")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run or a search that was cut off or stopped.")
    ] = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Ask before each action.")] = False,
    settings: SetOption = None,
    config: ConfigOption = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="RUNS", help="Folder for runs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One event per line, then a result object.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="The final table only.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines in a terminal too.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print the diff of each edit.")] = False,
    debug: DebugOption = False,
) -> int:
    """Let a language model write faster kernels for MODEL.py, judge them, and report.

    Exit code: 0 verified and faster, 1 not, 2 usage, 3 infrastructure.
    """
    from agent.ui.optimize import Request, run_optimize
    from agent.ui.quantities import parse_count, parse_duration

    flags: dict[str, Any] = {
        "backend.name": backend,
        "backend.model": model_name,
        "backend.base_url": base_url,
        "backend.api_key_env": api_key_env,
        "backend.script": script,
        "backend.context_tokens": None if context is None else parse_count(context, flag="--context"),
        "backend.tool_protocol": tool_protocol,
        **judging_flags(target, policy, precision, reward, sandbox, consent),
        "limits.turns": turns,
        "limits.time_s": None if time is None else parse_duration(time),
        "limits.tokens": None if tokens is None else parse_count(tokens),
        "limits.cost_usd": cost,
        "run.output": output,
        "run.samples": samples,
        "search.kind": search,
        "search.workers": workers,
        "run.confirm": confirm or None,
    }
    style: Literal["auto", "plain", "quiet", "json"] = (
        "json" if json else "quiet" if quiet else "plain" if plain else "auto"
    )
    request = Request(
        model=model,
        resume=resume,
        files=tuple(config or ()),
        settings=tuple(settings or ()),
        flags=flags,
        style=style,
        diff=diff,
    )
    return run_optimize(request)


@app.command()
def judge(
    submission: Annotated[
        list[Path], typer.Argument(metavar="WORKSPACE | MODEL.py MODEL_NEW.py", help="What is to be judged.")
    ],
    target: TargetOption = None,
    policy: PolicyOption = None,
    precision: PrecisionOption = None,
    reward: RewardOption = None,
    sandbox: SandboxOption = None,
    consent: ConsentOption = False,
    settings: SetOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object: the verdict.")] = False,
    debug: DebugOption = False,
) -> int:
    """Build, check and time a submission in a fresh sandbox.

    Exit code: 0 accepted, 1 rejected, 2 usage, 3 infrastructure or a task that cannot be judged.
    """
    from agent.ui.judge import run_judge

    flags = judging_flags(target, policy, precision, reward, sandbox, consent)
    return run_judge(submission, files=tuple(config or ()), settings=tuple(settings or ()), flags=flags, json=json)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs: the newest.")],
    turn: Annotated[str | None, typer.Option("--turn", metavar="N|A-B", help="These turns only.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Everything in full, outputs from logs/.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Edits as diffs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The selected events, one per line.")] = False,
    debug: DebugOption = False,
) -> int:
    """Replay a run's log in the terminal: reasoning, actions, observations, verdicts."""
    from agent.ui.show import run_show

    return run_show(run, turns=turn, full=full, diff=diff, json=json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    debug: DebugOption = False,
) -> int:
    """Make report.md and report.html of a run again from its log."""
    from agent.ui.report import run_report

    return run_report(run)


@app.command()
def doctor(
    sandbox: SandboxOption = None,
    target: TargetOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out compilers' and profilers' layers.")] = False,
    patience: Annotated[
        float, typer.Option(min=0, metavar="S", help="For the layers of one sandbox (45 for target cuda, 240 for cpu).")
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    debug: DebugOption = False,
) -> int:
    """Check what `agent optimize` needs on this machine, and say what to do about what is missing.

    Exit code: 0 when `agent optimize` could run, 3 otherwise.
    """
    from agent.ui.doctor import Thoroughness, run_doctor

    flags = {"sandbox.kind": sandbox, "judge.target": target}
    how = Thoroughness(quick=quick, patience_s=patience)
    return run_doctor(files=tuple(config or ()), settings=tuple(settings or ()), flags=flags, json=json, how=how)


for command in (collect, bench, rejudge, export, tasks, view, models):
    command.register(app)


@app.command()
def version() -> int:
    """Print the version."""
    _say_version()
    return 0


def _say_version() -> None:
    from agent import __version__

    sys.stdout.write(f"cuda-agent {__version__}\n")


def _version_asked(asked: bool) -> None:
    if asked:
        _say_version()
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version_asked, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@image_app.command("build")
def image_build(
    cpu: Annotated[bool, typer.Option("--cpu", help="For target cpu: a slim Debian.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", help="For target cuda: NVIDIA's CUDA devel image.")] = False,
    target: Annotated[ImageTarget | None, typer.Option(help="The same as --cpu or --cuda.")] = None,
    base_image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Another base image, Debian or Ubuntu with Python >= 3.11.")
    ] = None,
    wheels: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of wheels that pip looks into first.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use the wheel folder only, no package index.")] = False,
    ca_bundle: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA certificates for the build; they do not stay in the image.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="MODE", help="Network of the build, for instance host.")
    ] = None,
    debug: DebugOption = False,
) -> int:
    """Build the sandbox image with the Docker engine; the build log goes to standard error."""
    from agent.ui.image import run_build

    chosen = {name for name, given in (("cpu", cpu), ("cuda", cuda), (target, target)) if given}
    if len(chosen) != 1:
        raise ConfigError("give one of --cpu and --cuda")
    return run_build(
        "cpu" if chosen == {"cpu"} else "cuda",
        base_image=base_image,
        wheels=wheels,
        ca_bundle=ca_bundle,
        offline=offline,
        network=network,
    )


@image_app.command("ls")
def image_list(debug: DebugOption = False) -> int:
    """List the sandbox images."""
    from agent.ui.image import run_list

    return run_list()


@image_app.command("rm")
def image_remove(
    names: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Name or id, as `agent image ls` shows it.")],
    force: Annotated[bool, typer.Option("--force", help="Even where a container uses it.")] = False,
    debug: DebugOption = False,
) -> int:
    """Remove sandbox images."""
    from agent.ui.image import run_remove

    return run_remove(names, force=force)


@sandbox_app.command("ls")
def sandbox_list(debug: DebugOption = False) -> int:
    """List sandboxes: those in use, and those that a dead process left behind."""
    from agent.ui.sandboxes import run_list

    return run_list()


@sandbox_app.command("clean")
def sandbox_clean(
    older_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only those made longer ago, for instance 2h.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those whose owner may be alive: this ends running episodes.")
    ] = False,
    debug: DebugOption = False,
) -> int:
    """Remove sandboxes that a dead process left behind."""
    from agent.ui.sandboxes import run_clean

    return run_clean(older_than=older_than, everything=everything)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error that a person can do something about is one clear line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    told: list[int] = []
    before = _leave_when_told(told)
    try:
        return _exit_code(app(arguments, prog_name="agent", standalone_mode=False))
    except AgentError as error:
        return _failed(error, arguments)
    except _ParserError as error:
        return _usage(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = 128 + told[0] if told else EXIT_INTERRUPTED
        _announce("interrupted", "", code, arguments)
        sys.stderr.write("interrupted\n")
        return code
    except Exception as error:  # noqa: BLE001 - the last edge: a fault of this program, or a reader that went away
        return _fault(error, arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _flush()


def _leave_when_told(told: list[int]) -> dict[int, Any]:
    """SIGTERM and SIGHUP end a command as ^C does, so that it cleans up; a command with better handlers sets its own.
    Returns what to put back; the signal that came goes into `told`.
    """

    def leave(number: int, frame: Any) -> None:
        told.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        return {}
    unset = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    return {number: signal.signal(number, leave) for number in unset}


def _failed(error: AgentError, arguments: Sequence[str]) -> int:
    _announce(error.message, error.hint, error.exit_code, arguments)
    print_error(error, debug="--debug" in arguments)
    return error.exit_code


def _announce(message: str, hint: str, code: int, arguments: Sequence[str]) -> None:
    """What a program that reads --json gets instead of a result."""
    if not _ANNOUNCED.intersection(arguments[:1]) or "--json" not in arguments:
        return
    import json

    data = {"type": "error", "message": message, "hint": hint, "exit_code": code}
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(data) + "\n")


def _fault(error: Exception, arguments: Sequence[str]) -> int:
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        silence(sys.stdout)
        return 1
    known = isinstance(error, OSError) and (error.filename or error.errno in _FULL)
    what = str(error) if known else f"this is a fault in cuda-agent: {type(error).__name__}: {error}"
    wrapped = AgentError(" ".join(what.split()), hint="" if known else "--debug shows where; please report it")
    wrapped.__cause__ = error
    return _failed(wrapped, arguments)


def _exit_code(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _usage(error: Any, arguments: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "agent"
    message = error.format_message()
    if message.startswith("Usage:"):  # a group without a command: the message is its help
        sys.stderr.write(f"{message}\n")
    else:
        _failed(ConfigError(message, hint=f"{command} --help lists what there is"), arguments)
    return EXIT_USAGE


def _flush() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        silence(sys.stdout)
