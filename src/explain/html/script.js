"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const ladders = $("ladders");
  if (!ladders) { document.body.dataset.ready = "0"; return; }

  const state = { pair: "all", qp: "", from: -Infinity, to: Infinity, chosen: null, byReader: false };

  function svg(parent, name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }
  function element(parent, name, properties, text) {
    const node = document.createElement(name);
    Object.assign(node, properties);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }
  function span(ns) {
    if (ns < 1e3) return ns + " ns";
    if (ns < 1e6) return +(ns / 1e3).toPrecision(3) + " µs";
    if (ns < 1e9) return +(ns / 1e6).toPrecision(3) + " ms";
    return +(ns / 1e9).toPrecision(4) + " s";
  }
  const clock = (ns) => (ns / 1e9).toFixed(6);

  // What each mark looks like: a sign in the middle of the arrow, besides colour and stroke.
  const SIGNS = {
    lost: "✕", corrupt: "✕", resent: "↻", duplicate: "2×", late: "⤵", replay: "↺", violation: "!",
  };
  const LEGEND = [
    ["req", "", "request"], ["ack", "", "ACK"], ["resp", "", "READ or atomic answer"], ["nak", "", "NAK"],
    ["rnr", "", "RNR NAK"], ["cnp", "", "CNP"], ["lost", "lost", "missing here"], ["req", "lost", "lost further on"], ["req", "corrupt", "damaged"],
    ["req", "resent", "sent again"], ["req", "duplicate", "doubled"], ["req", "late", "overtaken"],
    ["resp", "replay", "answered again"], ["req", "violation", "breaks a rule"],
  ];

  // An arrow from x1 to x2 with its head and sign; one that did not arrive ends half way.
  function arrow(parent, x1, y1, x2, y2, cls, mark, place = 0.86) {
    const stops = mark === "lost" || mark === "corrupt";
    const share = stops ? 0.62 : 1;
    const x = x1 + (x2 - x1) * share, y = y1 + (y2 - y1) * share;
    svg(parent, "line", { class: "arrow", x1, y1, x2: x, y2: y });
    if (mark === "duplicate") svg(parent, "line", { class: "arrow", x1, y1: y1 + 4, x2: x, y2: y + 4 });
    const back = x2 > x1 ? -8 : 8;
    if (stops) {
      svg(parent, "path", { class: "mark", d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10` });
    } else if (cls === "ack") {
      svg(parent, "path", { class: "arrow", d: `M${x + back} ${y - 4}L${x} ${y}l${back} 4` });
    } else {
      svg(parent, "path", { class: "head", d: `M${x} ${y}l${back} -4.5v9z` });
    }
    if (SIGNS[mark] && !stops) {
      const at = x1 + (x2 - x1) * place, up = y1 + (y2 - y1) * place;
      svg(parent, "circle", { class: "mark", cx: at, cy: up, r: 8, style: "fill: var(--back)" });
      svg(parent, "text", { class: "glyph", x: at, y: up + 4 }, SIGNS[mark]);
    }
  }

  function legend() {
    for (const [cls, mark, text] of LEGEND) {
      const label = element($("legend"), "span", {});
      const picture = svg(label, "svg", { viewBox: "0 0 54 18", "aria-hidden": "true" });
      const group = svg(picture, "g", { class: `c-${cls} m-${mark}` });
      arrow(group, 2, 9, 52, 9, cls, mark, 0.4);
      label.append(" " + text);
    }
  }

  const inRange = (t) => t >= state.from && t <= state.to;

  function drawLadder(parent, pair) {
    const width = Math.max(300, parent.clientWidth);
    const narrow = width < 560;
    const left = narrow ? 64 : 150, right = width - (narrow ? 14 : 40);
    const box = svg(parent, "svg", { class: "ladder", "data-pair": pair.id, role: "list" });
    const rows = pair.rows.filter((row) => row.length === 1 || inRange(row[0]));
    let y = 30, last = null, drawn = 0;
    const lines = svg(box, "g", {});
    for (const [index, row] of rows.entries()) {
      if (row.length === 1) {
        const edge = index === 0 || index === rows.length - 1 || rows[index + 1].length === 1;
        if (edge && state.from > -Infinity) continue;
        y += 26;
        svg(box, "text", { class: "skip", x: (left + right) / 2, y: y + 4, "text-anchor": "middle" },
          `… ${row[0].toLocaleString("en")} packet${row[0] === 1 ? "" : "s"} not drawn …`);
        last = null;
        continue;
      }
      const [time, from, cls, mark, number, label, fields] = row;
      const wait = last === null ? 0 : time - last;
      // Time runs down, its long stretches shortened to their logarithm.
      y += 26 + (wait > 1e5 ? Math.min(60, 14 * Math.log10(wait / 1e5)) : 0);
      if (wait > 1e6) {
        svg(box, "text", { class: "dim", x: (left + right) / 2, y: y - 24, "text-anchor": "middle" },
          `${span(wait)} later`);
      }
      last = time;
      drawn += 1;
      const group = svg(box, "g", {
        class: `row c-${cls} m-${mark}`, tabindex: 0, role: "listitem",
        "aria-label": `${number ? "packet " + number : "missing"}, ${label}${mark ? ", " + (mark === "lost" && number ? "lost further on" : mark) : ""}`,
      });
      if (number) group.id = `p${number}`;
      group.dataset.number = number;
      group.fields = fields;
      svg(group, "rect", { class: "hit", x: 0, y: y - 17, width, height: 26 });
      svg(group, "text", { class: "dim", x: 2, y: y + 2 }, narrow ? clock(time).slice(0, 9) : clock(time));
      if (!narrow && number) {
        svg(group, "text", { class: "dim", x: left - 8, y: y + 2, "text-anchor": "end" }, "#" + number);
      }
      const [x1, x2] = from === 0 ? [left, right] : [right, left];
      arrow(group, x1, y, x2, y + 5, cls, mark);
      const room = Math.floor((right - left - 50) / 6.2);
      const shown = label.length > room ? label.slice(0, room - 1) + "…" : label;
      svg(group, "text", {
        x: from === 0 ? left + 8 : right - 8, y: y - 4, "text-anchor": from === 0 ? "start" : "end",
      }, shown);
    }
    if (drawn === 0) {
      y += 20;
      svg(box, "text", { class: "skip", x: left, y }, "nothing of this pair is drawn in this span of time");
    }
    y += 22;
    for (const [x, name, anchor] of [[left, "A", "middle"], [right, "B", "middle"]]) {
      svg(lines, "line", { class: "life", x1: x, y1: 22, x2: x, y2: y });
      svg(lines, "text", { x, y: 14, "text-anchor": anchor, style: "font-weight: 700" }, name);
    }
    box.setAttribute("viewBox", `0 0 ${width} ${y + 6}`);
    box.style.height = `${y + 6}px`;
  }

  const PLOT = { height: 150, left: 62, right: 10, top: 14, bottom: 22 };

  // The dots of a plot: a request, one sent again, an answer, a refusal, one that is missing.
  function dot(parent, cls, x, y) {
    switch (cls) {
      case 0: return svg(parent, "circle", { class: "dot c-req", cx: x, cy: y, r: 2.2 });
      case 1: return svg(parent, "path", { class: "dot c-rnr", d: `M${x} ${y - 5}l4.5 8h-9z` });
      case 2: return svg(parent, "path", { class: "arrow c-ack", d: `M${x - 3} ${y}h6m-3 -3v6` });
      case 3: return svg(parent, "path", { class: "dot c-nak", d: `M${x - 4} ${y - 4}h8v8h-8z` });
      default: return svg(parent, "path", { class: "mark c-lost", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
    }
  }

  function drawPlot(parent, pair, side) {
    const plot = pair.plots[side];
    const all = plot.points.filter((p) => inRange(p[0]));
    if (plot.points.length < 3) return;
    const width = Math.max(300, parent.clientWidth);
    const { height, left, right, top, bottom } = PLOT;
    const times = (all.length ? all : plot.points).map((p) => p[0]);
    const psns = (all.length ? all : plot.points).map((p) => p[1]);
    const t0 = Math.max(state.from, Math.min(...times)), t1 = Math.min(state.to, Math.max(...times, t0 + 1));
    const p0 = Math.min(...psns), p1 = Math.max(...psns, p0 + 1);
    const x = (t) => left + (t - t0) / (t1 - t0) * (width - left - right - 8) + 4;
    const y = (p) => height - bottom - 4 - (p - p0) / (p1 - p0) * (height - top - bottom - 8);
    const box = svg(parent, "svg", {
      class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `PSN over time of what ${"AB"[side]} asks`,
    });
    box.style.height = `${height}px`;
    svg(box, "path", { class: "grid", d: `M${left} ${top}V${height - bottom}H${width - right}`, fill: "none" });
    const wrap = (p) => ((plot.base + p) % 16777216 + 16777216) % 16777216;
    svg(box, "text", { class: "dim", x: left - 4, y: top + 8, "text-anchor": "end" }, wrap(p1));
    svg(box, "text", { class: "dim", x: left - 4, y: height - bottom, "text-anchor": "end" }, wrap(p0));
    svg(box, "text", { class: "dim", x: left, y: height - 6 }, clock(t0) + " s");
    svg(box, "text", { class: "dim", x: width - right, y: height - 6, "text-anchor": "end" }, clock(t1) + " s");
    svg(box, "text", { x: left + 6, y: 11 }, `PSN of what ${"AB"[side]} asks`
      + (plot.more ? ` (${plot.more.toLocaleString("en")} points fall together or are left out)` : ""));
    for (const wanted of [0, 2, 1, 3, 4]) {
      for (const p of all) if (p[2] === wanted) dot(box, wanted, x(p[0]), y(p[1]));
    }
    const pick = svg(box, "rect", { class: "pick", y: top, height: height - top - bottom, width: 0 });
    let start = null;
    const at = (event) => (event.clientX - box.getBoundingClientRect().left) * width / box.clientWidth;
    const back = (px) => t0 + (px - left - 4) / (width - left - right - 8) * (t1 - t0);
    box.addEventListener("pointerdown", (event) => {
      start = at(event);
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = at(event);
      pick.setAttribute("x", Math.min(start, now));
      pick.setAttribute("width", Math.abs(now - start));
    });
    box.addEventListener("pointercancel", () => { start = null; pick.setAttribute("width", 0); });
    box.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const ends = [back(start), back(at(event))].sort((a, b) => a - b);
      start = null;
      pick.setAttribute("width", 0);
      if (ends[1] - ends[0] > (t1 - t0) / 100) zoom(ends[0], ends[1]);
    });
  }

  function extent() {
    let low = Infinity, high = -Infinity;
    for (const pair of shownPairs()) {
      for (const row of pair.rows) if (row.length > 1) { low = Math.min(low, row[0]); high = Math.max(high, row[0]); }
    }
    return low <= high ? [low, high] : [0, 1];
  }
  function zoom(from, to) {
    const [low, high] = extent();
    [state.from, state.to] = from <= low && to >= high ? [-Infinity, Infinity] : [from, to];
    draw();
  }
  function zoomBy(factor) {
    const [low, high] = extent();
    const from = Math.max(low, state.from), to = Math.min(high, state.to);
    const middle = (from + to) / 2, half = Math.max(500, (to - from) / 2 * factor);
    zoom(middle - half, middle + half);
  }

  const qpsOf = (pair) => [pair.a, pair.b].map((end) => parseInt(end.split(" QP ")[1], 16));
  function shownPairs() {
    const wanted = state.qp.trim() === "" ? null : Number(state.qp.trim());
    return data.pairs.filter((pair) => (state.pair === "all" || String(pair.id) === state.pair)
      && (wanted === null || qpsOf(pair).includes(wanted)));
  }

  function draw() {
    hideFields();
    ladders.replaceChildren();
    const pairs = shownPairs();
    for (const pair of pairs) {
      const part = element(ladders, "div", {});
      element(part, "h3", {}, `${pair.id + 1}: ${pair.transport}, A = ${pair.a}, B = ${pair.b}`);
      drawPlot(part, pair, 0);
      drawPlot(part, pair, 1);
      drawLadder(part, pair);
    }
    if (pairs.length === 0) element(ladders, "p", { className: "note" }, "No pair has this QP.");
    $("range").value = state.from === -Infinity ? "drag across a plot to zoom" : `${clock(state.from)} s to ${clock(state.to)} s`;
    // Which pair is drawn first is the page's choice; findings are left out only by the reader's.
    const only = pairs.length === data.pairs.length || !state.byReader ? null : new Set(pairs.map((p) => String(p.id)));
    for (const node of document.querySelectorAll("#findings li, details[data-pair]")) {
      node.hidden = only !== null && node.dataset.pair !== "all" && !only.has(node.dataset.pair);
    }
    for (const kind of document.querySelectorAll("#findings .kind")) {
      const listed = kind.querySelectorAll("li:not([hidden])").length;
      kind.querySelector(".chosen").textContent = only === null ? "" : ` ${listed} listed of the QPs chosen`;
    }
    for (const row of document.querySelectorAll("tr[data-pair]")) {
      row.classList.toggle("chosen", row.dataset.pair === state.pair);
    }
    document.body.dataset.ready = ladders.querySelectorAll("svg.ladder").length;
  }

  const panel = $("fields");
  function hideFields() {
    panel.hidden = true;
    for (const node of document.querySelectorAll(".row.chosen")) node.classList.remove("chosen");
    state.chosen = null;
  }
  function showFields(row, keep) {
    const number = row.dataset.number;
    const fields = row.fields;
    panel.replaceChildren();
    if (keep) {
      const close = element(panel, "button", { type: "button", className: "close" }, "✕");
      close.setAttribute("aria-label", "close");
      close.addEventListener("click", hideFields);
    }
    element(panel, "b", {}, row.getAttribute("aria-label"));
    let list = null;
    for (const line of (fields || "").split("\n")) {
      if (line.startsWith("#")) {
        element(panel, "h4", {}, line.slice(1));
        list = element(panel, "dl", {});
      } else if (list) {
        const gap = line.indexOf(" ");
        element(list, "dt", {}, line.slice(0, gap));
        element(list, "dd", {}, line.slice(gap + 1));
      }
    }
    if (!fields && number !== "0") element(panel, "p", { className: "note" }, "Its fields are not in this page.");
    panel.hidden = false;
    const place = row.getBoundingClientRect(), size = panel.getBoundingClientRect();
    const below = place.bottom + 8 + size.height < innerHeight;
    panel.style.left = `${Math.max(4, Math.min(innerWidth - size.width - 8, place.left + place.width * .45))}px`;
    panel.style.top = `${below ? place.bottom + 8 : Math.max(4, place.top - size.height - 8)}px`;
  }
  function choose(row) {
    hideFields();
    row.classList.add("chosen");
    state.chosen = row;
    // On a phone the fields rise from below; the row moves up to stay in sight.
    if (innerWidth <= 640) scrollBy(0, row.getBoundingClientRect().top - 150);
    showFields(row, true);
  }

  ladders.addEventListener("pointerover", (event) => {
    const row = event.target.closest(".row");
    if (event.pointerType === "mouse" && row && !state.chosen) showFields(row, false);
  });
  ladders.addEventListener("pointerout", (event) => {
    if (event.pointerType === "mouse" && !state.chosen) panel.hidden = true;
  });
  ladders.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row && state.chosen !== row) choose(row); else hideFields();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideFields();
    const row = document.activeElement && document.activeElement.closest(".row, tr[data-pair]");
    if (event.key === "Enter" && row) row.matches(".row") ? choose(row) : row.click();
  });
  addEventListener("scroll", () => { if (!state.chosen) panel.hidden = true; }, { passive: true });

  // A packet that a finding names: show its pair, all of the time, and the packet.
  function goTo(number) {
    const pair = data.pairs.find((p) => p.rows.some((row) => row[4] === number));
    if (!pair) return;
    const shown = shownPairs().includes(pair);
    if (!shown || state.from > -Infinity) {
      Object.assign(state, { pair: String(pair.id), qp: "", from: -Infinity, to: Infinity });
      $("pair").value = state.pair;
      $("qp").value = "";
      draw();
    }
    const row = $(`p${number}`);
    row.scrollIntoView({ block: "center" });
    choose(row);
  }
  $("findings").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    goTo(Number(link.hash.slice(2)));
  });

  const pairSelect = $("pair");
  element(pairSelect, "option", { value: "all" }, "all");
  for (const pair of data.pairs) {
    element(pairSelect, "option", { value: pair.id }, `${pair.id + 1}: ${pair.transport} ${pair.a} – ${pair.b}`);
  }
  // The findings begin with the most severe and rarest.
  const faults = [...document.querySelectorAll("#findings :is(.error, .warning) li")];
  const faulty = faults.map((li) => data.pairs.find((p) => String(p.id) === li.dataset.pair)).find(Boolean);
  if (data.pairs.length > 3) state.pair = String((faulty || data.pairs[0]).id);
  pairSelect.value = state.pair;
  const setPair = (value) => {
    Object.assign(state, { byReader: true, pair: value, from: -Infinity, to: Infinity });
    pairSelect.value = value;
    draw();
  };
  pairSelect.addEventListener("change", () => setPair(pairSelect.value));
  $("qp").addEventListener("input", (event) => {
    state.qp = event.target.value;
    state.byReader = true;
    if (state.qp.trim() !== "") { state.pair = "all"; pairSelect.value = "all"; }
    draw();
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("in").addEventListener("click", () => zoomBy(0.5));
  $("out").addEventListener("click", () => zoomBy(2));
  $("whole").addEventListener("click", () => zoom(-Infinity, Infinity));
  const table = $("pairs");
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-pair]");
    if (row) { setPair(row.dataset.pair); $("diagrams").scrollIntoView(); }
  });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });

  // On paper nothing can be opened.
  addEventListener("beforeprint", () => {
    hideFields();
    for (const closed of document.querySelectorAll("details")) closed.open = true;
  });

  legend();
  draw();
  if (/^#p\d+$/.test(location.hash)) goTo(Number(location.hash.slice(2)));
})();
