"""Routes of data sets: upload, list, show, delete."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from starlette.requests import ClientDisconnect

from ...errors import DatasetUnavailable, InvalidDataset, InvalidRequest, Unknown
from ...store.map_file import storing
from ..dependencies import ServiceDep, VisitorDep, limit_by
from ..error_responses import raises
from ..http.paging import CURSOR, JobLimit
from ..http.response_cache import ResponseCache
from ..schemas.common import Page
from ..schemas.studies import DatasetDocument, DatasetItem

router = APIRouter(prefix="/datasets", tags=["studies"])

DatasetName = Annotated[
    str, InPath(alias="id", max_length=1000, description="Id of a data set, `folder/file`, or `hub:org/name/file`.")
]
FormatName = Annotated[
    str | None, Query(alias="format", max_length=20, description="Format, if the file name does not indicate it.")
]


@router.post(
    "",
    status_code=201,
    responses=raises(Unknown),
    dependencies=[limit_by("uploads")],
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
        str, Query(min_length=1, max_length=200, description="File name; its suffix indicates the format.")
    ],
    format_: FormatName = None,
) -> DatasetDocument:
    """Upload a data set: the body is the unchanged file. It is parsed at once, and rejected with the reason if that fails. Identical files of the same name have the same id.

    A fitted Jacobian lens, which effects read, is uploaded in the same way, as a safetensors file with the matrix of layer l as `J_l`.
    """
    owner, datasets = visitor.owner, service.datasets
    with tempfile.TemporaryDirectory(dir=datasets.staging) as folder:
        path = Path(folder) / "upload"
        try:
            with storing():
                async with await anyio.open_file(path, "wb") as file:
                    async for piece in request.stream():
                        await file.write(piece)
        except ClientDisconnect:
            raise InvalidDataset("The upload was interrupted. Send the file again.", pointer="/dataset") from None
        document = await service.limiters.datasets.run(lambda: datasets.add(path, name, format_, owner))
    response.headers["Location"] = f"/api/v1/datasets/{document['id']}"
    return _to_document(document)


@router.get("")
async def listed(
    service: ServiceDep,
    visitor: VisitorDep,
    limit: JobLimit = 50,
    cursor: Annotated[
        str | None,
        Query(pattern=r"^([0-9]{1,12}(\.[0-9]{1,12})?-[0-9a-f]{32}|file-[0-9]{1,9})$", description=CURSOR),
    ] = None,
) -> Page[DatasetItem]:
    """List your data sets, newest first, followed by the files in the server's folders."""

    def page() -> list[tuple[str, dict[str, Any]]]:
        return list(islice(service.datasets.list(visitor.owner, cursor or ""), limit + 1))

    entries = await service.limiters.results.run(page)
    items = [DatasetItem.model_validate(entry) for _, entry in entries[:limit]]
    return Page(items=items, next=entries[limit - 1][0] if len(entries) > limit else None)


@router.get("/{id:path}", responses=raises(DatasetUnavailable))
async def show(
    dataset: DatasetName,
    request: Request,
    service: ServiceDep,
    visitor: VisitorDep,
    format_: FormatName = None,
    columns: Annotated[
        str | None,
        Query(max_length=4000, description='Column for each role, as JSON: `{"text": "sentence"}`.'),
    ] = None,
) -> DatasetDocument:
    """Return a data set: how it was parsed, or how it is parsed with these columns; its unusable rows, and its first usable ones."""
    datasets, owner, roles = service.datasets, visitor.owner, _parse_columns(columns)
    cache: ResponseCache = request.app.state.response_cache
    content, uploaded = await asyncio.to_thread(datasets.identify, dataset, owner)
    if uploaded is not None and not roles and format_ in (None, uploaded["format"]):
        return _to_document(uploaded)
    key = ("dataset", content or dataset, format_, *sorted(roles.items()))
    document: DatasetDocument | None = cache.get(key)
    if document is None:
        document = _to_document(
            await service.limiters.datasets.share(key, partial(datasets.describe, dataset, format_, roles, owner))
        )
        if content is not None:
            cache.put(key, document, len(document.model_dump_json()))
    return document


@router.delete("/{id:path}", status_code=204)
async def delete(dataset: DatasetName, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Delete an uploaded data set. Its studies are kept."""
    await asyncio.to_thread(service.datasets.delete, dataset, visitor.owner)
    return Response(status_code=204)


def _to_document(dataset: dict[str, Any]) -> DatasetDocument:
    return DatasetDocument.model_validate({field: dataset[field] for field in DatasetDocument.model_fields})


def _parse_columns(text: str | None) -> dict[str, str]:
    """Parse the `columns` parameter. Raises InvalidRequest."""
    if text is None:
        return {}
    try:
        columns = json.loads(text)
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, dict) or not all(isinstance(column, str) for column in columns.values()):
        raise InvalidRequest('columns must be a JSON object such as {"text": "sentence"}.', pointer="/columns")
    return columns
