// The timeline of wick.trace: spans of threads on a canvas, with zoom and pan; and the search over what has class "find".
//
// In: the element "timeline-data": {length, threads: [name], names, links, kinds: [[name, colour]], spans}, times in
// nanoseconds from the beginning. spans has seven numbers a span: thread, depth, kind, name, beginning, length, link (-1:
// none). Spans of one thread and depth do not overlap and come in order. Out: the canvas, and what part of it is seen, as text
// in "timeline-range".
"use strict";
(() => {
  const WIDTH = 7, ROW = 18, HEAD = 18, AXIS = 20;
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const canvas = document.getElementById("timeline"), range = document.getElementById("timeline-range");
  const tip = document.getElementById("timeline-tip"), paper = canvas.getContext("2d");
  const view = {begin: 0, end: Math.max(data.length, 1)};
  const least = 100; // nanoseconds that are seen at once
  const [BEGIN, LENGTH] = [4, 5];

  // ---- where things lie ----

  const rows = []; // {thread, top, spans: [number of each]}
  let height = AXIS;
  data.threads.forEach((name, thread) => {
    const depths = [];
    for (let at = 0; at < data.spans.length; at += WIDTH)
      if (data.spans[at] === thread) (depths[data.spans[at + 1]] ||= []).push(at);
    rows.push({head: name, top: height, spans: []});
    height += HEAD;
    for (const spans of depths) {
      rows.push({top: height, spans: spans || []});
      height += ROW;
    }
  });

  const end = at => data.spans[at + BEGIN] + data.spans[at + LENGTH];
  const scale = () => canvas.clientWidth / (view.end - view.begin);
  const x = time => (time - view.begin) * scale();

  // The first span of a row that ends behind `time`.
  function first(spans, time) {
    let low = 0, high = spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end(spans[middle]) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function text(time) {
    const size = Math.abs(time);
    if (size >= 1e9) return (time / 1e9).toFixed(3) + " s";
    if (size >= 1e6) return (time / 1e6).toFixed(3) + " ms";
    return (time / 1e3).toFixed(3) + " µs";
  }

  // ---- drawing ----

  function drawSpan(at, top) {
    const begin = data.spans[at + BEGIN], left = Math.max(x(begin), -1), right = Math.min(x(end(at)), canvas.clientWidth + 1);
    paper.fillStyle = data.kinds[data.spans[at + 2]][1];
    paper.fillRect(left, top + 1, Math.max(right - left - (right - left > 3 ? 1 : 0), 1), ROW - 2);
    if (right - left > 30) {
      paper.save();
      paper.beginPath();
      paper.rect(left, top, right - left - 2, ROW);
      paper.clip();
      paper.fillStyle = "#fff";
      paper.fillText(data.names[data.spans[at + 3]], left + 3, top + 13);
      paper.restore();
    }
    return right;
  }

  function drawAxis(ink) {
    const wanted = (view.end - view.begin) / 6, power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find(factor => power * factor >= wanted);
    paper.fillStyle = ink;
    for (let time = Math.ceil(view.begin / step) * step; time <= view.end; time += step) {
      paper.fillRect(x(time), 0, 1, 5);
      paper.fillText(text(time), x(time) + 3, 13);
    }
  }

  function draw() {
    const dots = window.devicePixelRatio || 1, ink = getComputedStyle(canvas).color;
    canvas.style.height = height + "px";
    canvas.width = canvas.clientWidth * dots;
    canvas.height = height * dots;
    paper.setTransform(dots, 0, 0, dots, 0, 0);
    paper.clearRect(0, 0, canvas.clientWidth, height);
    paper.font = "11px ui-monospace, monospace";
    drawAxis(ink);
    let seen = 0;
    for (const row of rows) {
      if (row.head !== undefined) {
        paper.fillStyle = ink;
        paper.fillText(row.head, 3, row.top + 14);
        continue;
      }
      let drawn = -Infinity; // spans that would lie on one that is there are left away
      for (let k = first(row.spans, view.begin); k < row.spans.length; k++) {
        const at = row.spans[k];
        if (data.spans[at + BEGIN] > view.end) break;
        seen++;
        if (x(end(at)) > drawn + 0.5) drawn = drawSpan(at, row.top);
      }
    }
    range.textContent = `${text(view.begin)} to ${text(view.end)} of ${text(data.length)}: ${seen} of ${data.spans.length / WIDTH} spans`;
  }

  // Once for all events that wait; by a timer, for a browser without a screen has no frames.
  let waiting = false;
  function later() {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; draw(); }, 5);
  }

  // ---- moving ----

  function show(begin, end) {
    const length = Math.min(Math.max(end - begin, least), Math.max(data.length, least));
    view.begin = Math.min(Math.max(begin, 0), Math.max(data.length - length, 0));
    view.end = view.begin + length;
    later();
  }
  function zoom(factor, at) {
    const around = at === undefined ? (view.begin + view.end) / 2 : at;
    show(around - (around - view.begin) * factor, around + (view.end - around) * factor);
  }
  const pan = share => show(view.begin + share * (view.end - view.begin), view.end + share * (view.end - view.begin));
  const timeAt = event => view.begin + (event.clientX - canvas.getBoundingClientRect().left) / scale();

  function spanAt(event) {
    const y = event.clientY - canvas.getBoundingClientRect().top, time = timeAt(event);
    const row = rows.find(row => row.head === undefined && y >= row.top && y < row.top + ROW);
    if (!row) return undefined;
    const at = row.spans[first(row.spans, time - 1 / scale())];
    return at !== undefined && data.spans[at + BEGIN] <= time + 1 / scale() ? at : undefined;
  }

  function open(hash) {
    const element = hash.length > 1 && document.getElementById(hash.slice(1));
    for (let part = element; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (element) element.scrollIntoView();
  }

  let held = null; // {x, begin, end, moved}
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1000);
    else zoom(Math.exp(event.deltaY / 400), timeAt(event));
  }, {passive: false});
  canvas.addEventListener("pointerdown", event => {
    held = {x: event.clientX, begin: view.begin, end: view.end, moved: false};
    try { canvas.setPointerCapture(event.pointerId); } catch { /* not a pointer that is there */ }
  });
  canvas.addEventListener("pointermove", event => {
    if (held) {
      const shift = (held.x - event.clientX) / scale();
      held.moved ||= Math.abs(held.x - event.clientX) > 3;
      if (held.moved) show(held.begin + shift, held.end + shift);
      return;
    }
    const at = spanAt(event);
    tip.hidden = at === undefined;
    if (at === undefined) return;
    const [, , kind, name, begin, length] = data.spans.slice(at, at + WIDTH);
    tip.textContent = `${data.kinds[kind][0]}: ${data.names[name]}\n${text(length)}, from ${text(begin)}`;
    tip.style.left = Math.min(event.offsetX + 12, canvas.clientWidth / 2) + "px";
    tip.style.top = event.offsetY + 14 + "px";
  });
  canvas.addEventListener("pointerup", event => {
    const at = held && !held.moved ? spanAt(event) : undefined;
    held = null;
    if (at !== undefined && data.spans[at + 6] >= 0) location.hash = data.links[data.spans[at + 6]];
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", event => zoom(0.25, timeAt(event)));
  canvas.addEventListener("keydown", event => {
    const does = {"+": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
      0: () => show(0, data.length)}[event.key];
    if (does) { event.preventDefault(); does(); }
  });
  document.getElementById("timeline-in").addEventListener("click", () => zoom(0.5));
  document.getElementById("timeline-out").addEventListener("click", () => zoom(2));
  document.getElementById("timeline-left").addEventListener("click", () => pan(-0.5));
  document.getElementById("timeline-right").addEventListener("click", () => pan(0.5));
  document.getElementById("timeline-all").addEventListener("click", () => show(0, data.length));
  window.addEventListener("resize", later);
  window.addEventListener("hashchange", () => open(location.hash));
  draw();
  open(location.hash);

  // ---- search ----

  const search = document.getElementById("search"), found = document.getElementById("search-found");
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    let count = 0, all = 0;
    for (const element of document.getElementsByClassName("find")) {
      const fits = element.textContent.toLowerCase().includes(wanted);
      element.hidden = !fits;
      count += fits;
      all++;
    }
    for (const group of document.getElementsByClassName("find-group"))
      group.hidden = !group.querySelector(".find:not([hidden])");
    found.textContent = wanted ? `${count} of ${all}` : "";
  });
})();
