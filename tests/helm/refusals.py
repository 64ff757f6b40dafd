"""What the chart must refuse, with the words that tell why; with helm 3 and 4. Usage: refusals.py TOOLS CHART"""

import subprocess
import sys

tools, chart = sys.argv[1:]
GOOD = ["--set", "signingKeys.existingSecret=s,redis.existingSecret=r", "--set-file", "auth.apiKeys=tests/helm/keys.toml"]
CASES = [
    # (arguments after the good ones, what must be said)
    (["--set", "longterm.replicas=2"], "replicas"),
    (["--set", "working.replicas=0"], "replicas"),
    (["--set", "working.replicas=65"], "replicas"),
    (["--set", "working.autoscaling.enabled=true"], "autoscaling"),
    (["--set", "longterm.autoscaling.enabled=true"], "autoscaling"),
    (["--set", "longterm.podDisruptionBudget.maxUnavailable=2"], "podDisruptionBudget"),
    (["--set", "router.podDisruptionBudget.minAvailable=1,router.podDisruptionBudget.maxUnavailable=1"], "podDisruptionBudget"),
    (["--set", "modes.longterm=FROZEN"], "longterm"),
    (["--set", "modes.router=NORMAL"], "router"),
    (["--set", "routr.replicas=3"], "routr"),
    (["--set", "router.replica=3"], "replica"),
    (["--set", "graceSeconds=0"], "graceSeconds"),
    (["--set", "image.tag=1"], "tag"),
    (["--set", "image.digest=latest"], "digest"),
    (["--set", "longterm.storage=big"], "storage"),
    (["--set", "config.policy.recall.floor=1"], "policy"),
    (["--set-file", f"auth.apiKeys={chart}/Chart.yaml"], "apiKeys"),
    (["--set-file", "auth.apiKeys=tests/helm/keys-with-key.toml"], "still holds the key itself"),
    (["--set-file", "auth.apiKeys=/dev/null"], "auth.apiKeys is required"),
    (["--set", "redis.existingSecret="], "redis: set one of"),
    (["--set", "redis.inChart.enabled=true"], "redis: set one of"),
    (["--set", "redis.existingSecret=,redis.url=redis://:password@redis:6379/0"], "url"),
    (["--set", "qdrant.url=qdrant:6334"], "url"),
    (["--set", "qdrant.url=http://q:6334,qdrant.inChart.enabled=true"], "qdrant: set url or"),
    (["--set", "signingKeys.existingSecret="], "signingKeys.existingSecret is required"),
    (["--set", "signingKeys.generate=true"], "not both"),
    (["--set", "longterm.backups.schedule=@daily"], "backups.schedule needs"),
    (["--set", "metrics.enabled=false,tls.internal.secret=t"], "tls needs metrics.enabled"),
    (["--set", "tls.public.mutual=true,tls.public.secret=t"], "clientSecret"),
    (["--kube-version", "1.29.0"], "kubeVersion"),
]


def render(helm, arguments):
    command = [f"{tools}/{helm}/helm/helm", "template", "memory", chart, *GOOD, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


failed = 0
for helm in ("helm3", "helm4"):
    good = render(helm, [])
    if good.returncode:
        failed += 1
        print(f"{helm} refuses good values: {good.stderr}")
    for arguments, said in CASES:
        answer = render(helm, arguments)
        if answer.returncode == 0 or said not in answer.stderr:
            failed += 1
            print(f"{helm} {' '.join(arguments)}: must be refused naming {said!r}, but: {answer.stderr or 'accepted'}")
sys.exit(1 if failed else 0)
