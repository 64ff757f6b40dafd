"""Plays the same story with the client of every language against one server: four processes on a real Redis. Then runs the
clients' own tests. Called by `make clients`, which installs and builds what they need.

    python clients/run.py --binary target/debug/strata [--only python,go]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILT = ROOT / "clients/.build"
sys.path.insert(0, str(ROOT / "tests/python"))

from cluster import Cluster  # noqa: E402

STORIES = [str(ROOT / f"examples/agent.{language}.jsonl") for language in ("en", "zh")]
LANGUAGES = ("python", "typescript", "go", "java", "rust")


def commands(binary: str) -> dict[str, list[list[str]]]:
    """What is run for each language: its story first."""
    python, clients = str(BUILT / "venv/bin/python"), ROOT / "clients"
    return {
        "python": [
            [python, str(clients / "python/examples/story.py"), *STORIES],
            [python, "-m", "pytest", "-q", str(clients / "python/tests")],
        ],
        "typescript": [
            ["node", str(clients / "typescript/dist/examples/story.js"), *STORIES],
            ["node", "--test", str(clients / "typescript/dist/test/")],
        ],
        "go": [[str(BUILT / "go/story"), *STORIES]],
        "java": [["java", "-cp", f"{BUILT / 'java/classes'}:{BUILT.joinpath('java/classpath').read_text().strip()}", "Story", *STORIES]],
        "rust": [[binary, "replay", "--quiet", *STORIES]],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the strata executable")
    parser.add_argument("--only", default=",".join(LANGUAGES), help="languages, comma-separated")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    languages = options.only.split(",")
    plan = {language: command for language, command in commands(binary).items() if language in languages}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="strata-clients-"))
    # A tenant for each language: the same users, tasks and sessions, and none sees another's.
    cluster = Cluster(binary, folder, [*LANGUAGES, "acme", "umbrella"])
    failed = []
    try:
        cluster.start()
        for language in languages:
            for command in plan[language]:
                began = time.monotonic()
                environment = {
                    **os.environ,
                    "STRATA_SERVER": f"http://127.0.0.1:{cluster.ports['router']}",
                    "STRATA_API_KEY": cluster.keys[language],
                    "STRATA_TEST_KEY": cluster.keys["acme"],
                    "STRATA_TEST_OTHER_KEY": cluster.keys["umbrella"],
                    "STRATA_BINARY": binary,
                }
                code = subprocess.run(command, env=environment, timeout=170).returncode
                print(f"clients: {language}: {pathlib.Path(command[-1]).name}: {'ok' if code == 0 else f'exit code {code}'}"
                      f" in {time.monotonic() - began:.1f} s", flush=True)
                if code != 0:
                    failed.append(language)
    finally:
        codes = cluster.stop()
        if failed or any(codes.values()):
            print(cluster.logs(), file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"clients: {len(languages) - len(set(failed))} passed, {len(set(failed))} failed")
    return 1 if failed or any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
