#!/usr/bin/env bash
# Licences, bans and sources by cargo-deny; advisories too where their database can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
root=${TOOLS_DIR:-.cache/tools}
deny=$root/bin/cargo-deny
if ! [ -x "$deny" ]; then
  cargo install cargo-deny --locked --version "$version" --root "$root" --quiet
fi
# The crates of every platform, those that no build here needs too: cargo-deny reads them all and must not fetch them itself.
cargo fetch --locked --quiet
"$deny" --locked --offline check --hide-inclusion-graph bans licenses sources
