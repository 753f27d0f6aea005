// Curves of several runs.  The server thins, smooths and groups; here they are drawn, zoomed and read by mouse.
"use strict";
const form = document.getElementById("overlay");
const plots = new Map(); // figure → uPlot
let range = null; // of x, in all panels
const DASHES = [[], [7, 3], [2, 2], [10, 3, 2, 3], [4, 4], [1, 4]];
const colour = (i) => getComputedStyle(document.documentElement).getPropertyValue(`--c${i % 6}`).trim();
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
const isLogX = () => form.elements.logx.checked;

function address(metric) {
  const said = new URLSearchParams({ runs: form.dataset.runs, metric, by: form.elements.by.value });
  if (Number(form.elements.smooth.value)) said.set("smooth", form.elements.smooth.value);
  if (form.elements.bands.checked) said.set("bands", "1");
  if (range) { said.set("from", range[0]); said.set("to", range[1]); }
  return `/overlay/data?${said}`;
}

// Lines have x of their own: of a line without a value here, the nearest one is read.
function nearest(u, series, at) {
  const values = u.data[series];
  for (let far = 0; far < values.length; far += 1) {
    if (values[at - far] != null) return at - far;
    if (values[at + far] != null) return at + far;
  }
  return at;
}

function marks(events) {
  return (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink();
    ctx.setLineDash([2, 4]);
    for (const event of events) {
      const x = u.valToPos(event.x, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(event.what[0], x + 2, bbox.top + 9);
    }
    ctx.restore();
  };
}

function draw(figure, found) {
  const tables = [], series = [{ label: form.elements.by.value }], bands = [];
  const hidden = isLogX() ? (x) => x > 0 : () => true;
  for (const line of found.lines) {
    const kept = line.x.map((x, i) => i).filter((i) => hidden(line.x[i]));
    const pick = (values) => kept.map((i) => values[i]);
    const style = {
      label: line.name, stroke: colour(line.run), dash: DASHES[line.run % 6], width: 1.5, spanGaps: true,
      points: { show: kept.length === 1 }, value: (u, value) => value == null ? "–" : Number(value.toPrecision(4)).toString(),
    };
    tables.push([pick(line.x), pick(line.y), ...(line.low ? [pick(line.high), pick(line.low)] : [])]);
    series.push(style);
    if (line.low) {
      const edge = { ...style, width: 0.5, points: { show: false } };
      series.push({ ...edge, label: `${line.name}, greatest` }, { ...edge, label: `${line.name}, least` });
      bands.push({ series: [series.length - 2, series.length - 1], fill: `${colour(line.run)}33` });
    }
  }
  const place = figure.querySelector(".canvas");
  const old = plots.get(figure);
  if (old) old.destroy();
  plots.delete(figure);
  if (!tables.length) { place.textContent = "no values here"; return; }
  place.textContent = "";
  const axis = { stroke: ink(), grid: { stroke: `${ink()}33` }, ticks: { stroke: `${ink()}33` } };
  const isLogY = form.elements.logy.checked;
  plots.set(figure, new uPlot({
    width: Math.max(260, place.clientWidth), height: 240, series, bands,
    scales: { x: { time: false, distr: isLogX() ? 3 : 1 }, y: { distr: isLogY ? 4 : 1, asinh: 1e-3 } },
    axes: [axis, { ...axis, size: 60 }],
    cursor: { sync: { key: "runs" }, dataIdx: nearest, drag: { setScale: false } },
    legend: { live: true },
    hooks: {
      draw: [marks(found.marks)],
      setSelect: [(u) => {
        if (u.select.width < 5) return;
        range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        again();
      }],
    },
  }, uPlot.join(tables), place));
}

async function load(figure) {
  const wanted = address(figure.dataset.metric);
  figure.dataset.asked = wanted;
  try {
    const answer = await fetch(wanted);
    if (figure.dataset.asked === wanted && answer.ok) draw(figure, await answer.json());
  } catch {
    figure.dataset.asked = ""; // the viewer has stopped; the next look asks again
  }
}

const seen = new Set();
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target); else seen.delete(target);
    if (isIntersecting && target.dataset.asked !== address(target.dataset.metric)) load(target);
  }
});
function again() { for (const figure of seen) load(figure); }
for (const figure of document.querySelectorAll("figure.plot")) watch.observe(figure);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  if (event.target.name === "by") range = null;
  again();
});
document.getElementById("whole").addEventListener("click", () => { range = null; again(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
if (form.dataset.live) {
  setInterval(() => { if (!document.hidden && sessionStorage.getItem("paused") !== "1") again(); }, 5000);
}
