"""Forms that change budgets, prices, data sets and templates, in a real browser; only who may change them sees them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from managers import Manager
from web.browsers import Window, window
from web.test_access import log_in, token

pytestmark = pytest.mark.slow
Json = dict[str, Any]
SHOTS = os.environ.get("ROTA_TEST_SHOTS")
"""A folder for pictures of the forms, to be looked at."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that requires tokens, with a budget, prices, a data set and a template."""
    made = Manager(tmp_path_factory.mktemp("forms"), "--emulate", "gpu=4/2", "--require-token").start_guarded()
    made.client.put_budget("thesis", {"tenant": "vision", "gpu_hours": 5})
    made.client.put_data_set("corpus", {"path": "/usr/share", "about": "texts"})
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def desk(chromium: Browser, guarded: Manager) -> Window:
    """The window of an admin."""
    made = window(chromium, guarded)
    log_in(made, guarded.token)
    return made


def dialog(page: Page, name: str) -> Locator:
    found = page.get_by_role("dialog", name=name)
    expect(found).to_be_visible()
    return found


def choose(page: Page, form: Locator, label: str, option: str) -> None:
    form.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def fill(form: Locator, **values: str) -> None:
    for label, value in values.items():
        form.get_by_label(label.replace("__", ", ").replace("_", " "), exact=True).fill(value)


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def row(page: Page, table: str, name: str) -> Locator:
    return page.get_by_role("table", name=table).locator("tbody tr").filter(has_text=name)


def test_a_budget_is_added_changed_and_removed(desk: Window, guarded: Manager) -> None:
    page = desk.go("/usage")
    page.get_by_role("button", name="Add budget").click()
    form = dialog(page, "Add a budget")
    fill(form, Name="thesis", Amount="many", User="ada")
    choose(page, form, "Tenant", "nlp")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_have_text("Amount is 'many'; it must be a number of 0 or more")
    fill(form, Amount="12.5", Warn_at="50%, 150%")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("'150%'; it must be above 0% and at most 100%")
    fill(form, Warn_at="50%, 90")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("there is a budget 'thesis' already")
    assert [each["name"] for each in guarded.client.budgets()] == ["thesis"]
    assert form.get_by_label("User", exact=True).input_value() == "ada", "nothing that was typed is lost"
    shoot(page, "budget-wrong")
    fill(form, Name="reading")
    choose(page, form, "Period", "a quarter")
    choose(page, form, "When it is used up", "hold waiting jobs")
    form.get_by_role("button", name="Save").click()

    expect(row(page, "Budgets", "reading")).to_contain_text("0.00 of 12.50 GPU hours")
    (made,) = [each for each in guarded.client.budgets() if each["name"] == "reading"]
    assert (made["tenant"], made["user"], made["project"]) == ("nlp", "ada", None)
    assert (made["period"], made["at_limit"], made["warn"], made["cost"]) == ("quarter", "hold", [0.5, 0.9], None)

    page.get_by_role("button", name="Change budget reading").click()
    form = dialog(page, "Change budget reading")
    expect(form.get_by_label("Name", exact=True)).to_be_disabled()
    expect(form.get_by_label("Warn at")).to_have_value("50%, 90%")
    fill(form, Amount="7", User="")
    choose(page, form, "Of", "cost")
    form.get_by_role("button", name="Save").click()
    expect(row(page, "Budgets", "reading")).to_contain_text("of 7.00")
    (made,) = [each for each in guarded.client.budgets() if each["name"] == "reading"]
    assert (made["cost"], made["gpu_hours"], made["user"], made["at_limit"]) == (7.0, None, None, "hold")

    page.get_by_role("button", name="Remove budget reading").click()
    dialog(page, "Remove budget reading?").get_by_role("button", name="Remove reading").click()
    expect(row(page, "Budgets", "reading")).to_have_count(0)
    assert [each["name"] for each in guarded.client.budgets()] == ["thesis"]
    changes = [(each["what"], each["thing"]) for each in guarded.client.get("/audit") if each["thing"] == "reading"]
    assert len(changes) == 3, changes


def test_prices_are_set_and_those_left_empty_are_none(desk: Window, guarded: Manager) -> None:
    page = desk.go("/usage")
    page.get_by_role("button", name="Prices").click()
    form = dialog(page, "Prices")
    fill(form, Currency="EUR", An_hour_of_gpu="-1")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_have_text("An hour of gpu is '-1'; it must be a number of 0 or more")
    fill(form, An_hour_of_gpu="2.5", A_kWh="0.3", Currency="too long a currency")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("currency is 'too long a currency'")
    assert guarded.client.get("/prices")["per_gpu_hour"] == {}
    fill(form, Currency="EUR")
    form.get_by_role("button", name="Save").click()

    expect(page.get_by_role("dialog")).to_have_count(0)
    found = guarded.client.get("/prices")
    assert (found["currency"], found["per_gpu_hour"], found["per_kwh"]) == ("EUR", {"gpu": 2.5}, 0.3)
    expect(page.locator(".tile").filter(has_text="Cost")).to_contain_text("EUR")
    page.get_by_role("button", name="Prices").click()
    form = dialog(page, "Prices")
    expect(form.get_by_label("An hour of gpu")).to_have_value("2.5")
    shoot(page, "prices")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_data_set_is_added_changed_and_removed(desk: Window, guarded: Manager, tmp_path: Path) -> None:
    page = desk.go("/data-sets")
    page.get_by_role("button", name="Add data set").click()
    form = dialog(page, "Add a data set")
    fill(form, Name="english", Where=str(tmp_path / "absent"), For="vision, nobody")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("nobody")
    fill(form, For="vision, nlp")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("is no folder of the manager's machine")
    fill(form, Where="s3://corpora/en", Options_of_the_URL="endpoint_url")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_have_text("options: line 1 must be like NAME=VALUE")
    assert [each["name"] for each in guarded.client.data_sets()] == ["corpus"]
    secret = "key=A\nsecret=hush-hush"
    fill(form, Options_of_the_URL="endpoint_url=http://127.0.0.1:9", Secrets_of_the_URL=secret)
    form.get_by_role("button", name="Save").click()

    expect(row(page, "Data sets", "english")).to_contain_text("s3://corpora/en")
    made = next(each for each in guarded.client.data_sets() if each["name"] == "english")
    assert (made["tenants"], made["secrets"], made["read_only"]) == (["vision", "nlp"], ["key", "secret"], True)
    page.get_by_role("button", name="Change data set english").click()
    form = dialog(page, "Change data set english")
    assert "hush-hush" not in page.content()
    fill(form, Where="s3://other/en")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("enter them again: key, secret")
    shoot(page, "data-set")
    fill(form, Where="s3://corpora/en", Description="English", For="")
    form.get_by_role("button", name="Save").click()
    expect(row(page, "Data sets", "english")).to_contain_text("English")
    made = next(each for each in guarded.client.data_sets() if each["name"] == "english")
    assert (made["tenants"], made["secrets"], made["about"]) == ([], ["key", "secret"], "English")

    page.get_by_role("button", name="Remove data set english").click()
    dialog(page, "Remove data set english?").get_by_role("button", name="Remove english").click()
    expect(row(page, "Data sets", "english")).to_have_count(0)
    assert [each["name"] for each in guarded.client.data_sets()] == ["corpus"]


