"""The viewer in a notebook with a kernel: a page with the responses for its first picture, and the others one by one, as the viewer asks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from urllib.parse import urlencode

from ...store.export import Source
from .page_factors import pack
from .standalone import array_responses, describe_source, draw_frame, embed, page_folder

HOST = b'<script type="text/plain" data-host></script>\n'
_HEAD = re.compile(r"/factors/([a-z-]+)/(\d+)\.(\d+)")


class LivePage:
    """The page of an analysis or of a selection of its heads, and every response that it does not contain, by path."""

    def __init__(self, id_: str, source: Source) -> None:
        self._id, self._source = id_, source

    def draw(self, view: Mapping[str, str]) -> bytes:
        """Return the page, with the fields of a view, its lens among them, in its address. Raises Unsupported if the viewer is not built.

        It contains what the viewer needs for the first picture: each question to the kernel would take a tenth of a second.
        """
        head, script = draw_frame(self._source, page_folder() / "viewer", urlencode(view))
        first = f"/grid/{view['lens']}"
        known = {**describe_source(self._id, self._source, []), first: self._arrays[first]()}
        return b"".join([head, HOST, *(embed(path, answer) for path, answer in known.items()), script])

    def answer(self, path: str) -> bytes | None:
        """Return the response of a path, or None if there is none."""
        if path in self._arrays:
            return self._arrays[path]()
        return self._map(path)

    @cached_property
    def _arrays(self) -> Mapping[str, Callable[[], bytes]]:
        return array_responses(self._source)

    def _map(self, path: str) -> bytes | None:
        """Return the map of one head, by its place, in float16 or as factors."""
        found = _HEAD.fullmatch(path)
        if found is None or found[1] not in self._source.document["kept"]:
            return None
        layer, head = int(found[2]), int(found[3])
        layers, heads = self._source.document["shapes"][found[1]][:2]
        if layer >= layers or head >= heads > 1:
            return None
        head = head if heads > 1 else 0
        [one] = self._source.factors(found[1], slice(layer, layer + 1), slice(head, head + 1))
        return pack(one)
