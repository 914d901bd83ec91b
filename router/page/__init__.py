"""The files of the page that shows the fleet; `router.api.page` serves them as they are."""
