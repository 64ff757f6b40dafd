#!/usr/bin/env bash
# Builds the wheel and installs it, with the tools of its tests, into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")"
out=$PWD/../.build
[ -x "$out/venv/bin/pip" ] || python3 -m venv "$out/venv"
"$out/venv/bin/pip" install --quiet --upgrade "setuptools>=77" wheel grpcio-tools==1.85.1 googleapis-common-protos==1.75.0
rm -rf build src/*.egg-info
"$out/venv/bin/pip" install --quiet --no-build-isolation --force-reinstall --no-deps .
"$out/venv/bin/pip" install --quiet --no-build-isolation '.[test]'
rm -rf build src/*.egg-info
