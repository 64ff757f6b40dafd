"""Plays the same story with the client of every language against one server: four processes on a real Redis, with mutual TLS
between all of them and JWTs. Then runs the clients' own tests. Called by `make clients`, which installs and builds what they need.

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
SECONDS = 170  # of one command, on a busy machine
SUMMARY_LINES = 8  # how test runners end
LANGUAGES = ("python", "typescript", "go", "java", "rust")


def quick_start(language: str, file: pathlib.Path) -> str:
    """The quick start of the README, as a file to run: what is written there is what was run."""
    text = (ROOT / "clients/README.md").read_text(encoding="utf-8")
    file.write_text(text.split(f"```{language}\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    return str(file)


def commands(language: str, binary: str) -> list[list[str]]:
    """What is run for a language: its story first, then its checks and tests."""
    clients, python = ROOT / "clients", str(BUILT / "venv/bin/python")
    match language:
        case "python":
            # Types are checked from outside the folder of the sources: of the package as it is installed.
            mypy = [python, "-m", "mypy", "--config-file", str(clients / "python/pyproject.toml")]
            return [
                [python, str(clients / "python/examples/story.py"), *STORIES],
                [python, quick_start("python", BUILT / "quick_start.py")],
                [*mypy, "-p", "strata"],
                [*mypy, str(BUILT / "quick_start.py")],
                [*mypy, str(clients / "python/examples"), str(clients / "python/tests")],
                [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(clients / "python/pyproject.toml"), str(clients / "python/tests")],
            ]
        case "typescript":
            tests = sorted(str(path) for path in (clients / "typescript/dist/test").glob("*.test.js"))
            node = str(BUILT / "bin/node")
            return [
                [node, str(BUILT / "typescript/story.js"), *STORIES],
                [node, quick_start("ts", BUILT / "typescript/quick_start.mjs")],
                [node, "--test", "--test-reporter=spec", *tests],
            ]
        case "go":
            return [[str(BUILT / "go/story"), *STORIES]]
        case "java":
            return [[str(BUILT / "java/story"), *STORIES]]
        case "rust":
            return [[binary, "replay", "--quiet", *STORIES], [str(pathlib.Path(binary).parent / "examples/agent")]]
    raise SystemExit(f"{language!r} is none of {', '.join(LANGUAGES)}")


def run(command: list[str], environment: dict[str, str]) -> int | str:
    """Its exit code, with everything it prints only when it failed."""
    try:
        done = subprocess.run(command, env=environment, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=BUILT)
    except subprocess.TimeoutExpired as late:
        print((late.stdout or b"").decode(errors="replace"), flush=True)
        return f"none after {SECONDS} s"
    lines = done.stdout.decode(errors="replace").rstrip().splitlines()
    print("\n".join(lines if done.returncode != 0 else lines[-SUMMARY_LINES:]), flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the strata executable")
    parser.add_argument("--only", default=",".join(LANGUAGES), help="languages, comma-separated")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    languages = options.only.split(",")
    plan = {language: commands(language, binary) for language in languages}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="strata-clients-"))
    # A tenant for each language: the same users, tasks and sessions, and none sees another's.
    cluster = Cluster(binary, folder, [*LANGUAGES, "acme", "umbrella"], secure=True)
    identity = cluster.identity
    shared = {
        "STRATA_SERVER": cluster.server,
        "STRATA_CA_FILE": str(identity.ca),
        "STRATA_CERTIFICATE_FILE": str(identity.certificate("caller")),
        "STRATA_PRIVATE_KEY_FILE": str(identity.key("caller")),
        "STRATA_TEST_KEY": cluster.keys["acme"],
        "STRATA_TEST_OTHER_KEY": cluster.keys["umbrella"],
        "STRATA_TEST_OLD_KEY": identity.token("acme", iat=1_700_000_000, exp=1_700_003_600),
        "STRATA_BINARY": binary,
    }
    failed = []
    try:
        cluster.start()
        for language in languages:
            for command in plan[language]:
                began = time.monotonic()
                # The quick starts have the users and tasks of the stories: another tenant.
                tenant = "acme" if "quick_start" in str(command) else language
                environment = {**os.environ, **shared, "STRATA_API_KEY": cluster.keys[tenant]}
                print(f"clients: {language}: {' '.join(pathlib.Path(part).name for part in command)}", flush=True)
                code = run(command, environment)
                print(f"clients: {language}: {'ok' if code == 0 else f'exit code {code}'} in {time.monotonic() - began:.1f} s", flush=True)
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
