"""The page of a server with users: signing in and out, share links, and revoked tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.api.users import Users, users
from tests.browser.axe import check
from tests.browser.test_looks import SIZES, faint
from tests.browser.visit import Visit, address, box, comes_to
from tests.support.extent import extent
from tests.support.server import API, eventually

Begin = Callable[..., Visit]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Users]:
    """A server with MiniLM and two users."""
    with users(tmp_path_factory.mktemp("lab") / "home", models, prewarm=True) as running:
        yield running


@pytest.fixture
def begin(visits: Begin, lab: Users) -> Begin:
    """Begins visits to that server; it answers 401, of which the browser speaks in its console."""

    def visit(**context: object) -> Visit:
        begun = visits(f"http://{lab.server.url}", **context)
        begun.network_errors_expected = True
        return begun

    return visit


def sheet(visit: Visit, name: str = "Sign in") -> Locator:
    """The sheet of that title."""
    return visit.page.get_by_role("dialog", name=name)


def button(visit: Visit, name: str) -> Locator:
    """A button of the page itself, not of a sheet."""
    return visit.page.get_by_role("banner").get_by_role("button", name=name, exact=True)


def sign_in(visit: Visit, token: str, fragment: str = "") -> Visit:
    """Come to the page, and give the token as a hand does."""
    visit.page.goto(f"{visit.root}/{fragment}")
    visit.page.get_by_label("Access token").fill(token)
    visit.page.keyboard.press("Enter")
    visit.painted("head")
    return visit


def signed_in(visit: Visit, name: str) -> None:
    """The page knows who is there, and asks nothing more."""
    expect(button(visit, f"Signed in as {name}")).to_have_text(name)
    expect(sheet(visit)).to_have_count(0)
    expect(visit.alert).to_have_count(0)


def share(visit: Visit) -> str:
    """Press Share; the link."""
    button(visit, "Share").click()
    field = sheet(visit, "Share this analysis").get_by_role("textbox", name="Link")
    expect(field).to_have_value(re.compile("#.*share="))
    return field.input_value()


def test_in_and_out(begin: Begin, lab: Users) -> None:
    """A wrong token gets one sentence; the right one the first picture; it is kept over a reload and gone after signing out."""
    visit = begin()
    visit.page.goto(f"{visit.root}/")
    field = visit.page.get_by_label("Access token")
    expect(field).to_be_focused()
    # Without it, password managers and the browser's console complain.
    expect(visit.page.locator("form:has([autocomplete='current-password']) [autocomplete='username']")).to_be_attached()
    field.press_sequentially("c/?")
    visit.page.keyboard.press("Enter")
    expect(sheet(visit).get_by_role("alert")).to_contain_text("This access token is invalid")
    expect(field).to_be_focused()
    field.fill(f"  {lab.tokens['ada']}\n")
    sheet(visit).get_by_role("button", name="Sign in").click()
    visit.painted("head")
    signed_in(visit, "ada")
    expect(visit.tokens.filter(has_text="boats").first).to_be_visible()
    visit.page.reload()
    visit.painted("head")
    signed_in(visit, "ada")
    visit.submit("Something private.")
    button(visit, "Signed in as ada").click()
    sheet(visit, "Signed in as ada").get_by_role("button", name="Sign out").click()
    expect(sheet(visit)).to_be_visible()
    expect(visit.page.get_by_text("private")).to_have_count(0)
    expect(visit.page).not_to_have_url(re.compile("private"))
    comes_to(visit.context.cookies, [])


def test_no_script_can_read_the_token(begin: Begin, lab: Users) -> None:
    """It is in a cookie that is for HTTP only, and nowhere else in the browser."""
    visit = sign_in(begin(), lab.tokens["ada"])
    (cookie,) = visit.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", API)
    kept = "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), location.href, document.documentElement.outerHTML].join()"
    assert lab.tokens["ada"] not in visit.page.evaluate(kept)
    expect(visit.page.get_by_label("Access token")).to_have_count(0)


# test_sharing signs in with a text in the address.
@pytest.mark.long
def test_what_was_refused_is_asked_again(begin: Begin, lab: Users) -> None:
    """A link with a text opens on that text once the reader has signed in."""
    visit = sign_in(begin(), lab.tokens["emmy"], address(text="Rain fell on the roof.", head="1.2"))
    visit.shows("Rain", "fell", "on", "the", "roof", ".")
    expect(visit.image("Heat map of head 1.2")).to_be_visible()


def test_a_token_that_ends(begin: Begin, lab: Users) -> None:
    """A rejected page asks for a token again, keeps text and picture, and continues as the user who signs in."""
    visit = sign_in(begin(), lab.server.create_user("mary"))
    lab.server.revoke_user("mary")
    visit.text.fill("Snow lay on the mat.")
    visit.text.press("Enter")
    expect(sheet(visit)).to_contain_text("Your text is kept.")
    expect(visit.tokens.filter(has_text="boats").first).to_be_visible()
    visit.page.keyboard.press("Escape")
    expect(sheet(visit)).to_have_count(0)
    expect(visit.text).to_have_value("Snow lay on the mat.")
    button(visit, "Sign in").click()
    visit.page.get_by_label("Access token").fill(lab.tokens["ada"])
    visit.page.keyboard.press("Enter")
    visit.shows("Snow", "lay", "on", "the", "mat", ".")
    signed_in(visit, "ada")


def test_sharing(begin: Begin, lab: Users) -> None:
    """A share link shows the same head without signing in, and nothing else, until it is revoked."""
    visit = sign_in(
        begin(permissions=["clipboard-read", "clipboard-write"]),
        lab.tokens["ada"],
        address(text="Dogs share a thought.", head="3.4"),
    )
    visit.lens("effective")
    link = share(visit)
    expect(sheet(visit, "Share this analysis").get_by_text("Copied.")).to_be_visible()
    assert visit.page.evaluate("navigator.clipboard.readText()") == link
    check(visit, narrow=False)
    assert "thought" not in link

    guest = begin()
    guest.page.goto(link)
    guest.painted("head")
    guest.shows("Dogs", "share", "a", "thought", ".")
    expect(guest.image("Heat map of head 3.4")).to_be_visible()
    expect(guest.page.get_by_role("combobox", name="Lens")).to_have_value("effective")
    expect(guest.page.get_by_role("combobox", name="Model")).to_have_value("minilm")
    expect(guest.text).to_have_value("Dogs share a thought.")
    expect(sheet(guest)).to_have_count(0)
    expect(guest.page.get_by_role("banner").get_by_role("button", name=re.compile("^(Share|Sign)"))).to_have_count(0)
    before = guest.now()
    guest.head(1, 1).click()
    guest.painted("head", before)
    if extent(True, False):  # test_address.py loads a page again
        guest.page.reload()
        guest.painted("head")
    expect(guest.image("Heat map of head 1.1")).to_be_visible()

    guest.text.fill("And I another one.")
    guest.text.press("Enter")
    expect(sheet(guest)).to_contain_text("Sign in to run analyses")
    guest.page.keyboard.press("Escape")
    expect(guest.tokens.filter(has_text="thought").first).to_be_visible()
    guest.page.go_back()
    expect(guest.text).to_have_value("Dogs share a thought.")

    sheet(visit, "Share this analysis").get_by_role("button", name="Stop sharing").click()
    expect(sheet(visit, "Share this analysis")).to_contain_text("no longer works")
    stranger = begin()
    stranger.page.goto(link)
    expect(sheet(stranger)).to_contain_text("This link has been revoked")
    expect(stranger.page.get_by_text("thought")).to_have_count(0)


@pytest.mark.long
def test_a_shared_analysis_for_another_user(begin: Begin, lab: Users) -> None:
    """Who is signed in already reads it, and asks their own questions from there."""
    visit = sign_in(begin(), lab.tokens["ada"], address(text="A thought for Emmy."))
    link = share(visit)
    emmy = sign_in(begin(), lab.tokens["emmy"])
    emmy.page.goto(link)
    expect(emmy.text).to_have_value("A thought for Emmy.")
    emmy.submit("Emmy has another one.")
    signed_in(emmy, "emmy")
    expect(emmy.page).not_to_have_url(re.compile("share="))
    texts = [item["text"] for item in lab.emmy.get(f"{API}/analyses").json()["items"]]
    assert "Emmy has another one." in texts
    assert "A thought for Emmy." not in texts


@pytest.mark.long
def test_a_shared_analysis_that_still_runs(begin: Begin, lab: Users) -> None:
    """The guest sees how far it is, and can't cancel it."""
    body = {
        "model": "deep",
        "text": "The cat sat on the mat because it was tired. " * 20,
        "lenses": ["weights"],
        "measures": ["entropy"],
    }
    id_ = lab.ada.post(f"{API}/analyses", json=body).json()["id"]
    link = lab.ada.post(f"{API}/analyses/{id_}/share").json()["link"]
    guest = begin()
    guest.page.goto(f"{guest.root}{link}")
    expect(guest.page.get_by_role("progressbar")).to_be_visible()
    guest.page.keyboard.press("Escape")
    expect(guest.page.get_by_role("progressbar")).to_have_count(0)
    assert lab.ada.get(f"{API}/analyses/{id_}").json()["status"] in ("queued", "running", "done")
    guest.page.reload()
    guest.painted("head")
    eventually(lambda: lab.ada.get(f"{API}/analyses/{id_}").json()["status"] == "done", "its end")


