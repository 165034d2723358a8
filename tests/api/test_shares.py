"""Share keys: read access to one analysis or one study, without a token, until revoked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headscope.database import Database
from headscope.jobs import JobDatabase
from tests.api.users import OF_ONE, OF_STUDY, READING, ROUTES, STUDYING, UNKNOWN_ID, Users, ask, refused
from tests.support import studies
from tests.support.server import API, Server

AROUND = [f"{API}/{part}" for part in ("lenses", "mechanisms", "measures", "figures", "session")]
# What is accessible with a key.
SIGNING_IN = [("POST", f"{API}/session"), *((method, path) for method, path in ROUTES if "/oidc" in path)]
OPEN = [*(("GET", path) for path in AROUND), ("GET", "/healthz"), *SIGNING_IN]


@pytest.fixture(scope="module")
def adas(lab: Users) -> str:
    """An analysis of Ada's."""
    return lab.submit(lab.ada, "Ada shares this one.")


@pytest.fixture
def key(lab: Users, adas: str) -> Iterator[str]:
    """A share key of the analysis."""
    made = lab.ada.post(f"{API}/analyses/{adas}/share")
    assert made.status_code == 201
    assert made.json()["link"] == f"/#analysis={adas}&share={made.json()['key']}"
    yield made.json()["key"]
    lab.ada.delete(f"{API}/analyses/{adas}/share")


def query_of(path: str) -> dict[str, str]:
    """Return the query that a route requires."""
    of_a_head = {"layer": "0", "head": "0"}
    more = {"/edges/": of_a_head, "/sums/": of_a_head, "/ask": {"q": "vertical"}}
    return next((fields for part, fields in more.items() if part in path), {})


@pytest.mark.parametrize("path", READING)
def test_a_key_reads_all_of_one_analysis(lab: Users, adas: str, key: str, path: str) -> None:
    """A key works without a token and with another user's. A text has no image, which is 409, and this analysis no effect, which is 404."""
    status = {"/image": 409, "/effects/{effect}": 404, "/effects/{effect}/maps": 404}
    for who in (lab.anonymous, lab.emmy):
        answer = ask(who, "GET", path, adas, params={"share": key, **query_of(path)})
        assert answer.status_code == next((status[end] for end in status if path.endswith(end)), 200), answer.text


@pytest.mark.parametrize("path", AROUND)
def test_a_key_reads_what_the_page_needs_around_it(lab: Users, key: str, path: str) -> None:
    """A key grants the declarations of methods, and a session without a user."""
    assert lab.anonymous.get(path, params={"share": key}).status_code == 200


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route not in OPEN and route not in [("GET", path) for path in [*READING, *STUDYING]]],
    ids=" ".join,
)
def test_a_key_does_nothing_else(lab: Users, adas: str, key: str, route: tuple[str, str]) -> None:
    """A key grants no lists, models or metrics, and no changes."""
    refused(ask(lab.anonymous, *route, adas, params={"share": key}))
    assert lab.ada.get(f"{API}/analyses/{adas}").status_code == 200


def test_a_key_changes_nothing_for_another_user(lab: Users, adas: str, key: str) -> None:
    """Another user with a key can read the analysis, but not delete, share or unshare it."""
    for method, path in OF_ONE:
        if method != "GET":
            answer = ask(lab.emmy, method, path, adas, params={"share": key})
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown-analysis")
    assert adas not in [item["id"] for item in lab.emmy.get(f"{API}/analyses", params={"share": key}).json()["items"]]


def test_a_key_opens_no_other_analysis(lab: Users, adas: str, key: str) -> None:
    """A key grants no other analysis, not even as the other side of a comparison, and does not reveal whether it exists."""
    private = lab.submit(lab.ada, "Ada keeps this one.")
    for path in READING:
        for other in (private, UNKNOWN_ID):
            refused(ask(lab.anonymous, "GET", path, other, params={"share": key}))
    compare = f"{API}/analyses/{{id}}/compare/{{other}}"
    answers = [
        ask(lab.anonymous, "GET", compare, adas, other, params={"share": key}) for other in (private, UNKNOWN_ID)
    ]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {(404, answers[0].json()["detail"])}


