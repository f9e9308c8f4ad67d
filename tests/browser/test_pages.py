"""Reports in a real browser: silent, self-contained, quick, whole without script, usable by keyboard."""

from pathlib import Path

import pytest

from quantflow.report.wording import LANGUAGES
from tests.browser.conftest import SIZES, Browser
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

OPEN_SECONDS = 1.0
LARGEST_PAGE = 1_500_000
NAMES = [f"{page}-{language}" for page in PAGES for language in LANGUAGES]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_without_a_message_or_a_request_and_fits(
    browser: Browser, pages: dict[str, Path], name: str, size: str
) -> None:
    opened = browser.open(pages[name], size)
    browser.shoot(f"{name}-{size}")
    assert opened.messages == []
    assert opened.requests == []
    script = "return [document.documentElement.scrollWidth, innerWidth]"
    content, window = browser.driver.execute_script(script)
    assert content <= window, "something sticks out to the right"


@pytest.mark.parametrize("name", ["fail-en", "pass-zh"])
def test_a_page_is_dark_where_its_reader_s_screen_is(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    assert browser.open(pages[name], dark=True).messages == []
    browser.shoot(f"{name}-dark")
    colour = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in colour[4:-1].split(",")) < 64


def test_the_largest_page_is_small_and_opens_at_once(browser: Browser, pages: dict[str, Path]) -> None:
    assert pages["large-zh"].stat().st_size < LARGEST_PAGE
    assert browser.open(pages["large-en"]).seconds < OPEN_SECONDS


def test_without_script_everything_is_there_and_nothing_that_needs_one(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["fail-en"], script=False)
    browser.shoot("fail-en-no-script")
    source = browser.driver.page_source
    assert "<button" not in source and "<input" not in source
    browser.open(pages["fail-en"])
    assert "<button" in browser.driver.page_source


def test_a_column_is_sorted_by_its_numbers_with_the_keyboard(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["pass-en"])
    column = """
        const table = [...document.querySelectorAll('#slices table.sortable')].at(-1);
        const heading = table.tHead.rows[0].cells[2];
        heading.querySelector('button').focus();
        return heading;
    """
    read = """
        const table = arguments[0].closest('table');
        return [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
    """
    from selenium.webdriver.common.keys import Keys

    heading = browser.driver.execute_script(column)
    orders = []
    for _ in range(2):
        browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        orders.append(browser.driver.execute_script(read, heading))
    assert orders == [["4,161", "4,377", "5,230", "6,120"], ["6,120", "5,230", "4,377", "4,161"]]
    assert heading.get_attribute("aria-sort") == "descending"


def test_a_long_table_is_filtered_by_what_is_typed(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large-en"])
    field = browser.driver.find_element("css selector", "#criteria .filter")
    rows = "const rows = [...document.querySelectorAll('#criteria tbody')];"
    everything = browser.driver.execute_script(f"{rows} return rows.length")
    field.send_keys("region 003")
    shown = f"{rows} return rows.filter((row) => !row.hidden).map((row) => row.textContent)"
    left = browser.driver.execute_script(shown)
    assert 0 < len(left) < everything
    assert all("region 003" in text for text in left)


def test_a_chart_is_read_with_the_arrow_keys(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(pages["pass-en"])
    chart = browser.driver.find_element("css selector", "#cost svg.plot")
    browser.driver.execute_script("arguments[0].focus()", chart)
    said = []
    for _ in range(2):
        browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        said.append(browser.driver.find_element("css selector", ".tip").text)
    assert said[0].startswith("Baseline: 269 MB") and said[1].startswith("int4-awq: 115 MB")


def test_paper_shows_every_table(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["pass-en"])
    pdf = browser.command("Page.printToPDF", printBackground=True)["data"]
    assert len(pdf) > 10_000
    closed = "return [...document.querySelectorAll('details')].filter((view) => !view.open).length"
    assert browser.driver.execute_script(closed) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_valid_html(pages: dict[str, Path], name: str) -> None:
    import html5lib

    parser = html5lib.HTMLParser(strict=False)
    parser.parse(pages[name].read_text(encoding="utf-8"))
    assert [(place, code) for place, code, _ in parser.errors] == []
