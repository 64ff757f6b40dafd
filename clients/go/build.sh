#!/usr/bin/env bash
# Generates the stubs and builds the example, with Debian's Go, gRPC and protobuf: no module proxy is needed. With modules,
# `protoc` is called the same way and `go build` fetches google.golang.org/{grpc,protobuf,genproto} instead.
set -euo pipefail
cd "$(dirname "$0")"
root=$PWD/../..
out=$PWD/../.build/go
module=strata.example/gen

rm -rf "$out/gopath"
mkdir -p "$out/gopath/src/strata.example/story"
mapping=()
protos=()
while read -r file; do
  protos+=("$file")
  mapping+=("--go_opt=M$file=$module/$(dirname "$file")" "--go-grpc_opt=M$file=$module/$(dirname "$file")")
done < <(cd "$root/proto" && find strata -name '*.proto' -not -path '*/internal/*' | sort)
protoc -I"$root/proto" --go_out="$out/gopath/src" --go-grpc_out="$out/gopath/src" "${mapping[@]}" "${protos[@]}"
cp story.go "$out/gopath/src/strata.example/story/"
GO111MODULE=off GOPATH=$out/gopath:/usr/share/gocode go vet strata.example/story
GO111MODULE=off GOPATH=$out/gopath:/usr/share/gocode go build -o "$out/story" strata.example/story
