import subprocess, sys, time
from tests.integration.node.pods import DEAF, container, pod
from tests.integration.node.machine import Node

def show(node, *args):
    r = subprocess.run([sys.executable, "-m", "kubeletpy.cli.main", *args, "--socket", str(node.root_dir/"explain.sock")], capture_output=True, text=True)
    print(f"$ kubeletpy {' '.join(args)}\n{r.stdout}{r.stderr}")

def test_scratch(node2: Node, namespace: str) -> None:
    node = node2
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    node.apply(
        pod("ok", container("main"), container("side"), initContainers=[container("first", "sleep 0.3")]),
        pod("crash", container("main", "sleep 1; exit 3")),
        pod("noimage", {"name": "main", "image": "localhost:1/none:1"}),
        pod("noconfig", container("main", env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "nope", "key": "a"}}}])),
        pod("deaf", container("main", DEAF), terminationGracePeriodSeconds=8),
        pod("init", container("main"), initContainers=[container("first", "sleep 100")]),
        pod("unready", container("main", readinessProbe=probe)),
        pod("novolume", container("main"), volumes=[{"name":"v","configMap":{"name":"nope"}}]),
        namespace=namespace)
    node.wait_running(namespace, "ok")
    node.wait_running(namespace, "deaf")
    time.sleep(8)
    node.kubectl("delete", "pod", "deaf", "--wait=false", namespace=namespace)
    time.sleep(2)
    show(node, "explain")
    for name in ("ok", "crash", "noimage", "noconfig", "deaf", "init", "unready", "novolume", "nopod"):
        show(node, "explain", "-n", namespace, name)
    show(node, "timeline", "-n", namespace, "ok", "--svg", "/tmp/ok.svg")
    show(node, "timeline", "-n", namespace, "deaf")
    time.sleep(8)
    show(node, "timeline", "-n", namespace, "deaf")
    show(node, "explain", "-n", namespace, "deaf")
