"""What the files around the container promise: the Dockerfile, docker/compose.yaml, docker/kubernetes.yaml."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import lock
from sharp_cli.health import READINESS
from sharp_server import config_options, resolve_config
from sharp_server.config.model import StopConfig

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
KUBERNETES = {entry["kind"]: entry for entry in yaml.safe_load_all((ROOT / "docker" / "kubernetes.yaml").read_text())}
POD = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
USER = 10001
LONGEST_STOP = StopConfig().grace_seconds + 20
"""Seconds from SIGTERM to the end: the grace, and what the trainer and the journal may take after it."""


def run_tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of the environment that the tests run in."""
    return subprocess.run([Path(sysconfig.get_path("scripts")) / name, *words], capture_output=True, text=True)


def instructions(name: str) -> list[str]:
    """The arguments of every such instruction of the Dockerfile, continued lines joined."""
    return re.findall(rf"^{name}\s+(.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    done = run_tool("hadolint", str(ROOT / "docker" / "Dockerfile"))
    assert done.returncode == 0 and done.stdout + done.stderr == ""
    assert "hadolint ignore" not in DOCKERFILE


def test_the_image_is_built_in_stages_from_one_base_and_the_wheel_once() -> None:
    bases = instructions("FROM")
    assert len(bases) >= 3 and all(base.startswith("${PYTHON_IMAGE}") for base in bases)
    assert DOCKERFILE.count("pip wheel") == 1
    assert any(argument.startswith("VARIANT=cpu") for argument in instructions("ARG"))


def test_the_image_drains_on_sigterm_is_checked_for_health_and_is_not_root() -> None:
    assert instructions("USER") == [f"{USER}:{USER}"] and instructions("VOLUME") == ["/var/lib/sharp"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert instructions("ENTRYPOINT") == ['["sharp"]'] and instructions("CMD") == ['["serve"]']
    assert instructions("HEALTHCHECK")[0].endswith('CMD ["sharp", "health"]')


def test_the_label_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"VERSION={version}" in instructions("ARG")


def test_every_variable_of_the_image_is_a_setting_and_lets_nobody_in_without_tokens() -> None:
    found = dict(re.findall(r"\b(SHARP_\w+)=(\S+)", DOCKERFILE))
    assert set(found) <= {option.variable for option in config_options()}
    environ = {name: value.replace("${VARIANT}", "cpu") for name, value in found.items()}
    with pytest.raises(ValueError, match=r"SHARP_TRUST_TOKEN_FILE.*SHARP_TRUST_INSECURE=true"):
        resolve_config({}, environ)
    config = resolve_config({}, {**environ, "SHARP_TRUST_TOKEN_FILE": "tokens"}).config
    assert config.data.path.is_relative_to("/var/lib/sharp") and config.listen.host == "0.0.0.0"


@pytest.mark.parametrize("index", ["", "file:///cpu-wheels"])
def test_torch_comes_from_another_index_where_one_is_named(index: str, tmp_path: Path) -> None:
    (script,) = (run for run in instructions("RUN") if "TORCH_INDEX_URL" in run)
    for path in ("/opt/sharp", "/requirements.lock", "/cuda.lock", "/torch.txt"):
        script = script.replace(path, f"{tmp_path}{path}")
    (tmp_path / "requirements.lock").write_bytes(lock.LOCK.read_bytes())
    # Instead of Python and pip: a venv is a folder, and pip writes down what it is asked.
    python = tmp_path / "python3"
    python.write_text(
        f"#!/bin/sh\nmkdir -p $3/bin && printf '#!/bin/sh\\necho $* >> {tmp_path}/asked' > $3/bin/pip\n"
        "chmod +x $3/bin/pip\n"
    )
    python.chmod(0o755)
    variables = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TORCH_INDEX_URL": index}
    subprocess.run(["sh", "-ec", script], env=variables, check=True)
    *first, last = (tmp_path / "asked").read_text().splitlines()
    checked = "install --no-cache-dir --no-deps --require-hashes -r"
    assert last == f"{checked} {tmp_path}/requirements.lock"
    if index:
        assert first == [f"install --no-cache-dir --no-deps --index-url {index} -r {tmp_path}/torch.txt"]
        wanted = (tmp_path / "torch.txt").read_text().split()
        assert [line.split("==")[0] for line in wanted] == ["torch", "torchvision"]
    else:
        assert first == [f"{checked} {tmp_path}/cuda.lock"]


def test_only_what_the_wheel_needs_reaches_the_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert kept == {package.split("/")[0] for package in packages} | {
        "pyproject.toml", "README.md", "LICENSE",
        "docker/requirements.lock", "docker/cuda.lock", "docker/cluster.lock",
    }  # fmt: skip


# ---- compose ----------------------------------------------------------------------------------------------------


def test_compose_fits_its_schema() -> None:
    file = str(ROOT / "docker" / "compose.yaml")
    done = run_tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_each_service_of_compose_is_confined_bounded_and_stopped_patiently(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["user"] == f"{USER}:{USER}" and service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert service["volumes"] == ["data:/var/lib/sharp"] and "data" in COMPOSE["volumes"]
    assert service["healthcheck"]["test"] == ["CMD", "sharp", "health"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert int(service["stop_grace_period"].removesuffix("s")) >= LONGEST_STOP
    assert service["secrets"] == ["sharp_tokens"] and "file" in COMPOSE["secrets"]["sharp_tokens"]
    _check_environment(service["environment"], "/run/secrets/sharp_tokens")


def test_compose_reserves_a_gpu_where_one_is_asked_for_and_nowhere_else() -> None:
    services = COMPOSE["services"]
    assert {name: service["profiles"] for name, service in services.items()} == {"cpu": ["cpu"], "gpu": ["gpu"]}
    assert services["gpu"]["build"]["args"]["VARIANT"] == "cuda"
    (device,) = services["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia" and "gpu" in device["capabilities"]
    assert "devices" not in services["cpu"]["deploy"]["resources"]["reservations"]


# ---- kubernetes -------------------------------------------------------------------------------------------------


def check_schema(described: dict[str, Any]) -> None:
    """Kubernetes' own schema of this kind of object; raises where it does not fit."""
    import kubernetes_validate  # takes seconds, which whoever only collects tests need not wait for

    kubernetes_validate.validate(described, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("kind", KUBERNETES)
def test_each_object_fits_the_schema_of_kubernetes(kind: str) -> None:
    check_schema(KUBERNETES[kind])


def test_the_pod_is_confined() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True and POD["securityContext"]["runAsUser"] == USER
    assert POD["securityContext"]["fsGroup"] == USER and POD["automountServiceAccountToken"] is False
    context = CONTAINER["securityContext"]
    assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert set(CONTAINER["resources"]["requests"]) == set(CONTAINER["resources"]["limits"]) == {"cpu", "memory"}


def test_the_pod_is_probed_over_grpc_and_stopped_patiently() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    for probe, service in (
        ("startup", READINESS),
        ("readiness", READINESS),
        ("liveness", None),
    ):
        asked = CONTAINER[f"{probe}Probe"]["grpc"]
        assert asked["port"] == ports["grpc"] and asked.get("service") == service
    assert POD["terminationGracePeriodSeconds"] >= LONGEST_STOP


def test_the_pod_has_a_claim_for_its_data_and_a_secret_for_its_tokens() -> None:
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in CONTAINER["volumeMounts"]}
    claim = mounts["/var/lib/sharp"]["persistentVolumeClaim"]["claimName"]
    assert claim == KUBERNETES["PersistentVolumeClaim"]["metadata"]["name"]
    assert "emptyDir" in mounts["/tmp"] and "secret" in mounts["/run/secrets/sharp"]
    _check_environment({entry["name"]: entry["value"] for entry in CONTAINER["env"]}, "/run/secrets/sharp/tokens")
    assert "Secret" not in KUBERNETES, "tokens belong into no file of the repository"


def test_the_service_and_the_policy_select_the_pod() -> None:
    labels = KUBERNETES["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    assert KUBERNETES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert KUBERNETES["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert KUBERNETES["StatefulSet"]["spec"]["replicas"] == 1


def _check_environment(environment: dict[str, Any], tokens: str) -> None:
    """Every variable is a setting that the server takes, and tokens are asked for."""
    assert set(environment) <= {option.variable for option in config_options()}
    config = resolve_config({"listen.host": "0.0.0.0"}, environment).config
    assert config.trust.token_file == tokens and not config.trust.insecure


# ---- a cluster ------------------------------------------------------------------------------------------------------


def test_compose_of_a_cluster_fits_its_schema_and_asks_for_tokens() -> None:
    file = ROOT / "docker" / "compose.cluster.yaml"
    done = run_tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    services = yaml.safe_load(file.read_text())["services"]
    for name in ("head", "one", "two", "serve"):
        service = services[name]
        assert service["user"] == f"{USER}:{USER}" and service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        settings = {key: value for key, value in service["environment"].items() if key.startswith("SHARP_")}
        _check_environment(settings, "/run/secrets/sharp_tokens")
    assert services["serve"]["entrypoint"][:3] == ["sharp", "serve", "--cluster"]


def test_hadolint_has_nothing_to_say_about_the_image_of_a_cluster_and_it_installs_nothing_but_its_lock() -> None:
    file = ROOT / "docker" / "cluster.Dockerfile"
    done = run_tool("hadolint", str(file))
    assert done.returncode == 0 and done.stdout + done.stderr == ""
    installed = re.findall(r"pip install (.*?)(?: \\)?$", file.read_text(), re.MULTILINE)
    assert installed == [f"--no-cache-dir --no-deps --require-hashes -r /{lock.CLUSTER_LOCK.name}"]
    assert file.read_text().rstrip().endswith(f"USER {USER}:{USER}")


RAY_CLUSTER = {entry["kind"]: entry for entry in yaml.safe_load_all((ROOT / "docker" / "raycluster.yaml").read_text())}


def test_the_objects_of_a_ray_cluster_fit_the_schema_of_kubernetes_and_its_pods_are_confined() -> None:
    for kind in ("Job", "Service", "NetworkPolicy"):
        check_schema(RAY_CLUSTER[kind])
    spec = RAY_CLUSTER["RayCluster"]["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for template in (group["template"] for group in groups):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **template["metadata"]},
            "spec": template["spec"],
        }
        check_schema(pod)
        assert template["spec"]["securityContext"]["runAsUser"] == USER
        assert template["spec"]["terminationGracePeriodSeconds"] >= LONGEST_STOP
    assert [group["rayStartParams"].get("resources") for group in groups] == [None, '"{\\"sharp\\": 1}"']


def test_only_pods_of_the_cluster_reach_the_ports_of_ray() -> None:
    labels = RAY_CLUSTER["RayCluster"]["spec"]["headGroupSpec"]["template"]["metadata"]["labels"]
    policy = RAY_CLUSTER["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    inside, outside = policy["ingress"]
    assert inside["from"][0]["podSelector"]["matchLabels"] == labels
    assert [port["port"] for port in outside["ports"]] == [50051, 9464]
