"""What a conversation works with: loaded models, and the analyses and studies that were made."""

from __future__ import annotations

from cachetools import LRUCache

import headscope

from ..errors import InvalidRequest, Unknown

# Models that stay in memory.
MODELS = 2
# Bytes of the maps and measures that are kept: the results that were used least recently go first.
BYTES = 2 * 1024**3


class Workspace:
    """Models by name, and results by id. Not thread-safe: tools run one after another."""

    def __init__(self) -> None:
        self._models = LRUCache[str, headscope.Model](MODELS)
        self._results = LRUCache[str, headscope.Analysis | headscope.Study](
            BYTES, getsizeof=lambda result: min(_size(result), BYTES)
        )

    def model(self, name: str) -> headscope.Model:
        """Return a model, loaded on first use. Raises what headscope.load raises."""
        if name not in self._models:
            self._models[name] = headscope.load(name)
        return self._models[name]

    def keep(self, result: headscope.Analysis | headscope.Study) -> str:
        """Keep a result, and return its id."""
        self._results[result.id] = result
        return result.id

    def result(self, id_: str) -> headscope.Analysis | headscope.Study:
        """Return an analysis or a study. Raises Unknown."""
        if id_ not in self._results:
            raise Unknown(
                "analysis", "There is no analysis or study with this id, or its memory was needed. Make it again."
            )
        return self._results[id_]

    def analysis(self, id_: str) -> headscope.Analysis:
        """Return an analysis. Raises Unknown, or InvalidRequest for a study."""
        result = self.result(id_)
        if isinstance(result, headscope.Analysis):
            return result
        raise InvalidRequest("This is the id of a study. Analyse one of its texts, and give the id of that analysis.")

    def study(self, id_: str) -> headscope.Study:
        """Return a study. Raises Unknown, or InvalidRequest for an analysis."""
        result = self.result(id_)
        if isinstance(result, headscope.Study):
            return result
        raise InvalidRequest("This is the id of an analysis. Give that of a study.")


def _size(result: headscope.Analysis | headscope.Study) -> int:
    """Return the bytes of the arrays of a result."""
    if isinstance(result, headscope.Study):
        return sum(array.nbytes for array in result.arrays.values())
    return sum(array.nbytes for array in (*result.to_arrays().values(), *result.maps.values()))