def study(lab: Users, name: str) -> str:
    """A study of Ada's that is done."""
    data = f"The boats lay by the bank.\nPeople asked where the water went.\nThe clock of {name} stood still.\n"
    body = {"model": "minilm", "dataset": {"name": name, "data": data}, "figures": ["entropy"]}
    made = lab.ada.post(f"{API}/studies", json=body, headers={"Prefer": "wait=60"})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def drawn(visit: Visit) -> None:
    """A figure of a study is there."""
    expect(visit.page.locator(".js-plotly-plot .xtick").first).to_be_attached()


@pytest.mark.long
def test_a_study_is_shared(begin: Begin, lab: Users) -> None:
    """A share link shows the figures, heads, tables and texts of one study, read-only, until it is revoked."""
    other, id_ = study(lab, "private.txt"), study(lab, "shared.txt")
    visit = sign_in(begin(), lab.tokens["ada"])
    visit.page.goto(f"{visit.root}/?studies{address(study=id_, figures='entropy', other=other)}")
    drawn(visit)
    button(visit, "Share").click()
    field = sheet(visit, "Share this study").get_by_role("textbox", name="Link")
    expect(field).to_have_value(re.compile("#.*share="))
    link = field.input_value()
    assert other not in link

    guest = begin()
    guest.page.goto(link)
    drawn(guest)
    expect(guest.page.get_by_role("heading", name=re.compile(r"^shared\.txt"))).to_be_visible()
    expect(sheet(guest)).to_have_count(0)
    expect(guest.page.get_by_role("navigation")).to_have_count(0)
    expect(guest.page.get_by_text("private")).to_have_count(0)
    expect(guest.page.get_by_role("button", name=re.compile("^(Delete|Share$|New|Cancel)"))).to_have_count(0)
    check(guest)
    guest.page.get_by_text("heads", exact=True).click()
    expect(guest.page.get_by_role("list", name="Examples").get_by_role("link").first).to_be_visible()
    guest.page.get_by_text("tables", exact=True).click()
    with guest.page.expect_download():
        guest.page.get_by_role("button", name="CSV").click()
    guest.page.reload()
    expect(guest.page.get_by_role("group", name="Tables")).to_be_visible()

    sheet(visit, "Share this study").get_by_role("button", name="Stop sharing").click()
    expect(sheet(visit, "Share this study")).to_contain_text("no longer works")
    stranger = begin()
    stranger.page.goto(link)
    expect(sheet(stranger)).to_contain_text("This link has been revoked")
    expect(stranger.page.get_by_text("shared.txt")).to_have_count(0)


