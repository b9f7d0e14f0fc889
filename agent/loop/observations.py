"""Shortens what a command printed to what the model is shown: head and tail, with the number of characters left out."""

from dataclasses import dataclass

from agent.sandbox.base import Output


@dataclass(frozen=True)
class Excerpt:
    """`omitted` characters between head and tail are not shown; bytes that were never decoded count as one each."""

    head: str
    tail: str
    omitted: int


def excerpt(output: Output, *, limit: int) -> Excerpt:
    """Everything when it fits in `limit` characters; else half of them from either end."""
    head = output.head.decode("utf-8", "replace")
    tail = output.tail.decode("utf-8", "replace")
    if not output.omitted:
        return excerpt_text((output.head + output.tail).decode("utf-8", "replace"), limit=limit)
    half = limit // 2
    kept_head, kept_tail = head[:half], tail[-half:]
    return Excerpt(kept_head, kept_tail, output.omitted + len(head) + len(tail) - len(kept_head) - len(kept_tail))


def excerpt_text(text: str, *, limit: int) -> Excerpt:
    if len(text) <= limit:
        return Excerpt(text, "", 0)
    half = limit // 2
    return Excerpt(text[:half], text[-half:], len(text) - 2 * half)
