"""A newcomer's path: the release of examples/values-small.yaml is installed, and what is in the API then runs: every role's pod with
its arguments, variables, configuration, volumes and probes, on a real Redis.

Usage: pods.py TOOLS CHART STRATA MODEL_DIR [IMAGE]                    in clear text
       pods.py TOOLS CHART STRATA MODEL_DIR --tls                      the same with TLS, mutual between roles

With IMAGE the pods are containers of it (`podman kube play`), with the security context of the chart; without, processes of
STRATA. A pod has an address of loopback for itself. Mounted ConfigMaps and Secrets are laid out and replaced as a kubelet does
it: files are links through `..data`, which one rename turns.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc
import yaml

from api import Api

tools, chart, strata, model = sys.argv[1:5]
secured = sys.argv[5:] == ["--tls"]
image = sys.argv[5] if len(sys.argv) > 5 and not secured else None
SCHEME = "https" if secured else "http"
ROLES = ["router", "session", "working", "longterm"]
# Addresses of this run alone.
NET = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
# The second replica of working memory is there at the end only.
ADDRESS = {role: f"{NET}.{number}" for number, role in enumerate([*ROLES, "redis", "working1"], 1)}
ROUTER = f"{SCHEME}://{ADDRESS['router']}:7420"
PATIENCE = 60


def until(what, holds):
    """Polls; a loaded machine takes its time."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.1)


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, **more)


def mount(folder, files):
    """As a kubelet's atomic writer: all files change at once."""
    os.makedirs(folder, exist_ok=True)
    version = tempfile.mkdtemp(prefix="..version_", dir=folder)
    os.chmod(version, 0o755)
    for name, text in files.items():
        with open(os.path.join(version, name), "w") as file:
            file.write(text)
    data = os.path.join(folder, "..data")
    old = os.readlink(data) if os.path.islink(data) else None
    os.symlink(os.path.basename(version), data + "_tmp")
    os.rename(data + "_tmp", data)
    for name in files:
        if not os.path.islink(os.path.join(folder, name)):
            os.symlink(os.path.join("..data", name), os.path.join(folder, name))
    if old:
        shutil.rmtree(os.path.join(folder, old))


