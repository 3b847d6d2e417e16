// The switches between the NICs: which links there are, and the queues of their ports over time.

const QUEUE = { height: 120, left: 74, right: 12, top: 10, bottom: 22 };
/** Where the nodes are, by name. */
const PLACES = {
  switch: { A: [60, 38], C: [60, 112], B: [540, 75], switch: [300, 75] },
  spines: { A: [40, 38], C: [40, 112], B: [560, 75], "leaf 1": [175, 75], "spine 1": [300, 28], "spine 2": [300, 122], "leaf 2": [425, 75] },
};

class NetworkView {
  constructor(box, act) {
    this.box = box;
    this.act = act;
    this.picture = box.querySelector(".picture");
    this.links = box.querySelector(".links");
    this.plots = box.querySelector(".plots");
  }

  draw({ view, queues, pauses, events, setup }) {
    const { network } = view;
    this.box.hidden = !network;
    if (!network) return;
    const ports = network.links.flatMap(({ ends: [a, b] }) => [[a, b], [b, a]].map(([own, peer]) => ({ own: network.nodes[own], peer: network.nodes[peer] })));
    // Packets that meet wait for one another everywhere; that is no queue.
    const used = [...new Set(queues.filter(({ bytes }) => bytes > 2 * ((setup.mtu ?? 1024) + 100)).map(({ port }) => port))].sort((a, b) => a - b);
    this.drawPicture(network, queues, used);
    this.drawLinks(network);
    const words = view.now ? "No queue is longer than two packets." : "";
    this.plots.replaceChildren(...(used.length ? [] : [make("p", "words", words)]));
    if (used.length || pauses.length) this.drawPlots(ports, used, { view, queues, pauses, events, setup });
  }

  drawPicture({ nodes, links }, queues, used) {
    const places = PLACES[nodes.includes("switch") ? "switch" : "spines"];
    const longest = ends(queues.map(({ bytes }) => bytes))[1] || 1;
    const busiest = Math.max(...links.flatMap(({ packets }) => packets), 1);
    let svg = "";
    links.forEach(({ ends, up, packets }, number) => {
      const [a, b] = ends.map((end) => places[nodes[end]]);
      // As wide as much has gone there.
      const thick = 2 + (4 * Math.max(...packets)) / busiest;
      svg += `<line class="${up ? (packets[0] + packets[1] ? "used" : "idle") : "down"}" stroke-width="${thick.toFixed(1)}" x1="${a[0]}" y1="${a[1]}" x2="${b[0]}" y2="${b[1]}"/>`;
      for (const end of [0, 1]) {
        if (!used.includes(2 * number + end)) continue;
        const height = (34 * (queues.findLast(({ port }) => port === 2 * number + end)?.bytes ?? 0)) / longest;
        const [from, to] = end ? [b, a] : [a, b];
        const x = from[0] + 0.36 * (to[0] - from[0]), y = from[1] + 0.36 * (to[1] - from[1]);
        svg += `<rect class="room" x="${x - 5}" y="${y - 36}" width="10" height="34"/><rect class="bytes" x="${x - 5}" y="${y - 2 - height}" width="10" height="${height}"/>`;
      }
    });
    for (const name of nodes) {
      const [x, y] = places[name];
      const half = name.length > 1 ? 32 : 15;
      svg += `<rect class="node" x="${x - half}" y="${y - 13}" width="${2 * half}" height="26" rx="5"/><text x="${x}" y="${y + 4}" text-anchor="middle">${name}</text>`;
    }
    this.picture.replaceChildren(drawing(600, 150, svg));
  }

  /** What a reader can cut. */
  drawLinks({ nodes, links }) {
    const shown = links.map(({ ends, up, packets }, number) => ({ ends: ends.map((end) => nodes[end]), up, packets, number })).filter(({ ends }) => !ends.some((name) => NAMES.includes(name)));
    if (!differs(this.links, shown)) return;
    this.links.replaceChildren(...shown.map(({ ends, up, packets, number }) => {
      const button = make("button", up ? "" : "down", `${up ? "Cut" : "Repair"} ${ends.join(" – ")}`);
      button.type = "button";
      button.dataset.link = number;
      button.title = `${packets[0]} packets from ${ends[0]}, ${packets[1]} from ${ends[1]}`;
      button.addEventListener("click", () => this.act({ do: "link", link: number, up: !up }));
      return button;
    }));
  }

