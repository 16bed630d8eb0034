# SPDX-License-Identifier: BSD-3-Clause
"""What runs elsewhere: the Dockerfile, the conda recipe, the workflow that users copy,
and the one that publishes.

What is checked is that versions, names, files and commands are those of the package,
and that rattler-build understands the recipe.  tests/multi/test_image.py builds the
image; workflows do not run here.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from distlite import __version__
from distlite.launch.command import COMMANDS
from distlite.launch.options import parse
from distlite.tools import doctor

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "packaging" / "Dockerfile").read_text()
IGNORED = (ROOT / "packaging" / "Dockerfile.dockerignore").read_text()
CONDA = ROOT / "packaging" / "conda"
VERSION = ROOT / "packaging" / "version"
RECIPE = (CONDA / "recipe.yaml").read_text()
EXAMPLE = (ROOT / "examples" / "github-actions.yml").read_text()
WORKFLOWS = {
    path.stem: path.read_text() for path in ROOT.glob(".github/workflows/*.yml")
}
# What a wheel is built from.
SOURCES = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "csrc", "python"}


def instructions() -> list[tuple[str, str]]:
    """Each with its arguments, in the order of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    words = [line.split(None, 1) for line in lines if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in words]


def arguments_of(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def listed(section: str) -> list[str]:
    """The items of a list of the recipe."""
    items = r"( +)- .*\n(?:\2- .*\n)*"
    found = re.search(rf"^[ -]*{section}:\n({items})", RECIPE, re.MULTILINE)
    assert found is not None, section
    return [line.strip().removeprefix("- ") for line in found[1].splitlines()]


def check_command(line: str, folder: Path) -> None:
    """A command of ours has to be one, with options that it has."""
    words = shlex.split(line)
    if words[0] != "distlite":
        assert words[0] in ("pip", "pytest"), line
        return
    name, rest = words[1], words[2:]
    if name == "run":
        for word in rest:
            if word.endswith(".py"):
                (folder / word).touch()
        assert parse(rest).nproc_per_node > 1
    elif name == "doctor":
        doctor._parser().parse_args(rest)
    else:
        assert name == "--version" or name in COMMANDS, line


def commands() -> list[str]:
    runs = re.findall(r"^ +- run: (.*)$", EXAMPLE, re.MULTILINE)
    assert len(runs) == EXAMPLE.count("run: ")
    shown = re.search(r"^#   docker run .* distlite (.*)$", DOCKERFILE, re.MULTILINE)
    assert shown is not None
    cmd = " ".join(re.findall(r'"(.*?)"', arguments_of("CMD")[0]))
    return [*runs, *listed("script"), f"distlite {shown[1]}", f"distlite {cmd}"]


@pytest.mark.parametrize("line", commands())
def test_a_command_exists(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_command(line, tmp_path)


def test_the_image_is_built_from_what_the_wheel_is():
    copied = {word for rest in arguments_of("COPY") for word in shlex.split(rest)[:-1]}
    assert copied == SOURCES
    assert all((ROOT / name).exists() for name in copied)
    kept = [line[1:] for line in IGNORED.splitlines() if line.startswith("!")]
    assert set(kept) == SOURCES
    away = [line for line in IGNORED.splitlines() if line.startswith("**/")]
    assert any(fnmatch("python/distlite/_C.so", pattern) for pattern in away)


def as_conda(requirement: str) -> str:
    """ "numpy>=2.0" as "numpy >=2.0"."""
    name, version = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
    return f"{name} {version}".strip()


def test_the_recipe_requires_what_the_project_does():
    host, run = listed("host"), listed("run")
    for requirement in PROJECT["build-system"]["requires"]:
        assert as_conda(requirement) in host
    for requirement in PROJECT["project"]["dependencies"]:
        assert as_conda(requirement) in run
    assert f"python {PROJECT['project']['requires-python']}" in run
    assert "libuv" in host and "libuv" in run
    assert "pkg-config" in listed("build")


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64"])
def test_the_recipe_renders(platform, monkeypatch):
    shown = subprocess.run([VERSION], capture_output=True, text=True, check=True)
    monkeypatch.setenv("DISTLITE_VERSION", shown.stdout.strip())
    rattler = pytest.importorskip("rattler_build")
    places = rattler.PlatformConfig(
        target_platform=platform, build_platform="linux-64", host_platform=platform
    )
    recipe = rattler.Stage0Recipe.from_file(CONDA / "recipe.yaml")
    variants = rattler.VariantConfig.from_file(CONDA / "variants.yaml")
    (rendered,) = recipe.render(variants, rattler.RenderConfig(places))
    facts = rendered.recipe.to_dict()
    assert facts["package"] == {"name": "distlite", "version": __version__}
    assert facts["build"]["string"].startswith("py312")
    build = facts["requirements"]["build"]
    assert {f"gcc_{platform}", f"sysroot_{platform} 2.28.*"} < set(build)
    imports, commands = facts["tests"]
    assert imports["python"]["imports"] == listed("imports")
    assert commands["script"] == listed("script")


def test_the_supported_versions_have_wheels_and_are_in_the_manual():
    named = [each.rsplit(" ", 1)[1] for each in PROJECT["project"]["classifiers"]]
    supported = [each for each in named if re.fullmatch(r"3\.\d+", each)]
    assert PROJECT["project"]["requires-python"] == f">={supported[0]}"
    manual = (ROOT / "docs" / "platforms.md").read_text()
    assert f"CPython {supported[0]} to {supported[-1]}" in manual
    patterns = PROJECT["tool"]["cibuildwheel"]["build"]
    for each in supported:
        name = f"cp{each.replace('.', '')}-manylinux_x86_64"
        assert any(fnmatch(name, pattern) for pattern in patterns), name


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_do_little_and_pin_what_they_use(name):
    text = WORKFLOWS[name]
    assert "\npermissions:\n  contents: read\n" in text
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action


def test_wheels_are_published_with_the_tool_that_is_tried_here():
    tool = re.search(r"cibuildwheel==\S+", (ROOT / "Makefile").read_text())
    assert tool and f"pipx run {tool[0]} " in WORKFLOWS["release"]
