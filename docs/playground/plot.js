// The rates of all QPs over time, on a logarithmic scale: cutting in half is a step of the same height everywhere.

const PLOT = { height: 190, left: 74, right: 12, top: 10, bottom: 24 };

class Plot {
  constructor(box) {
    this.box = box;
    this.inner = box.querySelector(".plot");
  }

  draw(rates, view, fastest) {
    this.box.hidden = !rates.length;
    if (!rates.length) return;
    const { height, left, right, top, bottom } = PLOT;
    const width = Math.max(this.inner.clientWidth, 300);
    const slowest = 10_000_000;
    const begin = Math.max(rates[0].at - 20_000, 0);
    const end = Math.max(view.now, rates.at(-1).at + 1000);
    const x = (at) => left + ((at - begin) / (end - begin)) * (width - left - right);
    const y = (bits) => top + (1 - Math.log(Math.max(bits, slowest) / slowest) / Math.log(fastest / slowest)) * (height - top - bottom);
    const bits = ({ rate }) => (rate == null ? fastest : Math.min(rate * 8, fastest));
    let svg = "";
    for (let line = slowest; line <= fastest; line *= 10) {
      svg += `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(line)}" y2="${y(line)}"/><text x="${left - 6}" y="${y(line) + 4}" text-anchor="end">${speed(line)}</text>`;
    }
    for (const at of [begin, (begin + end) / 2, end]) {
      svg += `<text x="${x(at)}" y="${height - 6}" text-anchor="${at === begin ? "start" : at === end ? "end" : "middle"}">${(at / 1000).toFixed(0)} µs</text>`;
    }
    const words = [];
    view.ends.forEach(({ side }, number) => {
      const own = rates.filter((rate) => rate.end === number);
      if (!own.length) return;
      let path = `M${x(begin).toFixed(1)} ${y(fastest)}`;
      for (const rate of own) path += `H${x(rate.at).toFixed(1)}V${y(bits(rate)).toFixed(1)}`;
      svg += `<path class="end-${number}" d="${path}H${x(end).toFixed(1)}"/>`;
      const lowest = own.reduce((low, rate) => (bits(rate) < bits(low) ? rate : low));
      words.push(make("li", `end-${number}`, `${NAMES[side]}: now ${speed(bits(own.at(-1)))}, since ${(own.at(-1).at / 1000).toFixed(1)} µs; lowest ${speed(bits(lowest))} at ${(lowest.at / 1000).toFixed(1)} µs`));
    });
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-hidden", "true");
    picture.innerHTML = svg;
    this.inner.replaceChildren(picture, make("ul", "", ...words));
  }
}

function speed(bits) {
  return bits >= 1e9 ? `${(bits / 1e9).toFixed(bits % 1e9 ? 2 : 0)} Gbit/s` : `${(bits / 1e6).toFixed(bits % 1e6 ? 1 : 0)} Mbit/s`;
}
