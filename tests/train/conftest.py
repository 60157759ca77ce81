"""The browser of the tests of `report/` and `view/`."""

from view_pages import browser, tab

__all__ = ["browser", "tab"]
