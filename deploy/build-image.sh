#!/usr/bin/env bash
# Builds the image without a Docker engine, from an executable that is there: needs buildah, binutils and root.
#
#   deploy/build-image.sh EXECUTABLE MODEL_DIR [NAME]          NAME: default localhost/strata:dev
#
# Afterwards: podman run NAME, or buildah push NAME docker://REGISTRY/strata:TAG.
set -euo pipefail
cd "$(dirname "$0")/.."
executable=$1 model=$2 name=${3:-localhost/strata:dev}
# Works where overlays cannot be mounted and namespaces are closed: in a container of a CI.
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deploy/rootfs.sh "$executable" "$model" "$work/rootfs"
buildah build --isolation chroot --pull-never --layers=false --quiet --target prebuilt --tag "$name" --file deploy/Dockerfile "$work"
