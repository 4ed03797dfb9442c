"""Lists in pages, so that neither the server nor we ever hold one answer with everything in it."""

from collections.abc import AsyncIterator

import msgspec

from seatrial.kubernetes.errors import Gone
from seatrial.kubernetes.http.connection import Connection
from seatrial.kubernetes.objects import O
from seatrial.kubernetes.resources import ApiRequest, Resource
from seatrial.kubernetes.wire import ListPage, accept, decode_answer

PAGE = 500
BEGIN_AGAIN = 3  # how often a list that expired in its middle begins again before it is asked for in one piece


class ObjectSelection(msgspec.Struct, frozen=True):
    """Which objects: of a resource, in a namespace ("" is all), by labels and fields as in kubectl's `-l`."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def request(self, verb: str) -> ApiRequest:
        return ApiRequest(verb, self.resource, self.namespace)

    def query(self) -> dict[str, str]:
        query = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in query.items() if value}


async def pages(
    connection: Connection, selection: ObjectSelection, form: type[O], size: int = PAGE
) -> AsyncIterator[ListPage[O] | None]:
    """All pages of one consistent list. The last page's resourceVersion is that of the whole.

    None says that the list begins again, and that what came so far counts no more: its snapshot expired while it was
    read (410). After some times it is asked for in one piece.
    """
    request = selection.request("list")
    token, begun_again = "", 0
    while True:
        query = selection.query()
        if begun_again <= BEGIN_AGAIN:
            query["limit"] = str(size)
        if token:
            query["continue"] = token
        try:
            answer = await connection.request(request, query.items(), accept=accept(form, many=True))
        except Gone:
            if not token:
                raise
            token, begun_again = "", begun_again + 1
            yield None
            continue
        page: ListPage[O] = decode_answer(request, ListPage[form], answer.body)  # type: ignore[valid-type]
        yield page
        token = page.metadata.continue_
        if not token:
            return
