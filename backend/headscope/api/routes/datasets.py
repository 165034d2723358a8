"""Routes: send data sets, see which there are and how they are read, forget them."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from starlette.requests import ClientDisconnect

from ...errors import DatasetUnavailable, InvalidDataset, InvalidRequest, Unknown
from ...store.map_file import storing
from ..dependencies import ServiceDep, VisitorDep, limited
from ..error_responses import raises
from ..http.recent import RecentAnswers
from ..schemas.analyses import Page
from ..schemas.studies import DatasetDocument, DatasetItem

router = APIRouter(prefix="/datasets", tags=["studies"])

# So much of a file is kept in memory while it comes.
PIECE = 1024 * 1024

DatasetName = Annotated[
    str, InPath(alias="id", max_length=1000, description="An id, `folder/file` or `hub:org/name/file`.")
]
FormatName = Annotated[
    str | None, Query(alias="format", max_length=20, description="The format, where the name does not tell it.")
]


@router.post(
    "",
    status_code=201,
    responses=raises(Unknown),
    dependencies=[limited("uploads")],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def create(
    request: Request,
    response: Response,
    service: ServiceDep,
    visitor: VisitorDep,
    name: Annotated[
        str, Query(min_length=1, max_length=200, description="Name of the file; its ending tells the format.")
    ],
    format_: FormatName = None,
) -> DatasetDocument:
    """Send a data set: the body is the file as it is. It is read at once; what can't be read is refused, with the reason. The same file has the same id."""
    owner, datasets = visitor.owner, service.datasets
    with tempfile.TemporaryDirectory(dir=datasets.staging) as folder:
        path = Path(folder) / "sent"
        try:
            await _receive(request.stream(), path)
        except ClientDisconnect:
            raise InvalidDataset("The file did not arrive whole. Send it again.", pointer="/dataset") from None
        document = await service.limiters.datasets.run(lambda: datasets.add(path, name, format_, owner))
    response.headers["Location"] = f"/api/v1/datasets/{document['id']}"
    return _document(document)


@router.get("")
async def listed(
    service: ServiceDep,
    visitor: VisitorDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,9}$", description="`next` of the page before.")] = None,
) -> Page[DatasetItem]:
    """One's own data sets, the newest first, and then the files of the server's folders."""
    start = int(cursor or 0)

    def page() -> list[dict[str, Any]]:
        return list(islice(service.datasets.list(visitor.owner), start, start + limit + 1))

    found = await service.limiters.results.run(page)
    items = [DatasetItem.model_validate(one) for one in found[:limit]]
    return Page(items=items, next=str(start + limit) if len(found) > limit else None)


@router.get("/{id:path}", responses=raises(DatasetUnavailable))
async def show(
    dataset: DatasetName,
    request: Request,
    service: ServiceDep,
    visitor: VisitorDep,
    format_: FormatName = None,
    columns: Annotated[
        str | None,
        Query(max_length=4000, description='Which column is which, as JSON: `{"text": "sentence"}`.'),
    ] = None,
) -> DatasetDocument:
    """A data set: how it was read, or how it is read with these columns; its rows that can't be used, and the first ones that can."""
    datasets, owner, wanted = service.datasets, visitor.owner, _columns(columns)
    recent = cast("RecentAnswers", request.app.state.recent)
    content, sent = await asyncio.to_thread(datasets.identify, dataset, owner)
    if sent is not None and not wanted and format_ in (None, sent["format"]):
        return _document(sent)
    question = ("dataset", content or dataset, format_, *sorted(wanted.items()))
    found: DatasetDocument | None = recent.get(question)
    if found is None:
        found = _document(
            await service.limiters.datasets.share(question, partial(datasets.describe, dataset, format_, wanted, owner))
        )
        if content is not None:
            recent.put(question, found, len(found.model_dump_json()))
    return found


@router.delete("/{id:path}", status_code=204)
async def delete(dataset: DatasetName, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Forget a data set that was sent. Studies of it stay."""
    await asyncio.to_thread(service.datasets.delete, dataset, visitor.owner)
    return Response(status_code=204)


async def _receive(pieces: AsyncIterator[bytes], path: Path) -> None:
    """Write a body to disk as it comes. Raises StorageFull."""
    with storing(), path.open("wb") as file:
        waiting = bytearray()
        async for piece in pieces:
            waiting += piece
            if len(waiting) >= PIECE:
                await asyncio.to_thread(file.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(file.write, bytes(waiting))


def _document(found: dict[str, Any]) -> DatasetDocument:
    return DatasetDocument.model_validate({part: found[part] for part in DatasetDocument.model_fields})


def _columns(given: str | None) -> dict[str, str]:
    """The columns of a query. Raises InvalidRequest."""
    if given is None:
        return {}
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(column, str) for column in found.values()):
        raise InvalidRequest('columns is a JSON object such as {"text": "sentence"}.', pointer="/columns")
    return found
