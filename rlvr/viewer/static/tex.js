// Formulas as MathML by KaTeX, without styles or fonts.  What it gives is rebuilt from a list of elements and attributes
// that can do nothing; what it cannot read stays as it was written.
"use strict";
const ELEMENTS = new Set("math semantics mrow mi mn mo mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mpadded mphantom mstyle menclose".split(" "));
const ATTRIBUTES = new Set("display mathvariant stretchy fence separator accent accentunder linethickness width height depth lspace rspace scriptlevel displaystyle columnalign rowspacing columnspacing notation minsize maxsize".split(" "));
const LONGEST = 2000, MOST = 400, BUDGET_MS = 1500;

function rebuilt(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  if (node.nodeType !== Node.ELEMENT_NODE || node.localName === "annotation") return null;
  if (!ELEMENTS.has(node.localName)) throw new Error(`no ${node.localName}`);
  const made = document.createElementNS(node.namespaceURI, node.localName);
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name)) made.setAttribute(name, value);
  for (const child of node.childNodes) { const one = rebuilt(child); if (one) made.append(one); }
  return made;
}

function render() {
  const end = performance.now() + BUDGET_MS;
  for (const place of [...document.querySelectorAll(".tex:not([data-tex])")].slice(0, MOST)) {
    const tex = place.textContent;
    place.dataset.tex = tex;
    if (tex.length > LONGEST || performance.now() > end) continue;
    try {
      const text = katex.renderToString(tex, {
        output: "mathml", displayMode: place.classList.contains("display"), throwOnError: true, trust: false,
        strict: "ignore", maxExpand: 200, maxSize: 20,
      }).replace(/ style="[^"]*"/g, "");
      const math = new DOMParser().parseFromString(text, "text/html").querySelector("math");
      place.replaceChildren(rebuilt(math));
    } catch {
      place.textContent = tex; // it stays as it was written
    }
  }
}
render();
document.addEventListener("renewed", render);