class Cluster:
    """A release in the API, and what it stands for in a folder."""

    def __init__(self, folder):
        self.folder, self.pods, self.redis = folder, {}, None
        self.api = Api("1.33")
        created = run(strata, "config", "new-key", "--id", "test", "--tenant", "acme")
        assert created.returncode == 0, created.stderr
        self.keys = os.path.join(folder, "keys.toml")
        with open(self.keys, "w") as file:
            file.write("".join(line for line in created.stdout.splitlines(True) if not line.startswith("#")))
        self.environment = {"STRATA_API_KEY": created.stdout.splitlines()[0].rsplit(" ", 1)[1]}
        if secured:
            self.certify()

    def certify(self):
        """The Secrets that cert-manager would make: one authority, a certificate for the router, one for what is between roles."""
        folder = os.path.join(self.folder, "certificates")
        os.makedirs(folder)

        def openssl(*arguments):
            made = run("openssl", *arguments, cwd=folder)
            assert made.returncode == 0, made.stderr

        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
        for name, hosts in (("tls", ["router"]), ("internal-tls", ["session", "working", "working1", "longterm"])):
            names = ",".join(f"IP:{ADDRESS[host]}" for host in hosts)
            openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-addext", f"subjectAltName={names}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", "30", "-copy_extensions", "copy", "-out", f"{name}.crt")
            files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key", "ca.crt": "ca.crt"}
            data = {}
            for entry, file in files.items():
                with open(os.path.join(folder, file), "rb") as content:
                    data[entry] = base64.b64encode(content.read()).decode()
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"strata-{name}", "namespace": "agents"}, "data": data}
            self.api.objects["Secret", "agents", f"strata-{name}"] = secret
        self.environment["STRATA_CA_FILE"] = os.path.join(folder, "ca.crt")

    def helm(self, *arguments):
        answer = self.api.helm(f"{tools}/helm4/helm/helm", self.folder, *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def install(self, *more):
        """As the README of the chart has it; there is no Qdrant on this machine, the embedded index serves."""
        values = ["-f", f"{chart}/examples/values-small.yaml", "--set-file", f"auth.apiKeys={self.keys}"]
        values += ["--set", "qdrant.inChart.enabled=false,longterm.backups.storage=1Gi"]
        if secured:
            values += ["--set", "tls.public.secret=strata-tls,tls.internal.secret=strata-internal-tls"]
        if image:
            repository, tag = image.rsplit(":", 1)
            values += ["--set", f"image.repository={repository},image.pullPolicy=Never", "--set-string", f"image.tag={tag}"]
        self.helm("upgrade", "--install", "memory", chart, *values, *more, "--disable-openapi-validation")
        self.templates = {}
        for (kind, _, _), document in self.api.objects.items():
            if kind in ("Deployment", "StatefulSet"):
                template = document["spec"]["template"]
                self.templates[template["metadata"]["labels"]["app.kubernetes.io/component"]] = (document, template)

    def config(self, name):
        return self.api.objects["ConfigMap", "agents", name]["data"]

    def secret(self, name):
        data = self.api.objects["Secret", "agents", name]["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def start_redis(self):
        """The release's Redis, as a process: its image cannot be had everywhere."""
        _, template = self.templates["redis"]
        folder = os.path.join(self.folder, "redis")
        os.makedirs(folder, exist_ok=True)
        arguments = [argument.replace("/data", folder) for argument in template["spec"]["containers"][0]["args"]]
        self.redis = subprocess.Popen([*arguments, "--bind", ADDRESS["redis"]], stdout=subprocess.DEVNULL)
        until("Redis listens", lambda: listens(ADDRESS["redis"], 6379))

    def stop_redis(self):
        if self.redis:
            self.redis.terminate()
            self.redis.wait()

    def named(self, text):
        """With the services' names resolved, and what listens everywhere listening on the pod's own address."""
        for number, role in enumerate(("working", "working1")):
            text = text.replace(f"memory-strata-working-{number}.memory-strata-working:", f"{ADDRESS[role]}:")
        for role, address in ADDRESS.items():
            text = text.replace(f"memory-strata-{role}:", f"{address}:")
        return text

    def start(self, role):
        document, template = self.templates[role.rstrip("1")]
        self.pods[role] = (Container if image else Process)(self, role, document, template)

    def configure(self):
        """A changed ConfigMap reaches every pod's mount; nothing is restarted."""
        for pod in self.pods.values():
            pod.mount_all()

    def ctl(self, *arguments):
        return run(strata, "ctl", "--server", ROUTER, *arguments, env=self.environment)


class Pod:
    """One pod, by its manifest."""

    def __init__(self, cluster, role, document, template):
        self.cluster, self.role, self.spec = cluster, role, json.loads(json.dumps(template["spec"]))
        self.name = document["metadata"]["name"] + ("-1" if role.endswith("1") else "-0")
        self.container = self.spec["containers"][0]
        self.ports = self.container["ports"]
        self.folder = os.path.join(cluster.folder, role)
        claims = [claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])]
        self.volumes = {v["name"]: v for v in self.spec["volumes"]} | {name: {"claim": True} for name in claims}
        for name, volume in self.volumes.items():
            if "emptyDir" in volume:
                shutil.rmtree(self.path(name), ignore_errors=True)
        self.mount_all()
        self.launch()

    def path(self, volume):
        return os.path.join(self.folder, volume)

    def mount_all(self):
        uid = self.spec["securityContext"]["runAsUser"]
        for name, volume in self.volumes.items():
            if "configMap" in volume:
                config = self.cluster.config(volume["configMap"]["name"])
                mount(self.path(name), {file: self.adapt(text) for file, text in config.items()})
            elif "secret" in volume:
                mount(self.path(name), self.cluster.secret(volume["secret"]["secretName"]))
            else:
                os.makedirs(self.path(name), exist_ok=True)
                if os.geteuid() == 0:
                    os.chown(self.path(name), uid, uid)

    def adapt(self, text):
        return self.cluster.named(text).replace("0.0.0.0:", f"{ADDRESS[self.role]}:")

    def environment(self):
        values = {}
        for entry in self.container["env"]:
            source = entry.get("valueFrom", {})
            # Secrets are files; the one thing that is referred to is the pod's name.
            values[entry["name"]] = self.name if "fieldRef" in source else self.adapt(entry["value"])
        return values

    def arguments(self):
        return [self.adapt(argument) for argument in self.container["args"]]

    def probe(self, kind):
        """A probe of the manifest, as the kubelet makes it."""
        asked = self.container[kind].get("httpGet")
        if asked:
            port = next(p["containerPort"] for p in self.ports if p["name"] == asked["port"])
            try:
                with urllib.request.urlopen(f"http://{ADDRESS[self.role]}:{port}{asked['path']}", timeout=5) as answer:
                    return answer.status == 200
            except OSError:
                return False
        probe = self.container[kind]["grpc"]
        name = probe.get("service", "").encode()
        with grpc.insecure_channel(f"{ADDRESS[self.role]}:{probe['port']}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                return check((b"\x0a" + bytes([len(name)]) + name) if name else b"", timeout=5) == b"\x08\x01"
            except grpc.RpcError:
                return False


class Process(Pod):
    """The pod's container as a process of this machine: the same arguments, with the paths of its mounts."""

    def adapt(self, text):
        text = super().adapt(text).replace("/usr/share/strata/models/use-multilingual-v3", model)
        for mounted in self.container["volumeMounts"]:
            for end in ('"', "/"):
                if mounted["mountPath"] != "/tmp":
                    text = text.replace(mounted["mountPath"] + end, self.path(mounted["name"]) + end)
        return text

    def launch(self):
        log = open(os.path.join(self.folder, "log"), "a")
        environment = {name: self.adapt(value) for name, value in self.environment().items()}
        self.process = subprocess.Popen([strata, *self.arguments()], env=environment, stdout=log, stderr=log)

    def running(self):
        return self.process.poll() is None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(self.spec["terminationGracePeriodSeconds"])

    def log(self):
        with open(os.path.join(self.folder, "log")) as file:
            return file.read()


class Container(Pod):
    """The pod itself, by podman, with its mounts from this machine."""

    def launch(self):
        spec = self.spec
        spec["volumes"] = [{"name": name, "hostPath": {"path": self.path(name), "type": "Directory"}} for name in self.volumes]
        self.container["env"] = [{"name": name, "value": value} for name, value in self.environment().items()]
        self.container["args"] = self.arguments()
        # The host's network has no ports to map.
        self.container.pop("ports")
        spec["restartPolicy"] = "Never"
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "labels": {"app": self.role}}, "spec": spec}
        self.manifest = os.path.join(self.folder, "pod.yaml")
        with open(self.manifest, "w") as file:
            yaml.safe_dump(manifest, file)
        played = run("podman", "play", "kube", "--network=host", self.manifest)
        assert played.returncode == 0, played.stderr
        self.id = f"{self.name}-{self.container['name']}"
        state = self.inspect()
        assert state["HostConfig"]["ReadonlyRootfs"] and state["Config"]["User"].startswith("10001"), state["Config"]["User"]
        assert not state["EffectiveCaps"], "no capability"

    def inspect(self):
        return json.loads(run("podman", "inspect", self.id).stdout)[0]

    def running(self):
        return self.inspect()["State"]["Running"]

    def stop(self):
        stopped = run("podman", "stop", "--time", str(self.spec["terminationGracePeriodSeconds"]), self.id)
        assert stopped.returncode == 0, stopped.stderr
        code = self.inspect()["State"]["ExitCode"]
        self.last = self.log()
        run("podman", "play", "kube", "--down", self.manifest)
        return code

    def log(self):
        logs = run("podman", "logs", self.id)
        return logs.stdout + logs.stderr


