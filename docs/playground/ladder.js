// All packets between the life lines. Only the rows in sight are in the document, so that thousands cost nothing.

const ROW = 30;

class Ladder {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    this.packets = [];
    this.rows = new Map();
    this.chosen = null;
    this.spacer = make("div");
    box.append(this.spacer);
    this.heads = make("div", "heads");
    this.heads.setAttribute("aria-hidden", "true");
    box.before(this.heads);
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(box);
    box.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by || !this.packets.length) return;
      event.preventDefault();
      const next = Math.min(Math.max((this.chosen ?? (by > 0 ? -1 : 0)) + by, 0), this.packets.length - 1);
      this.choose(next);
      this.show(next);
      this.rows.get(next)?.focus();
    });
  }

  /** How many NICs there are: with three, the one to which both others send is in the middle. */
  lines(count) {
    if (this.count === count) return;
    this.count = count;
    for (const id of [...this.rows.keys()]) this.forget(id);
    const names = count === 3 ? ["A", "B", "C"] : ["A", "B"];
    this.heads.replaceChildren(...names.map((name) => make("b", "", name)));
  }

  set(packets, changed) {
    const grown = packets.length > this.packets.length;
    const atEnd = this.box.scrollTop + this.box.clientHeight > this.spacer.offsetHeight - 2 * ROW;
    this.packets = packets;
    for (const id of changed) this.forget(id);
    for (const id of this.rows.keys()) if (id >= packets.length) this.forget(id);
    this.spacer.style.height = `${packets.length * ROW}px`;
    if (grown && atEnd) this.box.scrollTop = this.spacer.offsetHeight;
    this.draw();
  }

  select(id) {
    this.rows.get(this.chosen)?.classList.remove("chosen");
    this.chosen = id;
    this.rows.get(id)?.classList.add("chosen");
  }

  show(id) {
    const top = id * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    this.draw();
  }

  forget(id) {
    this.rows.get(id)?.remove();
    this.rows.delete(id);
  }

  draw() {
    const first = Math.max(Math.floor(this.box.scrollTop / ROW) - 3, 0);
    const last = Math.min(first + Math.ceil(this.box.clientHeight / ROW) + 6, this.packets.length);
    for (const id of [...this.rows.keys()]) if (id < first || id >= last) this.forget(id);
    // In the order of the packets, for those who do not see where they are.
    for (let id = last - 1, next = null; id >= first; next = this.rows.get(id--)) {
      if (this.rows.has(id)) continue;
      const row = this.row(this.packets[id]);
      this.rows.set(id, row);
      this.box.insertBefore(row, next);
    }
    if (!this.packets.length && !this.hint) {
      this.hint = make("p", "empty", "Nothing has been sent. Post a receive at B and a SEND at A, and step.");
      this.box.append(this.hint);
    } else if (this.packets.length && this.hint) {
      this.hint.remove();
      this.hint = null;
    }
  }

  row(packet) {
    const places = this.count === 3 ? [1, 50, 99] : [1, 99];
    const [from, to] = [places[packet.from], places[packet.to]];
    const right = from < to;
    const row = make("button", `row ${kind(packet)} ${packet.fate}`);
    if (packet.done.includes("damaged")) row.classList.add("damaged");
    if (packet.id === this.chosen) row.classList.add("chosen");
    row.style.top = `${packet.id * ROW}px`;
    row.tabIndex = -1;
    row.dataset.packet = packet.id;
    row.setAttribute("aria-label", `${NAMES[packet.from]} to ${NAMES[packet.to]}: ${words(packet)}, sent at ${duration(packet.sent)}, ${packet.fate}`);
    if (this.count === 3) row.classList.add(Math.max(from, to) === 99 ? "far" : "near");
    const end = packet.fate === "lost" ? 0.6 * (to - from) + from : packet.fate === "flying" ? (from + to) / 2 : to;
    const head = packet.fate === "lost"
      ? `<path d="M-5 -5L5 5M5 -5L-5 5" stroke-width="2.5"/>`
      : packet.fate === "flying" ? "" : `<path d="${right ? "M0 0L-8 -4V4Z" : "M0 0L8 -4V4Z"}" stroke="none"/>`;
    row.innerHTML = `<svg aria-hidden="true">${places.map((x) => `<line class="life" x1="${x}%" x2="${x}%" y1="0" y2="30"/>`).join("")}` +
      `<line class="arrow" x1="${from}%" y1="21" x2="${end}%" y2="24"/><svg x="${end}%" y="24">${head}</svg></svg>`;
    const when = make("span", "when", duration(packet.sent));
    row.append(when, make("span", "what", words(packet)));
    row.addEventListener("click", () => this.choose(packet.id));
    return row;
  }
}
