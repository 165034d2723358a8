"""The catalog of models: names, folders and hub ids. Imports neither torch nor transformers."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.lazy import LazyModule
from ..errors import HeadscopeError, InvalidRequest, ModelUnavailable, Unknown
from ..settings import Settings
from . import facts, hub_cache, safety, support, trained_mechanism
from .gguf_files import architecture, header, tokenizer
from .installation import Package
from .located import Located

# Not an attribute of huggingface_hub before it is imported.
hub_utils = LazyModule("huggingface_hub.utils")
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
# The facts on a model's card, which the catalogue also has for models that are not downloaded yet.
CARD = ("family", "kind", "layers", "heads", "head_width", "max_tokens")
_HERE = Path(__file__).resolve().parent
GGUF = ".gguf"
NOT_HERE = "This model is not part of this installation. It comes with a clone of the repository; copy its folder into a model folder."
NOT_INSTALLED = "This model is not installed. Run on the server: headscope models install {name}"


class Catalog:
    """The available models: those in catalog.toml, and in the model folders every GGUF file and every subfolder that has a config.json."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._entries: dict[str, dict[str, Any]] = tomllib.loads(_catalog_file().read_text("utf-8"))

    @property
    def default(self) -> str:
        """Name of the default model."""
        return next(name for name, entry in self._entries.items() if entry.get("default"))

    def preloaded(self) -> list[str]:
        """Return the names of the models to load before they are asked for: those of the settings, or the default model and those installed from packages."""
        if self._settings.preload is not None:
            return list(self._settings.preload)
        installed = [name for name, entry in self._entries.items() if "package" in entry and self._here(name)]
        return [self.default, *installed]

    @cached_property
    def _roots(self) -> list[Path]:
        return [*self._settings.model_dirs, self._settings.home / "models"]

    def package(self, name: str) -> Package | None:
        """Return the Python package from which a model of the catalogue can be installed, None if there is none."""
        found = self._entries.get(name, {}).get("package")
        return Package(**found) if found else None

    def installed(self, name: str) -> Path:
        """Return the folder into which a model is installed, whether it exists or not."""
        return self._settings.home / "models" / name

    def _local(self, name: str) -> Path | None:
        """Return the subfolder of that name in a model folder, None if there is none or it has links that leave the model folder."""
        for base in (root.resolve() for root in self._roots if NAME.fullmatch(name)):
            if _holds_model(base / name, base):
                return base / name
        return None

    def _gguf(self, name: str) -> Path | None:
        """Return the GGUF file of that name in a model folder, None if there is none or it is a link that leaves the model folder."""
        for base in (root.resolve() for root in self._roots if NAME.fullmatch(name)):
            path = base / f"{name}{GGUF}"
            if _is_inside(path, base):
                return path
        return None

    def _here(self, name: str) -> Located | None:
        """Return a model in a model folder, a subfolder before a GGUF file; None if there is none."""
        if folder := self._local(name):
            return Located(name, folder)
        path = self._gguf(name)
        return self._from_gguf(name, path) if path else None

    def _from_gguf(self, name: str, path: Path) -> Located:
        return Located(name, None, gguf=path, conversions=self._settings.home / "gguf")

    def names(self) -> list[str]:
        """Return the names of all available models, those of the catalogue first."""
        listed = [name for name in self._entries if self._offers(name)]
        local = [config.parent.name for root in self._roots for config in sorted(root.glob("*/config.json"))]
        local += [path.stem for root in self._roots for path in sorted(root.glob(f"*{GGUF}"))]
        return list(dict.fromkeys([*listed, *filter(self._here, local)]))

    def listed(self) -> list[str]:
        """Return the names of all available models and, if any hub id is allowed, of those in the hub's cache that Headscope supports."""
        names = self.names()
        if self._settings.hub != "any":
            return names
        known = {entry.get("hub") for entry in self._entries.values()}
        return names + [id_ for id_ in hub_cache.ids() if id_ not in known and self._is_usable(id_)]

    def _is_usable(self, id_: str) -> bool:
        """Return whether a model of the hub's cache is complete and supported."""
        if not HUB_ID.fullmatch(id_) or not _is_hub_id(id_):
            return False
        card = self.describe(id_)
        return bool(card["local"] and card["available"])

    def _offers(self, name: str) -> bool:
        """Return whether a model of the catalogue is on the hub, in a model folder, or beside the catalogue."""
        entry = self._entries[name]
        return "hub" in entry or self._here(name) is not None or _located(name, entry).folder is not None

    def locate(self, name: str, *, pointer: str | None = "/model") -> Located:
        """Find a model by catalogue name, name of a local model, or hub id. Raises Unknown, or InvalidRequest for an invalid name."""
        if name in self._entries or NAME.fullmatch(name):
            if found := self._here(name):
                return found
            if entry := self._entries.get(name):
                return _located(name, entry)
            raise Unknown(
                "model",
                "There is no model of that name. `headscope models` and GET /api/v1/models list the names.",
                pointer=pointer,
            )
        if not HUB_ID.fullmatch(name) or not _is_hub_id(name):
            raise InvalidRequest("A model name is a catalogue name or a hub id such as org/name.", pointer=pointer)
        if self._settings.hub != "any":
            raise Unknown(
                "model",
                "This server allows only models of its catalogue. Start it with HEADSCOPE_HUB=any to allow any hub id.",
                pointer=pointer,
            )
        return _on_hub(name, name, "main")

    def locate_path(self, folder: Path) -> Located:
        """Locate a model in any local folder, or a GGUF file: for the library and the command line, never for requests."""
        if folder.suffix == GGUF:
            return self._from_gguf(folder.stem, folder.resolve())
        if not (folder / "config.json").is_file():
            raise Unknown("model", "That folder contains no model: it has no config.json.")
        return Located(folder.resolve().name, folder.resolve())

    def check(self, located: Located) -> facts.Facts | None:
        """Return the facts of a model. Raises Unsupported for one that Headscope does not support, ModelUnavailable for one that is not here and may not be downloaded."""
        known = self.facts(located)
        if known is not None:
            support.check_trained(known)
        if not located.local and located.hub is None:
            entry = self._entries.get(located.name, {})
            raise ModelUnavailable(NOT_INSTALLED.format(name=located.name) if "package" in entry else NOT_HERE)
        if not located.local and self._settings.hub == "off":
            raise ModelUnavailable(
                "The model is not on this machine and downloads are disabled (HEADSCOPE_HUB=off). "
                "Copy its folder into a model folder, or allow the hub."
            )
        return known

    def facts(self, located: Located) -> facts.Facts | None:
        """Return layers, heads and so on, from the model's files or else the catalogue; None if nothing is known yet."""
        if located.gguf is not None:
            described = header.read(located.gguf)
            tokenizer.find_split(described)
            return facts.read(architecture.to_config(located.gguf, described))
        if located.folder is not None:
            found = facts.read(safety.read_json(located.folder / "config.json"))
            processor = located.folder / "preprocessor_config.json"
            if found.patches and processor.is_file():
                return facts.with_processor(found, safety.read_json(processor))
            return found
        entry = self._entries.get(located.name, {})
        return facts.Facts(**{key: entry[key] for key in CARD}) if set(CARD) <= entry.keys() else None

    def describe(self, name: str) -> dict[str, Any]:
        """Return what the API and the page show about a model; `available` and `reason` say whether it can be analysed."""
        located = self.locate(name, pointer=None)
        entry = self._entries.get(name, {})
        card: dict[str, Any] = {
            "name": name,
            "title": entry.get("title", name),
            "description": entry.get("description") or _describe_location(located),
            "license": entry.get("license") or _license(located),
            "hub": located.hub,
            "default": bool(entry.get("default")),
            "local": located.local,
            "removable": located.in_cache,
            "parameters": located.parameters or entry.get("parameters"),
            "bytes": located.bytes or entry.get("bytes"),
            "available": True,
            "reason": None,
            "family": "",
            "kind": "encoder",
            "layers": 0,
            "heads": 0,
            "head_width": 0,
            "max_tokens": None,
            "mechanism": trained_mechanism.SOFTMAX,
            "quantisation": None,
            "quantised_by": None,
            "predicts": None,
            "images": False,
            "chats": False,
            "siblings": self._siblings(name),
        }
        try:
            known = self.facts(located)
            card |= (
                {key: getattr(known, key) for key in (*CARD, "mechanism", "quantisation", "quantised_by", "predicts")}
                if known
                else {}
            )
            card["images"] = known is not None and support.reads_both(known)
            self.check(located)
            card["chats"] = card["kind"] == "decoder" and located.local and not located.lacks_template()
        except HeadscopeError as error:
            card |= {"available": False, "reason": error.detail}
        return card

    def _siblings(self, name: str) -> list[str]:
        """Return the names of similar models: those of the same group."""
        group = self._entries.get(name, {}).get("group")
        alike = [other for other, entry in self._entries.items() if group and entry.get("group") == group]
        return [other for other in alike if other != name and self._offers(other)]