@pytest.mark.parametrize("wrong", ["", "0" * 32, "f" * 31, "x" * 32, "\x00", "' OR 1=1 --", "*"])
def test_a_wrong_key(lab: Users, adas: str, key: str, wrong: str) -> None:
    """An invalid key grants nothing, even if a valid one follows it."""
    address = f"{API}/analyses/{adas}"
    refused(lab.anonymous.get(address, params={"share": wrong}))
    refused(lab.anonymous.get(address, params=[("share", wrong), ("share", key)]))
    refused(lab.anonymous.get(address, headers={"Authorization": f"Bearer {key}"}))
    refused(lab.anonymous.get(address, headers={"Cookie": f"share={key}"}))


def test_a_key_is_long_and_the_same_each_time(lab: Users, adas: str, key: str) -> None:
    """A key has 128 bits; it stays the same until it is revoked."""
    address = f"{API}/analyses/{adas}/share"
    assert len(bytes.fromhex(key)) == 16
    assert lab.ada.post(address).json()["key"] == key
    assert lab.ada.delete(address).status_code == 204
    refused(lab.anonymous.get(f"{API}/analyses/{adas}", params={"share": key}))
    again = lab.ada.post(address).json()["key"]
    assert again != key
    refused(lab.anonymous.get(f"{API}/analyses/{adas}", params={"share": key}))
    assert lab.anonymous.get(f"{API}/analyses/{adas}", params={"share": again}).status_code == 200


def test_each_user_has_a_key_of_their_own(lab: Users) -> None:
    """Users who submitted the same analysis share and revoke independently; deleting the analysis revokes the user's key."""
    text = "Both of them share this one."
    id_ = lab.submit(lab.ada, text)
    assert lab.submit(lab.emmy, text) == id_
    address = f"{API}/analyses/{id_}"
    adas, emmys = (who.post(f"{address}/share").json()["key"] for who in (lab.ada, lab.emmy))
    assert adas != emmys
    assert lab.ada.delete(address).status_code == 204
    refused(lab.anonymous.get(address, params={"share": adas}))
    assert lab.anonymous.get(address, params={"share": emmys}).status_code == 200
    assert lab.emmy.delete(address).status_code == 204
    refused(lab.anonymous.get(address, params={"share": emmys}))


def test_a_revoked_user_shares_nothing(lab: Users) -> None:
    """The user's keys stop with the user's access, and return with it; those of other users stay."""
    text = "Mary and Ada share this one."
    mary = lab.server.visitor(lab.server.create_user("mary-who-shares"))
    id_ = lab.submit(mary, text)
    assert lab.submit(lab.ada, text) == id_
    address = f"{API}/analyses/{id_}"
    marys, adas = (who.post(f"{address}/share").json()["key"] for who in (mary, lab.ada))
    lab.server.revoke_user("mary-who-shares")
    refused(lab.anonymous.get(address, params={"share": marys}))
    assert lab.anonymous.get(address, params={"share": adas}).status_code == 200
    lab.server.create_user("mary-who-shares")
    assert lab.anonymous.get(address, params={"share": marys}).status_code == 200
    mary.close()


def test_keys_outlive_the_server(lab: Users, adas: str, key: str) -> None:
    """Keys are kept in the job database."""
    database = JobDatabase(Database(lab.server.home / "headscope.db"))
    assert database.shared(key) == adas
    database.close()


def test_on_a_server_without_users(server: Server) -> None:
    """Without users, a key can be created but is not needed."""
    id_ = server.analyse(model="bert", text="No user needs a key.")["id"]
    key = server.post(None, f"/analyses/{id_}/share").json()["key"]
    assert server.get(f"/analyses/{id_}", params={"share": key}).status_code == 200
    assert server.post(None, f"/analyses/{UNKNOWN_ID}/share").json()["code"] == "unknown-analysis"
    for path, kind in ((f"/analyses/{UNKNOWN_ID}", "analysis"), (f"/studies/{id_}", "study")):
        answer = server.client.delete(f"{API}{path}/share")
        assert (answer.status_code, answer.json()["code"]) == (404, f"unknown-{kind}")
    assert server.post(None, f"/analyses/{id_}/share").json()["key"] == key
    assert server.client.delete(f"{API}/analyses/{id_}/share").status_code == 204


