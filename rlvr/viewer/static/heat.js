// The cells of the map, on a canvas, as a hundred thousand elements would be slow.
"use strict";
const place = document.getElementById("heat");
const said = document.getElementById("said");
const canvas = place.querySelector("canvas");
const HEAD = 14; // pixels above the cells: a click there compares from that column on
const NONE = 255;
const LONGEST = 16000; // pixels that a canvas may have

function colours() {
  const style = getComputedStyle(document.documentElement);
  const text = (name) => style.getPropertyValue(name).trim();
  const parts = (name) => text(name).slice(1).match(/../g).map((it) => parseInt(it, 16));
  return { low: parts("--panel"), high: parts("--c0"), soft: text("--soft"), paper: text("--paper") };
}

function draw({ columns, tasks, cells, dropped }) {
  const wide = Math.max(2, Math.min(40, Math.floor(1100 / columns.length)));
  const high = Math.max(1, Math.min(14, Math.floor((LONGEST - HEAD) / tasks.length)));
  canvas.width = wide * columns.length;
  canvas.height = HEAD + high * tasks.length;
  const { low, high: top, soft, paper } = colours();
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = paper;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  const shades = Array.from({ length: 101 }, (_, rate) => `rgb(${low.map((it, i) => Math.round(it + (top[i] - it) * rate / 100)).join()})`);
  cells.forEach((rate, i) => {
    if (rate === NONE) return;
    ctx.fillStyle = shades[rate];
    ctx.fillRect((i % columns.length) * wide, HEAD + Math.floor(i / columns.length) * high, Math.max(1, wide - (wide > 4)), Math.max(1, high - (high > 4)));
  });
  ctx.fillStyle = soft;
  for (const i of dropped) ctx.fillRect((i % columns.length) * wide + wide / 2 - 1, HEAD + Math.floor(i / columns.length) * high + high / 2 - 1, 2, 2);
  for (let i = 0; i < columns.length; i += 1) ctx.fillRect(i * wide, 4, Math.max(1, wide - 1), 6);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) * canvas.width / box.width / wide);
    const y = (event.clientY - box.top) * canvas.height / box.height;
    return { column: Math.min(Math.max(column, 0), columns.length - 1), row: Math.min(Math.floor((y - HEAD) / high), tasks.length - 1) };
  };
  const isStep = Boolean(place.dataset.step);
  canvas.onmousemove = (event) => {
    const { column, row } = at(event);
    const rate = row < 0 ? NONE : cells[row * columns.length + column];
    const of = isStep ? `step ${columns[column]}` : columns[column];
    said.textContent = row < 0 ? `${of}: compare from here on` : `${tasks[row][0]}, ${of}: ${rate === NONE ? "no scored completion" : `${rate} % correct`}`;
  };
  canvas.onclick = (event) => {
    const { column, row } = at(event);
    const keys = place.dataset.keys.split(",");
    if (row < 0) {
      location.search = new URLSearchParams({ runs: place.dataset.keys, sort: place.dataset.sort, since: isStep ? columns[column] : column });
      return;
    }
    const [task, env] = tasks[row];
    location.href = `/${keys[isStep ? 0 : column]}/group?${new URLSearchParams({ task, env, step: isStep ? columns[column] : 0 })}`;
  };
}

fetch(`/heat/data?${new URLSearchParams({ runs: place.dataset.keys, sort: place.dataset.sort })}`)
  .then((answer) => answer.json())
  .then((found) => { draw(found); place.dataset.drawn = found.cells.length; })
  .catch((error) => { said.textContent = `cannot be drawn: ${error}`; });
