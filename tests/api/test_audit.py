"""The audit log: who did what, without what they typed or what lets them in."""

from __future__ import annotations

from headscope.api.middleware.audit import EVENTS
from tests.api.users import ROUTES, Users
from tests.support.server import API, eventually


def test_every_change_has_an_event() -> None:
    """A new route that changes something fails here until its event is named. To begin a sign-in changes nothing."""
    changing = {(method, path.removeprefix(API)) for method, path in ROUTES if method != "GET"}
    assert changing - {("POST", "/session/oidc")} == EVENTS.keys()


def recorded(lab: Users) -> list[str]:
    """The events of the audit log, as lines without their time."""
    return [
        line.partition("headscope.audit ")[2] for line in lab.server.log().splitlines() if "headscope.audit " in line
    ]


def test_who_did_what(lab: Users) -> None:
    """Submissions, share keys, data sets, signing in and deletions are recorded with user and resource; reading and failures are not."""
    known = len(recorded(lab))
    id_ = lab.submit(lab.ada, "Audited words.")
    address = f"{API}/analyses/{id_}"
    key = lab.ada.post(f"{address}/share").json()["key"]
    assert lab.ada.get(address, params={"share": key}).status_code == 200
    lab.ada.delete(f"{address}/share")
    data = lab.ada.post(
        f"{API}/datasets?name=a.txt", content=b"x\n", headers={"Content-Type": "application/octet-stream"}
    )
    lab.ada.delete(f"{API}/datasets/{data.json()['id']}")
    assert lab.emmy.delete(address).status_code == 404
    assert lab.ada.delete(address).status_code == 204
    with lab.server.visitor() as page:
        page.post(f"{API}/session", json={"token": lab.tokens["emmy"]})
        page.delete(f"{API}/session")
    eventually(lambda: any("signed out" in line for line in recorded(lab)[known:]), "the last event")
    events = [line for line in recorded(lab)[known:] if "refused" not in line]
    assert [line.partition("  ")[0] for line in events] == [
        "analysis submitted", "share key created", "share key revoked", "data set uploaded", "data set deleted", "analysis deleted", "signed in", "signed out",
    ]  # fmt: skip
    assert all("user=ada" in line for line in events[:6])
    assert all("user=emmy" in line for line in events[6:])
    assert f"resource={address}" in events[0]
    assert f"resource={address}/share" in events[1]
    shown = " ".join(recorded(lab))
    for secret in (key, "Audited words", *lab.tokens.values()):
        assert secret not in shown


def test_who_was_refused(lab: Users) -> None:
    """A refusal is recorded with its route; of many in a second only the first, and their number with the next one."""
    known = len(recorded(lab))

    def refusals() -> list[str]:
        lab.anonymous.get(f"{API}/models/a-secret-name")
        return [line for line in recorded(lab)[known:] if line.startswith("access refused")]

    eventually(lambda: len(refusals()) > 1, "two of them")
    for line in refusals():
        assert "status=401" in line
        assert "secret" not in line
    assert int(refusals()[-1].partition("count=")[2].split()[0]) >= 1
