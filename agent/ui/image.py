"""`agent image build|ls|rm`."""

import sys
from pathlib import Path
from typing import Literal

from rich.table import Table

from agent.sandbox import image
from agent.ui.console import make_console, safe
from agent.ui.quantities import show_bytes


def run_build(
    target: Literal["cpu", "cuda"],
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
        on_line=lambda line: print_line(line),
    )
    sys.stdout.write(f"{image.image_name(target)} {identity}\n")
    return 0


def run_list() -> int:
    found = image.images()
    if not found:
        sys.stdout.write("no image yet: agent image build --cpu (or --cuda)\n")
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("image", "base", "size", "created", ""):
        table.add_column(name, no_wrap=True, justify="right" if name == "size" else "left")
    for info in found:
        state = "" if info.current else "outdated: build it again"
        table.add_row(info.name, info.base_image, show_bytes(info.size_bytes), info.created[:19], state)
    make_console().print(table)
    return 0


def run_remove(names: list[str], *, force: bool) -> int:
    for name in names:
        image.remove(name, force=force)
        sys.stdout.write(f"removed {safe(name)}\n")
    return 0


def print_line(line: str) -> None:
    sys.stderr.write(f"{safe(line)}\n")
    sys.stderr.flush()