def restored(cluster, file):
    """The pod of docs/operations.md that brings a backup back, on the volumes of long-term memory."""
    with open("docs/operations.md") as page:
        manifest = yaml.safe_load(re.search(r"<<'YAML'\n(.*?)\nYAML\n", page.read(), re.S)[1])
    spec, longterm = manifest["spec"], cluster.pods["longterm"]
    container = spec["containers"][0]
    container["args"] = [argument.replace("longterm-TIME-ID.sqlite", file) for argument in container["args"]]
    paths = {}
    for volume in spec["volumes"]:
        # Claims and mounts of the pod that ended; both have their names.
        claim = volume.pop("persistentVolumeClaim", {"claimName": volume["name"]})["claimName"].removesuffix(f"-{longterm.name}")
        volume.pop("configMap", None)
        volume.pop("secret", None)
        paths[volume["name"]] = longterm.path(claim)
        volume["hostPath"] = {"path": longterm.path(claim), "type": "Directory"}
    if not image:
        def adapt(text):
            for mounted in container["volumeMounts"]:
                # Whole parts of a path: one folder's name begins with another's.
                text = re.sub(rf"^{mounted['mountPath']}(?=/|$)", paths[mounted["name"]], text)
            return text

        environment = {entry["name"]: adapt(entry["value"]) for entry in container["env"]}
        done = run(strata, *[adapt(argument) for argument in container["args"]], env=environment)
        assert done.returncode == 0, done.stderr
        return
    container["image"] = image
    path = os.path.join(cluster.folder, "restore.yaml")
    with open(path, "w") as written:
        yaml.safe_dump(manifest, written)
    played = run("podman", "play", "kube", "--network=none", path)
    assert played.returncode == 0, played.stderr
    waited = run("podman", "wait", "strata-restore-restore")
    assert waited.stdout.strip() == "0", run("podman", "logs", "strata-restore-restore").stderr
    run("podman", "play", "kube", "--down", path)


