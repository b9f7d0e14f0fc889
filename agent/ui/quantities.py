"""Durations, counts, money and speed-ups: how people write them on the command line and how they are shown."""

import math
import re
from typing import Final

from agent.errors import ConfigError
from agent.judging.reports import Speedup

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_FACTORS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def parse_duration(text: str, *, flag: str = "--time") -> float:
    """Seconds from `90`, `15m`, `1h30m`. Raises ConfigError."""
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return float(compact)
    if not _DURATION.fullmatch(compact):
        raise ConfigError(f"{flag} {text!r} is not a duration", hint="write seconds (90) or 45s, 15m, 1h30m, 2d")
    return sum(float(part[:-1]) * _UNITS_S[part[-1]] for part in re.findall(r"\d+(?:\.\d+)?[smhd]", compact))


def parse_count(text: str, *, flag: str = "--tokens") -> int:
    """A whole number from `200000`, `500k`, `1.5M`. Raises ConfigError."""
    match = _COUNT.fullmatch(text.replace("_", "").replace(" ", ""))
    if not match:
        raise ConfigError(f"{flag} {text!r} is not a count", hint="write 200000, 500k or 1.5M")
    return round(float(match[1]) * _FACTORS[match[2].lower()])


def show_duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `4:05`, `1:02:03`; `–` for what a damaged log holds instead of a time."""
    if not math.isfinite(seconds):
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_count(number: int) -> str:
    """`950`, `12.3k`, `1.25M`."""
    if number < 1_000:
        return str(number)
    if number >= 10**15:  # a damaged log; a float might not hold it
        return "over 1e15"
    return f"{number / 1_000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.2f}M"


def show_bytes(number: int) -> str:
    """`950 B`, `12.3 kB`, `1.2 GB`."""
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            break
        size /= 1_000
    return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"


def show_cost(cost_usd: float | None) -> str:
    """Dollars, or that the price is not known: an unknown price is never shown as zero."""
    if cost_usd is None:
        return "no price"
    return f"${cost_usd:.2f}" if cost_usd >= 1 or cost_usd == 0 else f"${cost_usd:.4f}"


def show_us(time_us: float | None) -> str:
    """Microseconds with the unit that keeps three digits: `8.31 µs`, `1.20 ms`; `–` where not measured."""
    if time_us is None:
        return "–"
    value, unit = (time_us, "µs") if time_us < 1_000 else (time_us / 1_000, "ms")
    if value >= 1_000:
        value, unit = value / 1_000, "s"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"


def show_ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


def show_speedup(speedup: Speedup | None) -> str:
    """Ratio and 95 % interval: `1.93× (1.88–1.97)`."""
    return "–" if speedup is None else f"{speedup.ratio:.2f}× ({speedup.low:.2f}–{speedup.high:.2f})"