def _describe_location(located: Located) -> str:
    if located.gguf is not None:
        return "A GGUF file of this server."
    return "A model of the hub." if located.hub else "A model in a folder of this server."


def _license(located: Located) -> str | None:
    """Return the licence that a GGUF file names, None if it names none or cannot be read."""
    try:
        found = header.read(located.gguf).values.get("general.license") if located.gguf else None
    except HeadscopeError:
        return None
    return found[:100] if isinstance(found, str) else None


def _located(name: str, entry: Mapping[str, Any]) -> Located:
    """Locate a model of the catalogue: in the folder that its entry names, or else on the hub."""
    hub, revision = entry.get("hub"), str(entry.get("revision", "main"))
    folder = _catalog_file().parent / str(entry.get("folder", name))
    if "folder" in entry and hub_cache.is_whole(folder):
        return Located(name, folder, hub, revision)
    return _on_hub(name, hub, revision) if hub else Located(name, None)


def _on_hub(name: str, hub: str, revision: str) -> Located:
    folder = hub_cache.find(hub, revision)
    return Located(name, folder, hub, revision, in_cache=folder is not None)


def _holds_model(folder: Path, base: Path) -> bool:
    """Return whether the folder has a config.json, and neither it nor a file in it is a link that leaves `base`."""
    try:
        links = [Path(entry) for entry in os.scandir(folder) if entry.is_symlink()]
        inside = all(path.resolve().is_relative_to(base) for path in (folder, *links))
        return inside and (folder / "config.json").exists()
    except (OSError, RuntimeError):  # missing, too long a name, a loop of links, or no permission
        return False


def _is_inside(path: Path, base: Path) -> bool:
    """Return whether the path is a file, and not a link that leaves `base`."""
    try:
        return path.is_file() and path.resolve().is_relative_to(base)
    except (OSError, RuntimeError):  # as above
        return False


def _is_hub_id(name: str) -> bool:
    """Return whether the hub's rules allow the name: no `--`, no `..`, no `.git` at the end."""
    try:
        hub_utils.validate_repo_id(name)
    except ValueError:
        return False
    return True


def _catalog_file() -> Path:
    """Return the path of catalog.toml: beside this file in an installed package, in models/ in a checkout."""
    packaged = _HERE / "catalog.toml"
    return packaged if packaged.is_file() else _HERE.parents[2] / "models" / "catalog.toml"
