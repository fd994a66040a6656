"""Promise: the page of --html is one file that asks nothing of the network, has a lane per rank, marks the first
failure and
its echoes, shows its evidence without a script, shows what a log holds as text only, and reads in light and in dark."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser

import pytest
from support.explain import LOGS, program, rules

HOSTILE = """rank 0: <script>document.title = "taken"</script> step 1
rank 1: "><img src=x onerror="document.title = 'taken'"> step 1 & more
[rank1]: Traceback (most recent call last):
[rank1]:   File "a.py", line 1, in <module>
[rank1]: ValueError: </pre></details><script>document.title = "taken"</script>
"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Tags(HTMLParser):
    """Counts the tags and keeps the attributes of a page; `open` must be empty at its end."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.open, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        if tag in self.open and tag != "p":
            while self.open.pop() != tag:
                pass


def many(path):
    """512 ranks, of which rank 137 stops at step 25 and the others time out."""
    trace = [line for line in (LOGS / "torchrun-slow.log").read_text().split("\n") if line.startswith("[rank0]:")]
    with open(path, "w") as f:
        for step in range(30):
            f.writelines(f"rank {r}: step {step} loss 0.5\n" for r in range(512) if r != 137 or step <= 25)
        for r in set(range(512)) - {137}:
            f.writelines(line.replace("[rank0]", f"[rank{r}]") + "\n" for line in trace)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """name -> (path of the page, verdict)."""
    folder, made = tmp_path_factory.mktemp("pages"), {}
    (folder / "hostile.log").write_text(HOSTILE)
    many(folder / "many.log")
    for log in (
        LOGS / "torchrun-raise.log",
        LOGS / "torchrun-ok.log",
        LOGS / "spawn-cut.log",
        folder / "hostile.log",
        folder / "many.log",
    ):
        job, verdict = program().explain([str(log)], rules())
        program().write_html(folder / f"{log.stem}.html", job, verdict)
        made[log.stem] = folder / f"{log.stem}.html", verdict
    return made


def test_pages_are_whole_and_ask_for_nothing(pages):
    for name, (path, _) in pages.items():
        tags = Tags(path.read_text())
        assert not tags.open, (name, tags.open)
        assert not {"script", "img", "link", "iframe", "form"} & set(tags.seen), name
        outside = [(k, v) for k, v in tags.attributes if k in ("src", "href", "style") or k.startswith("on")]
        assert not outside, (name, outside)
        assert not re.search(r"url\(|@import|https?://", path.read_text().split("</style>")[0]), name
        assert "prefers-color-scheme:dark" in path.read_text()


def test_a_page_shows_the_verdict(pages):
    path, verdict = pages["torchrun-raise"]
    text = path.read_text()
    assert text.count('class="lane"') == 3 and "rank 1 · first" in text and "2 later errors of other ranks" in text
    for item in verdict.evidence:
        assert f"torchrun-raise.log:{item['line']}" in text
    assert "KeyError: &#x27;los&#x27;" in text and verdict.cause in text


def test_many_ranks_are_grouped(pages):
    path, verdict = pages["many"]
    assert verdict.guilty == [137], verdict.text
    before = path.read_text().split("ranks alike")[0]
    assert before.count('class="lane"') <= 3 and "rank 137" in before
    assert "511 ranks alike" in path.read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
def test_in_a_browser(pages, tmp_path):
    """Headless Chromium, scripts off and on: what is seen, that nothing of the log runs, both colour schemes."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    options = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            backgrounds = set()
            for scripts, scheme in ((False, "light"), (True, "dark")):
                context = browser.new_context(
                    java_script_enabled=scripts, color_scheme=scheme, viewport={"width": 1100, "height": 900}
                )
                asked = []
                context.on("request", lambda request: asked.append(request.url))
                page = context.new_page()
                for name, (path, verdict) in pages.items():
                    page.goto(path.as_uri())
                    assert page.title().startswith(("Failed", "Succeeded", "Not known")), page.title()
                    assert page.locator("h1").is_visible() and verdict.text[:40] in page.locator(".card").inner_text()
                    if verdict.evidence:
                        assert page.locator("details pre").first.is_visible()
                    if len(verdict.evidence) > 1 and name == "torchrun-raise":
                        second = page.locator("details").nth(1)
                        assert not second.locator("pre").is_visible()
                        second.locator("summary").click()
                        assert second.locator("pre").is_visible()
                    box = page.locator("body").bounding_box()
                    assert box["width"] <= 1100, name
                    if folder := os.environ.get("SCREENSHOTS"):  # to look at; no assertion is about them
                        page.screenshot(path=f"{folder}/{name}-{scheme}.png")
                    if scripts:
                        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                        assert page.evaluate("document.documentElement.scrollWidth") <= 1100, name
                assert all(url.startswith("file:") for url in asked), asked
                context.close()
            assert backgrounds == {"rgb(20, 24, 28)"}
        finally:
            browser.close()