  drawPlots(ports, used, { view, queues, pauses, events, setup }) {
    const { height, left, right, top, bottom } = QUEUE;
    const width = Math.max(this.plots.clientWidth, 300);
    const changes = [...queues, ...pauses].map(({ at }) => at);
    const [first, last] = ends(changes);
    const begin = Math.max(first - 5_000, 0);
    // Where nothing waits for long, the plot ends.
    const end = Math.max(Math.min(view.now, last + (last - begin) / 5), last, begin + 1000);
    const x = (at) => left + ((Math.min(at, end) - begin) / (end - begin)) * (width - left - right);
    const most = 1.08 * Math.max(ends(queues.map(({ bytes }) => bytes))[1], 1000);
    const y = (bytes) => top + (1 - bytes / most) * (height - top - bottom);
    const times = [begin, (begin + end) / 2, end].map((at, place) => `<text x="${x(at)}" y="${height - 6}" text-anchor="${["start", "middle", "end"][place]}">${(at / 1000).toFixed(0)} µs</text>`).join("");
    const lost = events.filter(({ what, text }) => what === "wire" && text.includes("is lost at"));
    for (const port of used) {
      const { own, peer } = ports[port];
      const samples = queues.filter((queue) => queue.port === port);
      let svg = [0, most / 2.16, most / 1.08].map((bytes) => `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(bytes)}" y2="${y(bytes)}"/><text x="${left - 6}" y="${y(bytes) + 4}" text-anchor="end">${kilobytes(bytes)}</text>`).join("");
      if (setup.mark_at && setup.mark_at < most) svg += `<line class="marks" x1="${left}" x2="${width - right}" y1="${y(setup.mark_at)}" y2="${y(setup.mark_at)}"/><text x="${width - right - 4}" y="${y(setup.mark_at) - 4}" text-anchor="end">marks above ${kilobytes(setup.mark_at)}</text>`;
      svg += `<path class="queue" d="${steps(samples, x, y, begin, end)}"/>`;
      const here = lost.filter(({ text }) => text.includes(`at ${named(own)}:`));
      for (const place of new Set(here.map(({ at }) => Math.round(x(at))))) svg += `<path class="lost" d="M${place - 3} ${top - 3}l6 6m0 -6l-6 6"/>`;
      const peak = samples.reduce((high, sample) => (sample.bytes > high.bytes ? sample : high));
      const words = `${samples.at(-1).bytes} bytes wait; at most ${peak.bytes}, at ${micros(peak.at)}${here.length ? `; ${here.length} packets lost at ${named(own)}` : ""}`;
      this.plots.append(make("h3", "", `Queue of ${named(own)} to ${named(peer)}`), drawing(width, height, svg + times), make("p", "words", words));
    }
    this.drawPauses(ports, pauses, { x, width, end });
  }

  drawPauses(ports, pauses, { x, width, end }) {
    const paused = [...new Set(pauses.map(({ port }) => port))].sort((a, b) => a - b);
    if (!paused.length) return;
    let svg = "";
    const words = make("ul", "");
    paused.forEach((port, row) => {
      const spans = [];
      for (const { at, paused: begins } of pauses.filter((pause) => pause.port === port)) {
        if (begins) spans.push([at, null]);
        else if (spans.length) spans.at(-1)[1] ??= at;
      }
      const at = 6 + 20 * row;
      svg += `<text x="${QUEUE.left - 6}" y="${at + 11}" text-anchor="end">${ports[port].own}</text>`;
      for (const [from, to] of spans) svg += `<rect class="paused" x="${x(from)}" y="${at}" width="${Math.max(x(to ?? end) - x(from), 1)}" height="14"/>`;
      const all = spans.reduce((sum, [from, to]) => sum + ((to ?? end) - from), 0);
      const first = spans[0][1] ? `from ${micros(spans[0][0])} to ${micros(spans[0][1])}` : `from ${micros(spans[0][0])} on`;
      words.append(make("li", "", `${ports[port].own} must not send to ${named(ports[port].peer)}: ${spans.length} times, first ${first}, ${micros(all)} in all`));
    });
    this.plots.append(make("h3", "", "Paused ports"), drawing(width, 10 + 20 * paused.length, svg), words);
  }
}

/** The least and the greatest, of however many. */
function ends(numbers) {
  return numbers.reduce(([low, high], number) => [Math.min(low, number), Math.max(high, number)], [Infinity, 0]);
}

/** A path through samples: of those that fall on one place, the greatest and the last. */
function steps(samples, x, y, begin, end) {
  let path = `M${x(begin).toFixed(1)} ${y(0).toFixed(1)}`;
  for (let at = 0; at < samples.length; ) {
    const place = Math.round(x(samples[at].at));
    let high = 0;
    for (; at < samples.length && Math.round(x(samples[at].at)) === place; at++) high = Math.max(high, samples[at].bytes);
    path += `H${place}V${y(high).toFixed(1)}V${y(samples[at - 1].bytes).toFixed(1)}`;
  }
  return `${path}H${x(end).toFixed(1)}V${y(0).toFixed(1)}Z`;
}

function drawing(width, height, svg) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("aria-hidden", "true");
  picture.innerHTML = svg;
  return picture;
}

const named = (node) => (node === "switch" ? "the switch" : node);
const kilobytes = (bytes) => (bytes ? `${(bytes / 1000).toFixed(bytes < 10_000 ? 1 : 0)} kB` : "0");
const micros = (ns) => `${(ns / 1000).toFixed(1)} µs`;