def listens(address, port):
    with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
        return True
    return False


def statement(n):
    content = f"The badge has the number {n}77."
    return json.dumps(
        {
            "user_id": "u",
            "statement": {
                "kind": "KIND_FACT",
                "content": content,
                "source": "SOURCE_MODEL_INFERENCE",
                "source_quote": content,
                "trigger": "TRIGGER_DECISION_POINT",
            },
        }
    )


def story(cluster):
    cluster.install()
    # The router first: it must not wait for anyone.
    cluster.start("router")
    router = cluster.pods["router"]
    until("the router has started", lambda: router.probe("startupProbe"))
    assert router.probe("readinessProbe") and router.probe("livenessProbe"), "a router serves without its layers"

    # A session pod without Redis: alive, not ready.
    for role in ("session", "working", "longterm"):
        cluster.start(role)
    pods = cluster.pods.values()
    until("every process answers", lambda: all(pod.probe("startupProbe") for pod in pods))
    assert not cluster.pods["session"].probe("readinessProbe"), "Redis is not there yet"
    assert all(pod.probe("livenessProbe") for pod in pods)
    cluster.start_redis()
    until("every pod is ready", lambda: all(pod.probe("readinessProbe") for pod in pods))

    def reached(method, request):
        # A router that met a layer while it was not there answers one more call so: agents retry it.
        answer = cluster.ctl("call", method, json.dumps({"user_id": "nobody"} | request))
        return "STORE_UNAVAILABLE" not in answer.stderr

    for method, request in (("ListSessions", {}), ("GetTask", {"task_id": "none"}), ("ListMemories", {})):
        until(f"{method} reaches its layer", lambda: reached(method, request))
    print("  started in any order; ready with Redis")

    # What `helm test` runs.
    hook = next(yaml.safe_load_all(cluster.helm("get", "hooks", "memory")))
    test = [cluster.named(argument) for argument in hook["spec"]["containers"][0]["args"]]
    strange = {name: value for name, value in cluster.environment.items() if name == "STRATA_CA_FILE"}
    tested = run(strata, *test, env=strange)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    told = run(strata, "replay", "examples/story.en.jsonl", "--server", ROUTER, "--quiet", env=cluster.environment)
    assert told.returncode == 0, told.stdout + told.stderr
    stranger = run(strata, "ctl", "--server", ROUTER, "status", env=strange)
    assert stranger.returncode != 0 and "UNAUTHENTICATED" in stranger.stderr.upper(), stranger.stderr
    print("  the story is told through four pods; strangers are refused")

    # What Prometheus fetches: the role as the alerts ask for it, and calls by the labels they read.
    for role, pod in cluster.pods.items():
        with urllib.request.urlopen(f"http://{ADDRESS[role]}:9464/metrics", timeout=5) as answer:
            shown = answer.read().decode()
        assert re.search(rf'^strata_build\{{.*roles="{role}".*\}} 1$', shown, re.M), shown[:2000]
        listener = "public" if role == "router" else "internal"
        assert re.search(rf'^strata_rpc_calls_total\{{.*rpc_grpc_status_code="0".*strata_listener="{listener}"', shown, re.M), shown[:2000]

    # Modes by the mounted file's swap.
    assert cluster.ctl("call", "Propose", statement(1)).returncode == 0
    cluster.install("--set", "modes.longterm=WRITE_OFF")
    cluster.configure()
    until("writes are off", lambda: "LAYER_WRITE_OFF" in cluster.ctl("call", "Propose", statement(2)).stderr)
    cluster.install("--set", "policy.recall.floor=-1")
    cluster.configure()
    until("a bad policy is refused", lambda: all("is refused" in pod.log() for pod in pods))
    assert "LAYER_WRITE_OFF" in cluster.ctl("call", "Propose", statement(3)).stderr, "the last good one stays in force"
    cluster.install()
    cluster.configure()
    until("writes are on", lambda: cluster.ctl("call", "Propose", statement(4)).returncode == 0)
    assert all(pod.running() for pod in pods)
    print("  modes followed the ConfigMap; a bad one changed nothing")

    # A store that is down takes readiness, never life.
    cluster.stop_redis()
    until("sessions are not ready", lambda: not cluster.pods["session"].probe("readinessProbe"))
    assert all(pod.probe("livenessProbe") for pod in pods) and router.probe("readinessProbe")
    cluster.start_redis()
    until("sessions are ready", lambda: cluster.pods["session"].probe("readinessProbe"))

    # A backup; then the long-term pod ends, the backup is brought back as the page on operations says, and another pod starts.
    backed = cluster.ctl("--timeout", "60", "backup")
    assert backed.returncode == 0, backed.stderr
    longterm = cluster.pods["longterm"]
    file = next(name for name in os.listdir(longterm.path("backups")) if name.endswith(".sqlite"))
    assert cluster.ctl("call", "Propose", statement(5)).returncode == 0
    code = longterm.stop()
    assert code == 0, f"a clean end, not {code}"
    restored(cluster, file)
    cluster.start("longterm")
    until("long-term memory is back", lambda: cluster.pods["longterm"].probe("readinessProbe"))
    until("it is reached", lambda: "B-200" in cluster.ctl("lookup", "--user", "ada", "work.cost_centre").stdout)
    kept = cluster.ctl("export", "--user", "u").stdout
    assert "number 477." in kept and "number 577." not in kept, "as it was when the backup was made"
    print("  Redis went and came; a backup was brought back on long-term memory's volume")

    # A second replica of working memory: a board that was there before is there, and the boards of one that ends are the other's.
    about = lambda task: {"user_id": "u", "task_id": task}
    goal = {"goal": {"sentence": "Count.", "acceptance": "It is over."}}
    create = lambda task: cluster.ctl("call", "CreateTask", json.dumps(about(task) | goal))
    assert create("before").returncode == 0
    cluster.install("--set", "working.replicas=2")
    for role in ("working", "router"):
        assert cluster.pods[role].stop() == 0
        cluster.start(role)
    cluster.start("working1")
    until("both replicas are ready", lambda: all(pod.probe("readinessProbe") for pod in cluster.pods.values()))

    def goes_on(task):
        answer = cluster.ctl("call", "GetTask", json.dumps(about(task)))
        return answer.returncode == 0 and str(json.loads(answer.stdout)["task"]["generation"]) == "1"

    tasks = [f"task-{n}" for n in range(8)]
    for task in tasks:
        until(f"{task} is there", lambda: "TASK_EXISTS" in create(task).stderr)
    boards = lambda role: urllib.request.urlopen(f"http://{ADDRESS[role]}:9464/metrics", timeout=5).read().decode()
    for role in ("working", "working1"):
        until(f"{role} has boards", lambda: re.search(r"^strata_boards(\{.*\})? [1-9]", boards(role), re.M))
    assert cluster.pods["working"].stop() == 0
    for task in ["before", *tasks]:
        until(f"{task} goes on at the other replica", lambda: goes_on(task))
    cluster.start("working")
    until("it is back", lambda: cluster.pods["working"].probe("readinessProbe"))
    print("  boards went on while one of two replicas of working memory was away")

    codes = {role: pod.stop() for role, pod in cluster.pods.items()}
    assert set(codes.values()) == {0}, f"every pod ends by itself: {codes}"


with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    cluster = Cluster(folder)
    try:
        story(cluster)
    except BaseException:
        for pod in cluster.pods.values():
            print(f"--- {pod.role}\n{pod.log()[-3000:]}", file=sys.stderr)
        raise
    finally:
        for pod in cluster.pods.values():
            with contextlib.suppress(Exception):
                if pod.running():
                    pod.stop()
        cluster.stop_redis()