def test_a_maintainer_adds_copies_changes_and_removes_templates(chromium: Browser, guarded: Manager) -> None:
    _, secret = token(guarded, "maintainer", "vision")
    desk = window(chromium, guarded)
    log_in(desk, secret)
    page = desk.go("/templates?name=pytorch-ddp")
    expect(page.get_by_role("button", name="Remove")).to_be_hidden()
    page.get_by_role("button", name="Copy").click()
    form = dialog(page, "Add a template")
    expect(form.get_by_label("Template, YAML")).to_have_value(re.compile("{{ epochs }}"))
    fill(form, Name="mine", Template__YAML="job: [")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("template")
    fill(form, Template__YAML="description: Ours\nparameters: {lr: {type: number}}\njob: {run: echo hello}\n")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("parameters.lr is used nowhere")
    shoot(page, "template-wrong")
    fill(form, Template__YAML="description: Ours\nparameters: {lr: {default: 1}}\njob: {run: 'train {{ lr }}'}\n")
    form.get_by_role("button", name="Save").click()

    page.wait_for_url("**/templates?name=vision/mine")
    expect(page.get_by_role("region", name="Job file")).to_contain_text("train 1")
    page.get_by_role("button", name="Change").click()
    form = dialog(page, "Change template mine")
    expect(form.get_by_label("Name", exact=True)).to_be_disabled()
    fill(form, Template__YAML="description: Ours\nparameters: {lr: {default: 2}}\njob: {run: 'train {{ lr }}'}\n")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("region", name="Job file")).to_contain_text("train 2")
    page.get_by_role("button", name="Remove").click()
    dialog(page, "Remove template mine?").get_by_role("button", name="Remove mine").click()
    page.wait_for_url("**/templates")
    assert "mine" not in {each["name"] for each in guarded.client.get("/templates")}
    assert desk.errors == []


def test_who_may_not_change_them_finds_no_form(chromium: Browser, guarded: Manager) -> None:
    for role in ("member", "viewer", "maintainer"):
        _, secret = token(guarded, role, "vision", "nlp")
        desk = window(chromium, guarded)
        log_in(desk, secret)
        page = desk.go("/usage")
        expect(row(page, "Budgets", "thesis")).to_have_count(1)
        for name in ("Prices", "Add budget", "Change budget thesis", "Remove budget thesis"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page = desk.go("/data-sets")
        expect(row(page, "Data sets", "corpus")).to_have_count(1)
        for name in ("Add data set", "Change data set corpus", "Remove data set corpus"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        if role == "member":
            page = desk.go("/templates")
            expect(page.get_by_role("button", name="Submit")).to_have_count(1)
            for name in ("Add", "Copy", "Change", "Remove"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_an_admin_whose_rights_end_saves_nothing(chromium: Browser, guarded: Manager) -> None:
    made, secret = token(guarded, "admin")
    desk = window(chromium, guarded)
    log_in(desk, secret)
    page = desk.go("/usage")
    page.get_by_role("button", name="Add budget").click()
    form = dialog(page, "Add a budget")
    fill(form, Name="late", Amount="1")
    guarded.client.delete(f"/tokens/{made}")
    page.wait_for_url("**/login*")
    assert "late" not in {each["name"] for each in guarded.client.budgets()}


def test_the_forms_fit_a_phone_in_the_dark(chromium: Browser, guarded: Manager) -> None:
    desk = window(chromium, guarded, phone=True, scheme="dark")
    log_in(desk, guarded.token)
    for path, opener, title in (
        ("/usage", "Add budget", "Add a budget"),
        ("/usage", "Prices", "Prices"),
        ("/data-sets", "Add data set", "Add a data set"),
        ("/templates", "Add", "Add a template"),
    ):
        page = desk.go(path)
        page.get_by_role("button", name=opener, exact=True).click()
        form = dialog(page, title)
        expect(form.get_by_role("button", name="Save")).to_be_enabled()
        box = form.bounding_box()
        assert box is not None
        assert box["width"] <= 390, path
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        form.get_by_role("button", name="Save").scroll_into_view_if_needed()
        shoot(page, f"phone-{title.replace(' ', '-')}")
    assert desk.errors == []
