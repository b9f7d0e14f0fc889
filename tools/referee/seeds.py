"""Seeds from one secret: H(secret, phase, round, item). Known to the referee and, one by one, to the reference
worker.
"""

import hashlib
import os


class Seeds:
    """A fresh secret for every judgement."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def of(self, phase: str, round_: int, item: int) -> int:
        text = f"{phase}/{round_}/{item}".encode()
        return int.from_bytes(hashlib.blake2b(text, key=self._secret, digest_size=8).digest(), "big") >> 1

    def many(self, phase: str, round_: int, count: int) -> list[int]:
        return [self.of(phase, round_, item) for item in range(count)]
