#!/usr/bin/env bash
# Generates the stubs and compiles the example, with Debian's gRPC and protobuf: Maven Central is not needed. With Maven or
# Gradle: io.grpc:grpc-{netty-shaded,protobuf,stub} (shaded Netty brings its TLS), com.google.protobuf:protobuf-java-util, and their protobuf plugin.
set -euo pipefail
cd "$(dirname "$0")"
root=$PWD/../..
out=$PWD/../.build/java

rm -rf "$out"
mkdir -p "$out/src" "$out/classes"
jars=(grpc-api grpc-context grpc-core grpc-netty grpc-protobuf grpc-protobuf-lite grpc-stub guava gson protobuf protobuf-util
  proto-google-common-protos netty-buffer netty-codec netty-codec-http netty-codec-http2 netty-codec-socks netty-common
  netty-handler netty-handler-proxy netty-tcnative netty-resolver netty-transport netty-transport-native-unix-common opencensus-api
  perfmark-api geronimo-annotation-1.3-spec)
classpath=$(printf ':/usr/share/java/%s.jar' "${jars[@]}")
classpath=${classpath:1}
mapfile -t protos < <(cd "$root/proto" && find strata -name '*.proto' -not -path '*/internal/*' | sort)
# Google's error details come with the Python package; Debian's jar of them is too old to know ErrorInfo.
google=$("${PYTHON:-$PWD/../.build/venv/bin/python}" -c 'import google.rpc as rpc; print(list(rpc.__path__)[0].removesuffix("/google/rpc"))')
protoc -I"$google" --java_out="$out/src" google/rpc/error_details.proto
protoc -I"$root/proto" --java_out="$out/src" --grpc_java_out="$out/src" \
  --plugin=protoc-gen-grpc_java=/usr/bin/grpc_java_plugin "${protos[@]}"
find "$out/src" -name '*.java' >"$out/sources"
javac -nowarn -proc:none -Xlint:-options --release 17 -cp "$classpath" -d "$out/classes" @"$out/sources"
# The jars' own annotations are not all there, which javac tells at length: it is heard when it fails.
javac -Xlint:all,-classfile -proc:none --release 17 -cp "$out/classes:$classpath" -d "$out/classes" Story.java \
  >"$out/javac.log" 2>&1 || { cat "$out/javac.log"; exit 1; }
# TLS: Debian's Netty has no ALPN of its own, its OpenSSL binding does, under the name that Netty looks for.
mkdir -p "$out/lib"
cp /usr/lib/*/jni/libnetty-tcnative.so "$out/lib/libnetty_tcnative.so"
cat >"$out/story" <<RUN
#!/bin/sh
exec java -Djava.library.path="$out/lib" -cp "$out/classes:$classpath" Story "\$@"
RUN
chmod +x "$out/story"
