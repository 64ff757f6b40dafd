"""What no schema knows about the rendered chart. Usage: contents.py STRATA RENDERED..."""

import os
import subprocess
import sys
import tempfile

import yaml

strata, files = sys.argv[1], sys.argv[2:]
ROLES = ["router", "session", "working", "longterm"]
problems = []


def check(holds, what):
    if not holds:
        problems.append(f"{name}: {what}")


def component(labels):
    return labels["app.kubernetes.io/component"]


def seconds(probe):
    return probe["periodSeconds"] * probe["failureThreshold"]


def pods(documents):
    """(component, pod template or pod) of everything that makes pods."""
    for document in documents:
        spec = document.get("spec") or {}
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield component(spec["template"]["metadata"]["labels"]), spec["template"]
        elif document["kind"] == "CronJob":
            template = spec["jobTemplate"]["spec"]["template"]
            yield component(template["metadata"]["labels"]), template
        elif document["kind"] == "Pod":
            yield component(document["metadata"]["labels"]), document


def check_file(documents):
    of = {}
    for document in documents:
        of.setdefault(document["kind"], []).append(document)
        check(document["metadata"].get("namespace") == "agents", f"{document['kind']} is in the release's namespace")

    # One set of pods per role, found by its services and budgets, and no writer twice.
    sets = {component(d["metadata"]["labels"]): d for d in of["Deployment"] + of["StatefulSet"]}
    check(set(ROLES) <= set(sets), "every role is there")
    check(sets["router"]["kind"] == sets["session"]["kind"] == "Deployment", "routers and sessions are deployments")
    longterm = sets["longterm"]
    check(longterm["kind"] == "StatefulSet" and longterm["spec"]["replicas"] == 1, "long-term memory has one writer")
    claims = [c["metadata"]["name"] for c in longterm["spec"]["volumeClaimTemplates"]]
    check({"data", "erasures"} <= set(claims), "records and erasure log have a volume each")
    check(longterm["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain", "memory outlives the release")
    scaled = [d["spec"]["scaleTargetRef"]["name"] for d in of.get("HorizontalPodAutoscaler", [])]
    check(not any(n.endswith(("longterm", "working")) for n in scaled), "what holds state is not scaled by load")
    check_replicas(sets)
    for role in ("router", "session"):
        has = f"{sets[role]['metadata']['name']}" in scaled
        check(has != ("replicas" in sets[role]["spec"]), f"{role}: either scaled or with replicas")
    images = {p["spec"]["containers"][0]["image"] for c, p in pods(documents) if c not in ("redis", "qdrant")}
    check(len(images) == 1, "one image for every role")
    for role in ROLES:
        labels = sets[role]["spec"]["template"]["metadata"]["labels"]
        matches = lambda selector: selector.items() <= labels.items()
        services = [s for s in of["Service"] if matches(s["spec"]["selector"])]
        check(any(s["metadata"]["name"].endswith("-metrics") for s in services) == ("0.0.0.0:9464" in config(documents)), f"{role}: metrics are found")
        check(any(s["metadata"]["name"] == sets[role]["metadata"]["name"] for s in services), f"{role} has a service")
        budgets = [b for b in of["PodDisruptionBudget"] if matches(b["spec"]["selector"]["matchLabels"])]
        check(len(budgets) == 1, f"{role} has one disruption budget")
    for role in ("working", "longterm"):
        headless = next(s for s in of["Service"] if s["metadata"]["name"] == sets[role]["spec"]["serviceName"])
        check(headless["spec"]["clusterIP"] == "None", f"{role} has a headless service")

    # Only routers reach layers, only those who need it a store.
    for policy in of["NetworkPolicy"]:
        role = component(policy["spec"]["podSelector"]["matchLabels"])
        if "Ingress" not in policy["spec"]["policyTypes"] or role == "router":
            continue
        rules = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] != "metrics"]
        peers = [component(p["podSelector"]["matchLabels"]) for rule in rules for p in rule["from"]]
        allowed = {"redis": ROLES, "qdrant": ["longterm"]}.get(role, ["router"])
        check(peers == allowed, f"{role} is reached by {allowed} alone, not {peers}")
    covered = {component(p["spec"]["podSelector"]["matchLabels"]) for p in of["NetworkPolicy"]}
    check(set(sets) <= covered, f"a network policy for each of {sorted(sets)}")

    for role, pod in pods(documents):
        spec = pod["spec"]
        check(spec["automountServiceAccountToken"] is False, f"{role}: no token of the cluster")
        check(spec["enableServiceLinks"] is False, f"{role}: no service links")
        check(spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0, f"{role}: not root")
        check(spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", f"{role}: seccomp")
        for container in spec["containers"]:
            context = container["securityContext"]
            check(context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], f"{role}: nothing to gain")
            check(context["capabilities"] == {"drop": ["ALL"]}, f"{role}: no capability")
            check({"cpu", "memory"} <= set(container["resources"]["requests"]), f"{role}: requests")
            check("memory" in container["resources"]["limits"], f"{role}: a limit of memory")
            mounted = {m["name"] for m in container.get("volumeMounts", [])}
            known = {v["name"] for v in spec.get("volumes", [])} | (set(claims) if role == "longterm" else set())
            check(role == "qdrant" or mounted <= known | {"data"}, f"{role}: every mount has its volume")
            check(not any("subPath" in m for m in container.get("volumeMounts", [])), f"{role}: a subPath is never updated")
        if role not in ROLES:
            continue
        container = spec["containers"][0]
        live, ready, start = (container[k] for k in ("livenessProbe", "readinessProbe", "startupProbe"))
        if "grpc" in live:
            check(live["grpc"] == start["grpc"] == {"port": 7420, "service": "liveness"}, f"{role}: liveness does not ask for stores")
            check(ready["grpc"] == {"port": 7420}, f"{role}: readiness asks for everything")
        else:
            check(live["httpGet"] == start["httpGet"] == {"port": "metrics", "path": "/livez"}, f"{role}: liveness")
            check(ready["httpGet"] == {"port": "metrics", "path": "/readyz"}, f"{role}: readiness")
            files = [m["mountPath"] for m in container["volumeMounts"]]
            check("/etc/strata-tls" in files or "/etc/strata-internal-tls" in files, f"{role}: gRPC probes where there is no TLS")
        check(seconds(ready) < seconds(live), f"{role}: calls stop before a restart")
        grace = spec["terminationGracePeriodSeconds"]
        stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        check(grace >= stop + graceful(documents) + 5, f"{role}: the kubelet waits for our own end")
        if role in ("router", "session"):
            check(sets[role]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0, f"{role}: a new one first")
        if role != "longterm":
            check(spec["topologySpreadConstraints"], f"{role}: spread")


