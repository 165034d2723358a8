"""What can be set, and the only place that reads the environment.

Every setting is an environment variable: HEADSCOPE_ and the name in capitals, for example HEADSCOPE_QUOTA_BYTES.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from .errors import InvalidSetting

GIB = 1024**3
REDIS = "^(rediss?|unix)://"


class Settings(BaseSettings):
    """One typed table; each field says its unit. Raises InvalidSetting for a value that can't be right."""

    model_config = SettingsConfigDict(
        env_prefix="HEADSCOPE_", frozen=True, extra="ignore", protected_namespaces=(), env_ignore_empty=True
    )

    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("headscope")), description="Folder where results live."
    )
    redis_url: str | None = Field(
        default=None,
        pattern=REDIS,
        examples=["redis://user:password@host:6379/0"],
        description="Redis that holds the jobs of a cluster, for example redis://user:password@host:6379/0. Without it one child process does them.",
    )
    cache_url: str | None = Field(
        default=None,
        pattern=REDIS,
        examples=["redis://user:password@host:6379/0"],
        description="A second Redis, one that may forget, for answers that are read often.",
    )
    store_url: str | None = Field(
        default=None,
        description="Where a cluster's results live: a shared folder, or an object store such as s3://bucket/prefix. Without it in HEADSCOPE_HOME.",
    )
    model_dirs: tuple[Path, ...] = Field(
        default=(), description="Folders whose subfolders are offered as models, beside the catalogue (JSON list)."
    )
    hub: Literal["off", "catalog", "any"] = Field(
        default="catalog", description="Which models may be fetched from the hub: none, those of the catalogue, or any."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="Host names the server answers to, beside the loopback names (JSON list)."
    )
    quota_bytes: int = Field(default=20 * GIB, ge=0, description="Room for stored results; the least used go first.")
    job_bytes: int = Field(default=4 * GIB, ge=0, description="Memory and disk one analysis may take.")
    warm_bytes: int = Field(
        default=4 * GIB, ge=0, description="Memory for models kept warm; the least recently used go first."
    )
    text_bytes: int = Field(default=32 * 1024, ge=1, description="Longest text of a request, in UTF-8 bytes.")
    body_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="Largest body of a request for a study, which may hold its data.",
    )
    image_body_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=1,
        description="Largest body of a request for analyses, which may hold images; 16 MiB hold a file of 12 MB in base64.",
    )
    max_queue: int = Field(default=5_000, ge=1, description="Most analyses waiting at once.")
    user_queue: int = Field(
        default=2_000, ge=1, description="Most analyses of one user waiting at once, on a server with users."
    )
    data_dirs: tuple[Path, ...] = Field(
        default=(), description="Folders whose files are offered as data sets, beside those that are sent (JSON list)."
    )
    dataset_bytes: int = Field(
        default=GIB, ge=1, description="Largest data set: of a file that is sent or fetched, and of its rows unpacked."
    )
    dataset_memory_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=256 * 1024 * 1024,
        description="Memory that reading a data set may take, in a process of its own. Three are read at once.",
    )
    dataset_seconds: float = Field(default=300, gt=0, description="Longest time that reading a data set may take.")
    study_inputs: int = Field(default=100_000, ge=1, description="Most inputs of one study.")
    job_seconds: float = Field(default=900, gt=0, description="Longest time one analysis may run, model load included.")
    cancel_seconds: float = Field(
        default=2.0, gt=0, description="Time a cancelled analysis has to stop by itself before its worker is killed."
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        examples=["auto", "cpu", "cuda", "cuda:1"],
        description="Where models run: cpu, cuda, cuda:1; auto takes the GPU if there is one.",
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Most tokens of several inputs in one forward pass; 0 for one input at a time. Without it 16384 on a GPU and 0 on a CPU.",
    )
    worker_bytes: int = Field(
        default=0,
        ge=0,
        description="A cluster's worker process that has grown larger than this is replaced after its job; 0 lets it grow.",
    )
    threads: int = Field(default=0, ge=0, description="Threads for the models' arithmetic; 0 lets torch choose.")
    prewarm: bool = Field(default=True, description="Load the default model when the server starts.")
    log_format: Literal["text", "json"] = Field(
        default="text", description="How events are written to standard error: for people, or one JSON object per line."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important events that are written; debug adds every request."
    )

    @field_validator("redis_url", "cache_url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is not None:
            from redis.connection import parse_url

            parse_url(url)  # type: ignore[no-untyped-call] # raises ValueError, for example for a port that is no number
        return url

    @field_validator("home", "model_dirs", "data_dirs")
    @classmethod
    def _folders(cls, value: Path | tuple[Path, ...]) -> Path | tuple[Path, ...]:
        try:
            for folder in (value,) if isinstance(value, Path) else value:
                folder.resolve().is_dir()  # raises where the system refuses the name, or to look there
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
            wanted = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
            raise _invalid(
                name, f"it must look like {', or '.join(map(str, examples))}" if examples else wanted
            ) from None
        except SettingsError as error:  # says the field in its text only
            named = re.search(r'field "(\w+)"', str(error))
            raise _invalid(named.group(1) if named else "*", "it must be JSON") from None


def _invalid(name: str, wanted: str) -> InvalidSetting:
    return InvalidSetting(f"The setting HEADSCOPE_{name.upper()} is not valid: {wanted}. Change it, or unset it.")
