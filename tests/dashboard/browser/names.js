// Things that a screen reader would miss: names, scopes, captions, landmarks.
() => [
  ...[...document.querySelectorAll("button, a[href], input, select, textarea, canvas")]
    .filter((one) => one.checkVisibility() && !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
    .map((one) => `no name: ${one.outerHTML.slice(0, 80)}`),
  ...[...document.querySelectorAll("th")].filter((one) => !one.scope).map((one) => `no scope: ${one.textContent}`),
  ...[...document.querySelectorAll("table")].filter((one) => !one.caption).map(() => "no caption"),
  ...["banner", "main", "navigation"].filter((role) => !document.querySelector({ banner: "header", main: "main", navigation: "nav[aria-label]" }[role])),
]
