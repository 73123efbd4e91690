"""``pliant doctor``: what a report of a problem should say about the environment, to be pasted as it is."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from pliant.cli.common import JsonOption, OverridesArgument, emit, resolve_run

_PACKAGES = ("torch", "ray", "pyarrow", "numpy", "mlflow", "obstore", "pydantic", "ruamel.yaml", "typer", "rich")
_VARIABLES = (
    "PLIANT_", "RAY_", "MLFLOW_", "AWS_", "GOOGLE_", "AZURE_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH", "OMP_",
    "MKL_", "PYTHON", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "NO_COLOR", "TERM", "COLUMNS", "LANG", "LC_ALL",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
_PUBLIC = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE")
_SECRET = ("AWS_", "GOOGLE_", "AZURE_")
_SECRET_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")


def doctor(overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Describe the environment: versions, machine, devices, storage, variables. Secrets are left out."""
    target = resolve_run("all", overrides)
    result = {
        "pliant": _pliant(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": _machine(),
        "torch": _torch(),
        "storage": _storage(target.settings.storage),
        "variables": _variables(),
    }
    emit(result, as_json=as_json, text="\n".join(_text(result)))


def _pliant() -> dict[str, Any]:
    from pliant import __version__
    from pliant.track.provenance import git_state

    source = Path(__file__).resolve().parents[1]
    # An installed one may lie in the repository of someone else's project.
    git = None if "site-packages" in source.parts else git_state(source)[0]
    return {
        "version": __version__,
        "source": str(source),
        "commit": git and git["commit"],
        "dirty": git and git["dirty"],
        "python": platform.python_version(),
        "executable": sys.executable,
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    import psutil

    from pliant.train.capacity import container_limit

    memory, limit = psutil.virtual_memory(), container_limit(Path("/"))
    shared = Path("/dev/shm")
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "container_limit_bytes": limit if limit is not None and limit < memory.total else None,
        "shared_memory_bytes": psutil.disk_usage(str(shared)).total if shared.is_dir() else None,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _torch() -> dict[str, Any]:
    """What it finds; where it cannot even be imported, why."""
    try:
        from pliant.train.devices import describe_devices

        return describe_devices()
    except Exception as error:  # whatever is broken is what this command is for
        return {"error": f"{type(error).__name__}: {error}"}


def _storage(uri: str) -> dict[str, Any]:
    """The storage and, of a local one, how much room is left."""
    import psutil

    from pliant.storage.store import normalize

    place = normalize(uri)
    if "://" in place:
        return {"uri": place, "exists": None, "writable": None, "free_bytes": None}
    folder = next(path for path in (Path(place), *Path(place).parents) if path.exists())
    free = psutil.disk_usage(str(folder)).free
    return {"uri": place, "exists": Path(place).exists(), "writable": os.access(folder, os.W_OK), "free_bytes": free}


def _variables() -> dict[str, str]:
    """The variables that matter here; of those that may be secret only that they are set."""
    from pliant.track.settings import masked

    found = {name: value for name, value in sorted(os.environ.items()) if name.upper().startswith(_VARIABLES)}
    return {name: "(set)" if _is_secret(name) else masked(value) for name, value in found.items()}


def _is_secret(name: str) -> bool:
    return name not in _PUBLIC and (name.startswith(_SECRET) or any(word in name.upper() for word in _SECRET_WORDS))


def _text(result: dict[str, dict[str, Any]]) -> list[str]:
    from pliant.units import format_bytes

    lines = []
    for section, facts in result.items():
        lines.append(f"{section}:")
        width = max(map(len, facts), default=0)
        for key, value in facts.items():
            if key.endswith("_bytes"):
                value = None if value is None else format_bytes(value)
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"  {key.removesuffix('_bytes'):<{width}}  {'-' if shown in (None, '') else shown}".rstrip())
    return lines
