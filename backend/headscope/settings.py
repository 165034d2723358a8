"""The settings. Only this module reads environment variables.

The variable of a setting is HEADSCOPE_ and its name in capitals, for example HEADSCOPE_QUOTA_BYTES.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from .core.lazy import redis
from .errors import InvalidSetting

GIB = 1024**3
# As in a Host header: a name, an IPv4 address, or an IPv6 address in brackets.
HostName = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)$"), AfterValidator(str.lower)]
REDIS = "^(rediss?|unix)://"
POSTGRESQL = "^postgres(ql)?://"
# What the extra "cluster" installs, and a server with a cluster imports.
# kombu, which comes with celery, has no spec once it is imported.
CLUSTER_PACKAGES = ("celery", "psycopg", "redis")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

Keep = Literal["smaller", "maps", "factors"]


class Settings(BaseSettings):
    """All settings; names end with the unit. Raises InvalidSetting for an invalid value."""

    model_config = SettingsConfigDict(
        env_prefix="HEADSCOPE_", frozen=True, extra="ignore", protected_namespaces=(), env_ignore_empty=True
    )

    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("headscope")),
        description="Data directory: results, jobs, uploaded files, users and installed models.",
    )
    database_url: str | None = Field(
        default=None,
        pattern=POSTGRESQL,
        examples=["postgresql://user:password@host:5432/headscope"],
        description="PostgreSQL with a cluster's jobs, users and grants, for example postgresql://user:password@host:5432/headscope. Without it, they are in the data directory.",
    )
    redis_url: str | None = Field(
        default=None,
        pattern=REDIS,
        examples=["redis://user:password@host:6379/0"],
        description="Redis that carries the jobs of a cluster to workers, for example redis://user:password@host:6379/0. Without it, a child process of the server runs the jobs.",
    )
    cache_url: str | None = Field(
        default=None,
        pattern=REDIS,
        examples=["redis://user:password@host:6379/0"],
        description="A second Redis that may evict entries, as a cache for responses.",
    )
    store_url: str | None = Field(
        default=None,
        description="Where a cluster stores results: a shared folder, or an object store such as s3://bucket/prefix. Default: HEADSCOPE_HOME.",
    )
    model_dirs: tuple[Path, ...] = Field(
        default=(),
        description="Folders whose subfolders are available as models, in addition to the catalogue (JSON list).",
    )
    hub: Literal["off", "catalog", "any"] = Field(
        default="catalog",
        description="Which models may be downloaded from the hub: none, those of the catalogue, or any.",
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Host names that requests may use, without a port, in addition to the loopback names (JSON list).",
    )
    oidc_issuer: str | None = Field(
        default=None,
        examples=["https://id.lab.example/realms/lab"],
        description="Identity provider whose users may sign in on the page (OpenID Connect), for example https://id.lab.example/realms/lab. Without https only on this machine.",
    )
    oidc_client_id: str | None = Field(
        default=None, validate_default=True, description="Name under which the identity provider knows Headscope."
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="Secret that the identity provider gave Headscope. Public clients have none."
    )
    oidc_scope: str = Field(
        default="openid profile email",
        pattern=r"^(\S+ )*openid( \S+)*$",
        examples=["openid profile email groups"],
        description="Scopes that Headscope asks the identity provider for.",
    )
    oidc_user_claim: str = Field(
        default="preferred_username",
        min_length=1,
        description="Claim with the name that a user gets at the first sign-in, for example email.",
    )
    oidc_groups: tuple[str, ...] = Field(
        default=(),
        description="Groups whose members may sign in, by the claim `groups` (JSON list). Without it, every user of the identity provider may.",
    )
    oidc_domains: tuple[str, ...] = Field(
        default=(),
        description="Domains of verified e-mail addresses that may sign in (JSON list). Required for providers that are open to the public, such as Google.",
    )
    oidc_session_seconds: float = Field(
        default=12 * 3600,
        gt=0,
        allow_inf_nan=False,
        description="Time after which a user of the identity provider signs in again.",
    )
    quota_bytes: int = Field(
        default=20 * GIB, ge=0, description="Disk space for stored results; the least recently used are evicted."
    )
    job_bytes: int = Field(
        default=4 * GIB,
        ge=0,
        description="Most memory, and most disk space, of one analysis, and most memory of one effect.",
    )
    keep: Keep = Field(
        default="smaller",
        description="What results keep of the map of a head: the map, factors from which any part of it is computed, or the smaller of the two.",
    )
    warm_bytes: int = Field(
        default=4 * GIB, ge=0, description="Memory for loaded models; the least recently used are evicted."
    )
    text_bytes: int = Field(default=256 * 1024, ge=1, description="Longest text of a request, in UTF-8 bytes.")
    body_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="Largest request body for a study, which may contain its data.",
    )
    image_body_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=1,
        description="Largest request body for analyses, which may contain images; 16 MiB are enough for an image of 12 MB in base64.",
    )
    max_queue: int = Field(
        default=10_000,
        ge=1,
        description="Most jobs in the queue: analyses, effects, and parts of studies of up to 256 inputs.",
    )
    user_queue: int = Field(
        default=5_000, ge=1, description="Most jobs of one user in the queue, on a server with users."
    )
    data_dirs: tuple[Path, ...] = Field(
        default=(),
        description="Folders whose files are available as data sets, in addition to uploaded files (JSON list).",
    )
    dataset_bytes: int = Field(
        default=GIB,
        ge=1,
        description="Largest data set: size of an uploaded or downloaded file, and of its decompressed rows.",
    )
    dataset_memory_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=256 * 1024 * 1024,
        description="Memory limit of the process that reads a data set. At most three run at a time.",
    )
    dataset_seconds: float = Field(
        default=300, gt=0, allow_inf_nan=False, description="Time limit for reading a data set."
    )
    study_inputs: int = Field(default=100_000, ge=1, description="Most inputs of a study.")
    job_seconds: float = Field(
        default=900,
        gt=0,
        description="Time limit of an analysis, including loading its model; in a cluster also of the download of a model.",
    )
    cancel_seconds: float = Field(
        default=2.0,
        gt=0,
        description="Time after which the worker of a cancelled analysis is killed, if it has not stopped.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        examples=["auto", "cpu", "cuda", "cuda:1"],
        description="Where models run: cpu, cuda, cuda:1; auto uses the GPU if there is one.",
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Most tokens of a batch of inputs in one forward pass; 0 runs one input at a time. Default: 16384 on a GPU, 0 on a CPU.",
    )
    worker_bytes: int = Field(
        default=0,
        ge=0,
        description="A worker process of a cluster that uses more memory is restarted after its job; 0 means no limit.",
    )
    metrics_address: str | None = Field(
        default=None,
        pattern=r"^\S+:\d{1,5}$",
        examples=["127.0.0.1:9101", "0.0.0.0:9101"],
        description="Where a worker of a cluster serves its metrics to Prometheus, for example 127.0.0.1:9101, without an access token. A server has /metrics.",
    )
    threads: int = Field(default=0, ge=0, description="Threads of torch; 0 for one per core that it may use.")
    prewarm: bool = Field(default=True, description="Load models when the server starts, before it is ready.")
    preload: tuple[str, ...] | None = Field(
        default=None,
        examples=['["minilm", "smollm2"]'],
        description="Models to load at the start, in order, while they fit (JSON list). Default: the default model, and those that `headscope models install` installed.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Format of the log on standard error: text, or one JSON object per line."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged; debug logs every request."
    )

    audit_file: Path | None = Field(
        default=None,
        description="File to which servers and `headscope token` append who did what, as JSON lines. Without it, these events are in the log.",
    )

    @field_validator("database_url", "redis_url", "cache_url")
    @classmethod
    def _installed(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None and any(find_spec(package) is None for package in CLUSTER_PACKAGES):
            raise InvalidSetting(
                f'HEADSCOPE_{str(info.field_name).upper()} needs packages that are not installed: pip install "headscope[cluster]".'
            )
        return url

    @field_validator("store_url")
    @classmethod
    def _reachable(cls, url: str | None) -> str | None:
        if url is not None and url.startswith("s3://") and find_spec("s3fs") is None:
            raise InvalidSetting(
                'HEADSCOPE_STORE_URL needs a package that is not installed: pip install "headscope[s3]".'
            )
        return url

    @field_validator("redis_url", "cache_url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is not None:
            redis.connection.parse_url(url)  # type: ignore[no-untyped-call] # raises ValueError, for example for an invalid port
        return url

    @field_validator("database_url")
    @classmethod
    def _database(cls, url: str | None) -> str | None:
        if url is not None:
            urlsplit(url).port  # noqa: B018 - raises ValueError for an invalid one
        return url

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if find_spec("authlib") is None:
            raise InvalidSetting(
                'HEADSCOPE_OIDC_ISSUER needs packages that are not installed: pip install "headscope[oidc]".'
            )
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or parts.scheme not in ("https", "http"):
            raise ValueError("it must be an address")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("it must begin with https")
        return url

    @field_validator("oidc_client_id")
    @classmethod
    def _client(cls, id_: str | None, info: ValidationInfo) -> str | None:
        if id_ is None and info.data.get("oidc_issuer") is not None:
            raise ValueError("HEADSCOPE_OIDC_ISSUER requires it")
        return id_

    @field_validator("home", "model_dirs", "data_dirs")
    @classmethod
    def _folders(cls, value: Path | tuple[Path, ...]) -> Path | tuple[Path, ...]:
        try:
            for folder in (value,) if isinstance(value, Path) else value:
                folder.resolve().is_dir()  # raises for an invalid name, or without permission
        except (OSError, ValueError):
            raise ValueError("it must name folders that can be opened") from None
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            examples = Settings.model_fields[name].examples
            expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
            raise _invalid(
                name, f"it must look like {', or '.join(map(str, examples))}" if examples else expected
            ) from None
        except SettingsError as error:  # names the field only in its text
            named = re.search(r'field "(\w+)"', str(error))
            raise _invalid(named.group(1) if named else "*", "it must be JSON") from None


def _invalid(name: str, expected: str) -> InvalidSetting:
    return InvalidSetting(f"The setting HEADSCOPE_{name.upper()} is not valid: {expected}. Change it, or unset it.")


def wants_traces() -> bool:
    """Return whether the standard variables of OpenTelemetry ask for traces over OTLP, the only protocol that Headscope sends them by, over HTTP."""
    values = {name: value.strip() for name, value in os.environ.items() if name.startswith("OTEL_")}
    if values.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = values.get("OTEL_TRACES_EXPORTER", "")
    named = any(values.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", "TRACES_"))
    return exporter == "otlp" or (exporter == "" and named)


def limit_threads() -> None:
    """Keep threads that wait for one another from taking the cores of others, unless the environment says otherwise. Call it before numpy and torch are imported.

    numpy multiplies matrices with one thread: while analyses use the cores, embedding a sentence takes ten times as long with two threads as with one. After an
    operation, threads of torch wait for the next one for microseconds, then they sleep. By default (of libgomp) they spin for milliseconds, and take a core from
    the threads that read rows, and from other processes.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