def check_replicas(sets):
    """Routers know each replica of working memory by the name that its stateful set gives it; each replica knows that it is one."""
    working = sets["working"]
    count, of, headless = working["spec"]["replicas"], working["metadata"]["name"], working["spec"]["serviceName"]
    variables = {
        role: {e["name"]: e.get("value") for e in sets[role]["spec"]["template"]["spec"]["containers"][0]["env"]} for role in ROLES
    }
    known = variables["router"].get("STRATA_PEERS__WORKING")
    hosts = [f"{of}-{n}.{headless}:7420" for n in range(count)] if count > 1 else []
    check([url.split("://")[1] for url in (known or "").split(",") if url] == hosts, f"routers know {hosts}, not {known}")
    check(variables["working"].get("STRATA_WORKING__SHARED") == ("true" if count > 1 else None), "replicas know of one another")
    for role in ("session", "longterm"):
        check(not {"STRATA_PEERS__WORKING", "STRATA_WORKING__SHARED"} & set(variables[role]), f"{role} is not restarted by it")


def graceful(documents):
    import tomllib

    return tomllib.loads(config(documents))["server"]["grace_seconds"]


def config(documents):
    return next(d for d in documents if d["kind"] == "ConfigMap" and "strata.toml" in d["data"])["data"]["strata.toml"]


def check_config(documents):
    """`strata config check` with what each pod is started with."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "strata.toml")
        with open(path, "w") as file:
            file.write(config(documents))
        contents = {"STRATA_SIGNING_KEYS_FILE": "k1:" + "ab" * 32, "STRATA_REDIS__URL__FILE": "redis://redis:6379/0"}
        for role, pod in pods(documents):
            if role not in ROLES:
                continue
            container = pod["spec"]["containers"][0]
            environment = {e["name"]: e.get("value", "pod-0") for e in container["env"]}
            for variable in [e for e in environment if e.endswith("_FILE") and "TLS" not in e]:
                environment[variable] = os.path.join(folder, variable)
                with open(environment[variable], "w") as file:
                    file.write(contents.get(variable, "ab" * 32))
            arguments = [a.replace("/etc/strata/strata.toml", path) for a in container["args"][1:]]
            answer = subprocess.run([strata, "config", "check", *arguments], env=environment, capture_output=True, text=True)
            check(answer.returncode == 0, f"{role}: {answer.stderr.strip()}")


for path in files:
    name = os.path.basename(path)
    with open(path) as file:
        documents = [d for d in yaml.safe_load_all(file) if d]
    check_file(documents)
    check_config(documents)
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
