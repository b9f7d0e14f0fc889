"""`agent image build|ls|rm`."""

import sys
from pathlib import Path

from agent.judging.tool_runs import Target
from agent.sandbox import image
from agent.ui.console import make_console, safe
from agent.ui.quantities import show_bytes
from agent.ui.tables import print_columns


def run_build(
    target: Target,
    *,
    base_image: str | None,
    wheels: Path | None,
    ca_bundle: Path | None,
    offline: bool,
    network: str | None,
) -> int:
    """The build log goes to stderr; stdout gets the image's name and id."""
    identity = image.build(
        target,
        base_image=base_image,
        wheels=wheels,
        ca_bundle=ca_bundle,
        offline=offline,
        network=network,
        on_line=print_line,
    )
    sys.stdout.write(f"{image.image_name(target)} {identity}\n")
    return 0


def run_list() -> int:
    found = image.images()
    if not found:
        sys.stdout.write("no image yet: agent image build --cpu (or --cuda)\n")
        return 0
    rows = [
        [
            info.name or info.id[:19],
            info.base_image,
            show_bytes(info.size_bytes),
            info.created[:19],
            "" if info.current else "outdated: build it again",
        ]
        for info in found
    ]
    print_columns(make_console(), ("image", "base", "size", "created", ""), rows, right="llrll")
    return 0


def run_remove(names: list[str], *, force: bool) -> int:
    for name in names:
        image.remove(name, force=force)
        sys.stdout.write(f"removed {safe(name)}\n")
    return 0


def print_line(line: str) -> None:
    sys.stderr.write(f"{safe(line)}\n")
    sys.stderr.flush()
