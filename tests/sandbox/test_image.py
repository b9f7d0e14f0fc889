"""The image builder: its inputs, its build context, a real build, what is listed and removed."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_kinds import require

from agent.errors import ConfigError, SandboxError
from agent.sandbox import image

BASE = "cuda-agent-sandbox:cpu"


@pytest.mark.parametrize("problem", ["wheels", "ca", "offline", "no torch"])
def test_inputs_that_cannot_work_are_refused_before_anything_is_sent(problem: str, tmp_path: Path) -> None:
    arguments = {
        "wheels": {"wheels": tmp_path / "none"},
        "ca": {"ca_bundle": tmp_path / "none"},
        "offline": {"offline": True},
        "no torch": {"offline": True, "wheels": tmp_path},
    }[problem]
    with pytest.raises(ConfigError):
        image.build("cpu", **arguments)


def test_the_context_holds_the_dockerfile_wheels_and_certificates_only(tmp_path: Path) -> None:
    (tmp_path / "torch-1.whl").write_bytes(b"w")
    (tmp_path / "secret.txt").write_text("s")
    bundle = tmp_path / "bundle.crt"
    bundle.write_text("pem")
    out = io.BytesIO()
    image._write_context(out, wheels=tmp_path, ca_bundle=bundle)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        names = {member.name for member in tar if member.isfile()}
        dockerfile = tar.extractfile("Dockerfile")
        assert dockerfile is not None and b"ARG BASE_IMAGE" in dockerfile.read()
    assert names == {"Dockerfile", "wheels/.keep", "ca/.keep", "wheels/torch-1.whl", "ca/bundle.pem"}


def test_the_recipe_follows_base_and_target() -> None:
    hashes = {image.recipe_hash("cpu"), image.recipe_hash("cuda"), image.recipe_hash("cpu", base_image="other")}
    assert len(hashes) == 3


def test_indexes_on_the_hosts_disk_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "file:///somewhere/simple")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    assert image._forwarded().get("https_proxy") == "http://127.0.0.1:3128"
    assert "PIP_INDEX_URL" not in image._forwarded()


@pytest.fixture
def throwaway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A small Dockerfile and a repository name of its own, so that a real build takes a second and replaces nothing."""
    require("docker")
    folder = tmp_path / "sandbox_image"
    folder.mkdir()
    monkeypatch.setattr(image, "asset", lambda name: folder)
    monkeypatch.setattr(image, "REPOSITORY", "cuda-agent-test")
    yield folder / "Dockerfile"
    subprocess.run(["docker", "image", "rm", "-f", "cuda-agent-test:cpu"], capture_output=True)


@pytest.mark.docker
def test_a_build_streams_its_log_and_is_listed_and_removed(throwaway: Path) -> None:
    throwaway.write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nUSER 0\nCOPY wheels/ /w/\nRUN echo step-$((20+3))\n")
    lines: list[str] = []
    identity = image.build("cpu", base_image=BASE, network="host", on_line=lines.append)
    assert any("step-23" in line for line in lines)
    mine = [entry for entry in image.images() if entry.name == "cuda-agent-test:cpu"]
    assert [(entry.id, entry.target, entry.base_image, entry.current) for entry in mine] == [
        (identity, "cpu", BASE, True)
    ]
    assert image.is_current("cpu", base_image=BASE)
    throwaway.write_text(throwaway.read_text() + "RUN true\n")
    assert not image.is_current("cpu", base_image=BASE)
    image.remove("cuda-agent-test:cpu")
    assert not [entry for entry in image.images() if entry.name == "cuda-agent-test:cpu"]


@pytest.mark.docker
def test_a_step_that_fails_is_an_error_that_names_it(throwaway: Path) -> None:
    throwaway.write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo before && exit 9\n")
    with pytest.raises(SandboxError, match="returned a non-zero code: 9"):
        image.build("cpu", base_image=BASE)


@pytest.mark.docker
def test_foreign_images_are_not_removed() -> None:
    require("docker")
    with pytest.raises((ConfigError, SandboxError)):
        image.remove("cuda-agent-base:bookworm")
    with pytest.raises(SandboxError):
        image.remove("no-such-image:1")
