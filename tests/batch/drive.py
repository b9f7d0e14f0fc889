"""The command line with `collect` in it, as a program of its own: to be signalled and killed by tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agent.cli import app, main

if not any(command.name == "collect" for command in app.registered_commands):
    from agent.commands.collect import register

    register(app)

if __name__ == "__main__":
    sys.exit(main())
