#!/usr/bin/env bash
# Builds and packs the package, and installs the packed file somewhere else: what an application sees.
set -euo pipefail
cd "$(dirname "$0")"
out=$PWD/../.build/typescript
export PATH="$PWD/../.build/bin:$PATH"

npm ci --no-audit --no-fund --silent
rm -rf dist
npm run --silent build
rm -rf "$out"
mkdir -p "$out"
npm pack --silent --ignore-scripts --pack-destination "$out" >/dev/null
cd "$out"
echo '{ "type": "module", "private": true }' >package.json
npm install --no-audit --no-fund --silent --prefer-offline ./strata-client-*.tgz
cp "$OLDPWD/dist/examples/story.js" .
