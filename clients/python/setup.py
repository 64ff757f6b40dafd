"""Adds what is generated from `proto/` to the package while it is built; see `generate.py`."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402  the folder of this file is not on the path of an isolated build


class BuildPy(build_py):
    """Copies the hand-written modules, then generates the others beside them."""

    def run(self) -> None:
        super().run()
        generate.package(generate.protos(), HERE / "src", pathlib.Path(self.build_lib))


class Sdist(sdist):
    """A source distribution carries the protos: it is built without the repository."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        protos = generate.protos()
        for file in [HERE / "generate.py", *protos.rglob("*.proto")]:
            inside = file.name if file.parent == HERE else pathlib.Path("proto") / file.relative_to(protos)
            target = pathlib.Path(base_dir) / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
