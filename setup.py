# SPDX-License-Identifier: BSD-3-Clause
"""Builds the one extension, distlite._C.

Environment switches: DISTLITE_SANITIZE=address,undefined|thread, DISTLITE_DEBUG=1,
DISTLITE_COVERAGE=1, DISTLITE_NO_LIBUV=1, DISTLITE_WERROR=1. libuv is found by
pkg-config; without it the store server on epoll takes the place of the one on libuv.
DISTLITE_REPOSITORY is the address that the package's metadata links to.
"""

import os
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The script writes the docstrings of the stub into a header in the build's folder.
STUB = "python/distlite/_C.pyi"
DOCSTRINGS = "csrc/python/module/docstrings.py"

CORE_FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-fvisibility=hidden",
    "-pthread",
    # Ranks with different instruction sets compute the same bits.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wno-sign-conversion",
]


def pkg_config(*query: str) -> list[str] | None:
    command = [os.environ.get("PKG_CONFIG", "pkg-config"), *query, "libuv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.split()


def switched(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


# gcc clears and copies structs of more than 64 bytes on x86 with instructions that take
# 30 cycles to begin (rep stos), a few of them in every call.  Clearing by vectors takes
# half the instructions of clearing by words; copying does not, as what is copied was
# mostly written by words just before.
TUNING = [
    "-mmemset-strategy=vector_loop:256:noalign,libcall:-1:noalign",
    "-mmemcpy-strategy=unrolled_loop:256:noalign,libcall:-1:noalign",
]


def accepts(compiler: list[str], flag: str) -> bool:
    """Returns whether the compiler knows the flag; clang, for one, does not."""
    command = [*compiler, flag, "-Werror", "-xc", "-fsyntax-only", os.devnull]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def check_libc() -> None:
    """Ends the build with an explanation on an unsupported system, where otherwise the
    compiler or, worse, the user's program would fail."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        libc = None
    if not libc:
        sys.exit(
            "distlite supports Linux with glibc, and not musl (Alpine), macOS or "
            "Windows; please use an image of Debian, Ubuntu or Fedora"
        )


def extension() -> Extension:
    sources = sorted(str(path) for path in Path("csrc").rglob("*.c"))
    # Python's own flags ask for debug information, which is four fifths of the file.
    compile_args = [*CORE_FLAGS, "-O3", "-g0"]
    link_args = ["-pthread", "-ldl"]
    libuv_cflags = None if switched("DISTLITE_NO_LIBUV") else pkg_config("--cflags")
    if libuv_cflags is not None:
        compile_args += ["-DDL_HAVE_LIBUV=1", *libuv_cflags]
        link_args += pkg_config("--libs") or []
    if switched("DISTLITE_DEBUG"):
        compile_args += ["-O0", "-g3", "-UNDEBUG"]
    sanitize = os.environ.get("DISTLITE_SANITIZE")
    # With sanitizers gcc warns about paths that cannot be taken.
    if switched("DISTLITE_WERROR") and not sanitize:
        compile_args += ["-Werror"]
    if switched("DISTLITE_COVERAGE"):
        compile_args += ["--coverage", "-O0"]
        link_args += ["--coverage"]
    if sanitize:
        flags = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g"]
        compile_args += [*flags, "-O1"]
        link_args += flags
    return Extension(
        "distlite._C",
        sources,
        include_dirs=["csrc"],
        # -isystem: no warnings about conversions in NumPy's headers.
        extra_compile_args=[*compile_args, "-isystem", numpy.get_include()],
        extra_link_args=link_args,
        depends=[*map(str, Path("csrc").rglob("*.h")), STUB, DOCSTRINGS],
    )


class ParallelBuild(build_ext):
    """Compiles the files of an extension side by side, one per usable core."""

    def build_extensions(self) -> None:
        check_libc()
        compiler = self.compiler.compiler_so
        tuning = [flag for flag in TUNING if accepts(compiler, flag)]
        generated = Path(self.build_temp, "include")
        header = generated / "python/module/docstrings.h"
        subprocess.run([sys.executable, DOCSTRINGS, STUB, header], check=True)
        for extension in self.extensions:
            extension.extra_compile_args += tuning
            extension.include_dirs.append(str(generated))
        self.compiler.compile = self._compile
        super().build_extensions()

    def _compile(
        self,
        sources,
        output_dir=None,
        macros=None,
        include_dirs=None,
        debug=False,
        extra_preargs=None,
        extra_postargs=None,
        depends=None,
    ):
        """Compiler.compile() with a pool of threads in place of its loop."""
        compiler = self.compiler
        macros, objects, postargs, preprocessing, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        arguments = compiler._get_cc_args(preprocessing, debug, extra_preargs)

        def compile_one(item):
            target, (source, suffix) = item
            compiler._compile(
                target, source, suffix, arguments, postargs, preprocessing
            )

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            futures = [pool.submit(compile_one, item) for item in build.items()]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return objects


# Where the repository is, which only the workflow that publishes knows.
# GITHUB_REPOSITORY would also be that of anybody whose workflow builds a wheel.
REPOSITORY = os.environ.get("DISTLITE_REPOSITORY", "").rstrip("/")
LINK = re.compile(r'(\]\(|\bsrc(?:set)?=")(?![a-z]+:|#)([^)"]+)')


def project_urls():
    """Addresses of the repository if it is known, and else that of PyPI."""
    urls = {"Homepage": "https://pypi.org/project/distlite/"}
    if REPOSITORY:
        owner, project = REPOSITORY.split("/")[-2:]
        urls["Source"] = REPOSITORY
        urls["Issues"] = f"{REPOSITORY}/issues"
        urls["Changelog"] = f"{REPOSITORY}/blob/main/docs/changelog.md"
        urls["Documentation"] = f"https://{owner}.github.io/{project}/"
    return urls


def readme():
    """README.md, whose relative links lead to this version's files in the repository if
    that is known, since PyPI resolves none."""
    text = Path("README.md").read_text(encoding="utf-8")
    if not REPOSITORY:
        return text
    version = runpy.run_path("python/distlite/_version.py")["__version__"]

    def absolute(found):
        path = found[2].removeprefix("../../")
        is_page = path != found[2]  # of the repository, such as that of a workflow
        kind = "raw" if path.endswith((".svg", ".png")) else "blob"
        return (
            f"{found[1]}{REPOSITORY}/{path if is_page else f'{kind}/v{version}/{path}'}"
        )

    return LINK.sub(absolute, text)


setup(
    ext_modules=[extension()],
    cmdclass={"build_ext": ParallelBuild},
    project_urls=project_urls(),
    long_description=readme(),
    long_description_content_type="text/markdown",
)
