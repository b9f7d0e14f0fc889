"""`agent models`: providers and servers that are known by name, what a server has, and whether a model can be used."""

from typing import Annotated, Any

import typer

from agent.ui.options import ConfigOption, DebugOption, SetOption, ToolProtocol

BackendOption = Annotated[str | None, typer.Option(help="A name from `agent models`, or local.", metavar="NAME")]
UrlOption = Annotated[str | None, typer.Option(help="Root of an OpenAI-compatible API.", metavar="URL")]
KeyOption = Annotated[str | None, typer.Option(help="Variable that holds the key.", metavar="VARIABLE")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Language models: who can be asked, what they have, and whether one works.")
    app.add_typer(group, name="models")

    @group.callback(invoke_without_command=True)
    def models(
        context: typer.Context,
        backend: BackendOption = None,
        base_url: UrlOption = None,
        api_key_env: KeyOption = None,
        settings: SetOption = None,
        config: ConfigOption = None,
        json: JsonOption = False,
        debug: DebugOption = False,
    ) -> int:
        """List providers and servers; with --backend or --base-url the models that this one has.

        Exit code: 0, 2 usage, 3 when the server cannot be asked.
        """
        if context.invoked_subcommand is not None:
            return 0
        from agent.ui.models import run_models

        flags = _flags(backend, base_url, api_key_env)
        return run_models(files=tuple(config or ()), settings=tuple(settings or ()), flags=flags, json=json)

    @group.command("test")
    def test(
        name: Annotated[
            str | None,
            typer.Argument(metavar="NAME", help="MODEL, PROVIDER/MODEL or a GGUF file; default: agent.toml's."),
        ] = None,
        backend: BackendOption = None,
        base_url: UrlOption = None,
        api_key_env: KeyOption = None,
        tool_protocol: Annotated[ToolProtocol | None, typer.Option(help="How the model calls actions.")] = None,
        settings: SetOption = None,
        config: ConfigOption = None,
        json: JsonOption = False,
        debug: DebugOption = False,
    ) -> int:
        """Ask a model for one tool call, answer it, and show what came of it: one small paid request or two.

        Exit code: 0 it can be used, 2 usage, 3 it cannot.
        """
        from agent.ui.models import run_test

        flags = {**_flags(backend, base_url, api_key_env), "backend.tool_protocol": tool_protocol}
        return run_test(name, files=tuple(config or ()), settings=tuple(settings or ()), flags=flags, json=json)


def _flags(backend: str | None, base_url: str | None, api_key_env: str | None) -> dict[str, Any]:
    return {"backend.name": backend, "backend.base_url": base_url, "backend.api_key_env": api_key_env}
