// Packets between the NICs, where they are now.

/** Of many in one direction, those that arrive first are drawn. The others are on the ladder. */
const DRAWN = 24;

class Wire {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    this.chips = new Map();
    this.lanes = new Map();
  }

  /** One lane for each direction of each connection. */
  layOut(ends, delay) {
    this.delay = delay;
    const pairs = [];
    for (let end = 0; end < ends.length; end += 2) {
      pairs.push([ends[end].side, ends[end + 1].side], [ends[end + 1].side, ends[end].side]);
    }
    if (pairs.join() === this.pairs) return;
    this.pairs = pairs.join();
    this.chips.clear();
    this.lanes.clear();
    this.box.replaceChildren();
    for (const [from, to] of pairs) {
      const [left, right] = from === 1 ? [to, from] : [from, to];
      const lane = make("div", `lane ${from === 1 ? "to-left" : "to-right"}`, make("b", "", NAMES[left]), make("b", "", NAMES[right]));
      lane.append(make("span", "behind"));
      lane.setAttribute("role", "group");
      lane.setAttribute("aria-label", `From ${NAMES[from]} to ${NAMES[to]}`);
      this.lanes.set(`${from},${to}`, lane);
      this.box.append(lane);
    }
  }

  draw(packets, flying, clock, chosen) {
    // The way is as long as the packet that takes longest needs.
    const longest = {};
    const way = (packet) => `${packet.from},${packet.to}`;
    const underWay = {};
    for (const id of flying) {
      const packet = packets[id];
      longest[way(packet)] = Math.max(longest[way(packet)] ?? this.delay, packet.at - packet.sent);
      (underWay[way(packet)] ??= []).push(id);
    }
    const shown = new Set();
    for (const [way, lane] of this.lanes) {
      const ids = (underWay[way] ?? []).sort((a, b) => packets[a].at - packets[b].at);
      for (const id of ids.slice(0, DRAWN)) shown.add(id);
      if (ids.includes(chosen)) shown.add(chosen);
      const behind = ids.length > DRAWN ? `and ${ids.length - DRAWN} more` : "";
      const note = lane.querySelector(".behind");
      if (note.textContent !== behind) note.textContent = behind;
    }
    for (const [id, chip] of this.chips) if (!shown.has(id)) (chip.remove(), this.chips.delete(id));
    for (const id of shown) {
      const packet = packets[id];
      let chip = this.chips.get(id);
      if (!chip) {
        chip = make("button", "", "");
        chip.dataset.packet = id;
        // Those in front lie on top of those behind them.
        chip.style.zIndex = 1_000_000 - id;
        chip.addEventListener("click", () => this.choose(id));
        this.chips.set(id, chip);
        // In the order of the packets, for those who do not see where they are.
        const lane = this.lanes.get(way(packet));
        lane?.insertBefore(chip, [...lane.querySelectorAll(".chip")].find((other) => Number(other.dataset.packet) > id) ?? null);
      }
      const part = Math.min(Math.max(1 - (packet.at - clock) / longest[way(packet)], 0), 1);
      const name = `chip ${kind(packet)}${id === chosen ? " chosen" : ""}`;
      if (chip.className !== name) chip.className = name;
      const label = `${packet.message ? packet.opcode : packet.psn}${packet.ce ? " CE" : ""}`;
      if (chip.textContent !== label) {
        chip.textContent = label;
        chip.setAttribute("aria-label", words(packet));
      }
      chip.style.left = `${100 * (packet.from === 1 ? 1 - part : part)}%`;
    }
  }
}
