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
  } else if ("yxus".includes(event.key) && document.querySelector(".marking")) {
    const button = document.querySelector(`.marking [data-key="${event.key}"]`);
    if (button) button.click();
  } else if (event.key === "/") {
    const search = document.querySelector('input[type="search"]');
    if (search) { event.preventDefault(); search.focus(); }
  }
});
// A mark of a verdict is sent at once; in an order the next row comes, else the same page with the new counts.
const verdictOfKey = { y: true, x: false, u: null };
const markingBar = document.querySelector(".marking");
async function sendMark(key) {
  const { token, address, next } = markingBar.dataset;
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token, verdict_is_right: verdictOfKey[key] }),
  }).catch(() => null);
  if (answer && answer.ok) location.assign(next && key !== "u" ? next : location.href);
  else markingBar.querySelector("[role=status]").textContent = answer ? await answer.text() : "the viewer does not answer";
}
if (markingBar) {
  for (const button of markingBar.querySelectorAll("button")) {
    button.addEventListener("click", () => sendMark(button.dataset.key));
  }
}
// Filters that are left empty stay out of the address, so that it can be shared.
for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
  });
}
// A page that is still being read or written asks for itself again.  Only what has changed is put in: the place of the
// reader, the focus, what is selected, unfolded or typed stays.
const body = document.body;
const pause = document.getElementById("follow");
let failed = false;
const isPaused = () => sessionStorage.getItem("paused") === "1";
function show() {
  pause.hidden = !body.dataset.renew;
  pause.textContent = isPaused() ? "follow" : failed ? "the viewer does not answer: pause" : "pause";
  pause.title = isPaused() ? "renew this page by itself again" : "this page renews itself; stop that";
}
function kind(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  return [node.nodeName, node.id, node.getAttribute("class"), node.getAttribute("href")].join(" ");
}
function put(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = now.data; return; }
  if (old.matches(".tex") && old.dataset.tex === now.textContent) return; // tex.js has rendered it
  if (old.matches("form, .plot")) return; // the reader may be typing; overlay.js draws
  for (const { name, value } of now.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
  const wanted = [...now.childNodes];
  const later = new Map();
  for (const one of wanted) later.set(kind(one), (later.get(kind(one)) || 0) + 1);
  let at = old.firstChild;
  const drop = () => { const next = at.nextSibling; at.remove(); at = next; };
  for (const one of wanted) {
    const name = kind(one);
    later.set(name, later.get(name) - 1);
    while (at && kind(at) !== name && !(at.nodeType === Node.ELEMENT_NODE && later.get(kind(at)))) drop();
    if (at && kind(at) === name) {
      put(at, one);
      at = at.nextSibling;
    } else {
      old.insertBefore(document.importNode(one, true), at);
    }
  }
  while (at) drop();
}
async function renew() {
  if (body.dataset.renew && !isPaused() && !document.hidden) {
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!isPaused() && page.querySelector("main")) {
        put(document.querySelector("main"), page.querySelector("main"));
        document.dispatchEvent(new Event("renewed"));
        document.title = page.title;
        body.dataset.renew = page.body.dataset.renew || "";
      }
      failed = false;
    } catch {
      failed = true;
    }
  }
  show();
  if (body.dataset.renew) setTimeout(renew, 1000 * Number(body.dataset.renew));
}
pause.addEventListener("click", () => {
  sessionStorage.setItem("paused", isPaused() ? "" : "1");
  show();
});
show();
if (body.dataset.renew) setTimeout(renew, 1000 * Number(body.dataset.renew));
