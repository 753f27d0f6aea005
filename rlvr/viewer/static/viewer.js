// Keys: j and k go through the rows of a page, p and n to the page or row beside it, / to the search.
"use strict";
document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return;
  if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("a.row")];
    const now = rows.indexOf(document.activeElement);
    const next = event.key === "j" ? Math.min(now + 1, rows.length - 1) : Math.max(now - 1, 0);
    if (rows[next]) rows[next].focus();
  } else if (event.key === "p" || event.key === "n") {
    const link = document.querySelector(event.key === "p" ? 'a[rel="prev"]' : 'a[rel="next"]');
    if (link) link.click();
  } else if (event.key === "/") {
    const search = document.querySelector('input[type="search"]');
    if (search) { event.preventDefault(); search.focus(); }
  }
});
// Filters that are left empty stay out of the address, so that it can be shared.
for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
  });
}
