"""The emulator: what is right passes, and each kind of fault is found."""

from pathlib import Path

import pytest
import torch
from emulation import HERE, Fault, Library, rewritten

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library({"kernels/faults.cu": (HERE / "faults.cu").read_text()}, tmp_path_factory.mktemp("faults"))


def numbers(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_right_gives_the_same_in_every_order(library: Library, seed: int) -> None:
    x, y = numbers(100), torch.zeros(100)
    library.call("plain", x, y, 100, seed=seed)
    assert torch.equal(x, y)
    library.call("turns", x, y, 1, seed=seed)
    assert torch.equal(y[:64], x[:64].flip(0))
    library.call("sums", x, y, 0, seed=seed)
    assert y[0] == 32 * 33 / 2
    library.call("in_dynamic", x, y, 128, seed=seed)
    assert torch.equal(y[:32], x[:32].reshape(16, 2).flip(1).flatten())
    library.call("wide", x, y, 4, seed=seed)
    assert torch.equal(y[:8], x[4:12])


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("plain", (numbers(99), torch.zeros(200), 2000), "outside of every tensor.* in copy, block"),
        ("plain", (numbers(4096), torch.zeros(90), 4096), "outside of every tensor"),
        ("plain", (numbers(4), torch.zeros(4), 0), "code 9"),
        ("plain", (numbers(4).double(), torch.zeros(4), 4), "argument 1 is torch.float64"),
        ("wide", (numbers(100), torch.zeros(8), 1), "misaligned access in copy_wide, block .*, thread"),
        ("writes_input", (numbers(8),), "a write to an input, in overwrite"),
        ("parts", (torch.zeros(64),), "a barrier that not all threads reach"),
        ("sums", (numbers(32), torch.zeros(1), 1), "a warp function waits for a lane"),
        ("in_dynamic", (numbers(32), torch.zeros(32), 1 << 20), "code 9"),
        ("absent", (), "no launcher absent"),
    ],
)
def test_faults_are_found(library: Library, name: str, arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(Fault, match=words):
        library.call(name, *arguments)


def test_what_depends_on_an_order_differs_with_the_seed(library: Library) -> None:
    for name, arguments in (("turns", (numbers(64), 0)), ("racing", ())):
        found = set()
        for seed in range(4):
            y = torch.full((64,), float("nan"))
            library.call(name, *arguments[:1], y, *arguments[1:], seed=seed)
            found.add(tuple(y.nan_to_num(-1.0).tolist()))
        assert len(found) > 1, name


def test_launches_become_calls() -> None:
    text = rewritten("a<1, (2 > 1)><<<grid, dim3(4, 2), 0, s>>>(x, f(y));\nb<<<1, 2>>>( );")
    assert '::emu::Launch(1, 2).run("b", b );' in text
    assert '::emu::Launch(grid, dim3(4, 2), 0, s).run("a<1, (2 > 1)>", a<1, (2 > 1)>, x, f(y));' in text


def test_sources_that_do_not_compile_say_so(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="nonsense"):
        Library({"kernels/bad.cu": "nonsense;\n"}, tmp_path)