@pytest.mark.long
def test_a_token_that_ends_among_studies(begin: Begin, lab: Users) -> None:
    """The page asks who is there as soon as it is refused, and goes on with what was open."""
    id_ = study(lab, "kept.txt")
    visit = sign_in(begin(), lab.server.create_user("joan"))
    lab.server.revoke_user("joan")
    visit.page.goto(f"{visit.root}/?studies{address(study=id_)}")
    expect(sheet(visit)).to_contain_text("Sign in to see your studies.")
    visit.page.get_by_label("Access token").fill(lab.tokens["ada"])
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("heading", name=re.compile(r"^kept\.txt"))).to_be_visible()
    drawn(visit)
    expect(visit.page.get_by_role("navigation", name="Studies").get_by_text("kept.txt")).to_be_visible()
    visit.context.clear_cookies()
    visit.page.get_by_text("heads", exact=True).click()
    expect(sheet(visit)).to_be_visible()
    visit.page.get_by_label("Access token").fill(lab.tokens["emmy"])
    visit.page.keyboard.press("Enter")
    expect(visit.alert).to_contain_text("There is no study of that id")
    expect(visit.page.get_by_text("kept.txt")).to_have_count(0)


# Every test of a server without users begins without a sheet; account.test.ts.
@pytest.mark.long
def test_nothing_of_it_without_users(visit: Visit) -> None:
    """A server without users does not ask for a token and offers none of this."""
    visit.open()
    assert visit.page.evaluate("fetch('/api/v1/session').then((answer) => answer.json())") == {
        "user": None,
        "home": "embedded",
    }
    expect(visit.page.get_by_role("button", name=re.compile("^(Share|Sign)"))).to_have_count(0)
    expect(visit.page.get_by_text("Signed in")).to_have_count(0)


@pytest.mark.long
def test_looks(begin: Begin, lab: Users) -> None:
    """Enough contrast, nothing wider than the window, on the sheets too."""
    visit = begin()

    def check(title: str) -> None:
        expect(sheet(visit, title)).to_be_visible()
        for scheme, (width, height) in zip(("light", "dark", "dark"), SIZES, strict=True):
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.set_viewport_size({"width": width, "height": height})
            expect(visit.page.locator("html")).to_have_attribute("data-theme", scheme)
            comes_to(lambda: faint(visit), [])
            place = box(sheet(visit, title))
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= width
            visit.holds(f"document.documentElement.scrollWidth <= {width}")

    visit.page.goto(f"{visit.root}/")
    visit.page.get_by_label("Access token").fill("wrong")
    visit.page.keyboard.press("Enter")
    expect(sheet(visit).get_by_role("alert")).to_be_visible()
    check("Sign in")
    sign_in(visit, lab.tokens["ada"])
    share(visit)
    check("Share this analysis")