@pytest.fixture(scope="module")
def study(lab: Users) -> str:
    """A study of Ada's, with the figure that the routes request."""
    body = studies.asked(12, figures=["entropy"], seed=9)
    made = lab.ada.post(f"{API}/studies", json=body, headers={"Prefer": "wait=60"})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


@pytest.fixture
def study_key(lab: Users, study: str) -> Iterator[str]:
    """A share key of the study."""
    made = lab.ada.post(f"{API}/studies/{study}/share")
    assert made.status_code == 201
    assert made.json()["link"] == f"/?studies#study={study}&share={made.json()['key']}"
    yield made.json()["key"]
    lab.ada.delete(f"{API}/studies/{study}/share")


def test_a_key_reads_all_of_one_study(lab: Users, study: str, study_key: str) -> None:
    """A key grants figures, heads, tables, examples and progress, without a token and with another user's, until it is revoked."""
    for path in STUDYING:
        for who in (lab.anonymous, lab.emmy):
            answer = ask(who, "GET", path, study, params={"share": study_key})
            assert answer.status_code == 200, answer.text
    assert lab.ada.delete(f"{API}/studies/{study}/share").status_code == 204
    for path in STUDYING:
        refused(ask(lab.anonymous, "GET", path, study, params={"share": study_key}))
        assert ask(lab.emmy, "GET", path, study, params={"share": study_key}).json()["code"] == "unknown-study"


def test_a_key_to_a_study_does_nothing_else(lab: Users, adas: str, study: str, study_key: str) -> None:
    """A key grants neither the data set nor lists nor changes, and no other study or analysis."""
    sent = {"params": {"share": study_key}}
    for route in ROUTES:
        if route not in OPEN and route not in [("GET", path) for path in [*READING, *STUDYING]]:
            refused(ask(lab.anonymous, *route, study, **sent))
    for method, path in OF_STUDY:
        if method != "GET":
            assert ask(lab.emmy, method, path, study, **sent).json()["code"] == "unknown-study"
        else:
            refused(ask(lab.anonymous, method, path, UNKNOWN_ID, **sent))
    for path in READING:
        refused(ask(lab.anonymous, "GET", path, adas, **sent))
    data = lab.ada.get(f"{API}/studies/{study}").json()["dataset"]["id"]
    assert lab.ada.get(f"{API}/datasets/{data}").status_code == 200
    refused(lab.anonymous.get(f"{API}/datasets/{data}", **sent))
    assert study not in [item["id"] for item in lab.emmy.get(f"{API}/studies", **sent).json()["items"]]


def test_a_key_opens_one_kind_of_thing(lab: Users, adas: str, key: str, study: str, study_key: str) -> None:
    """A key of an analysis is not valid for a study of that id, and vice versa."""
    for path in STUDYING:
        assert ask(lab.anonymous, "GET", path, adas, params={"share": key}).json()["code"] == "unknown-study"
    for path in READING:
        answer = ask(lab.anonymous, "GET", path, study, params={"share": study_key, **query_of(path)})
        assert answer.json()["code"] == "unknown-analysis"


def test_a_forgotten_study_takes_its_key_along(lab: Users) -> None:
    """The link no longer works."""
    body = studies.asked(12, seed=10)
    id_ = lab.ada.post(f"{API}/studies", json=body, headers={"Prefer": "wait=60"}).json()["id"]
    address = f"{API}/studies/{id_}"
    key = lab.ada.post(f"{address}/share").json()["key"]
    assert lab.anonymous.get(address, params={"share": key}).status_code == 200
    assert lab.ada.delete(address).status_code == 204
    refused(lab.anonymous.get(address, params={"share": key}))
