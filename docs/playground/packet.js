// One packet: its bytes, its fields, and what can be done to it.

class PacketView {
  constructor(box, engine, act) {
    this.box = box;
    this.engine = engine;
    this.act = act;
  }

  show(id) {
    this.box.hidden = id == null;
    if (id == null) return;
    const { packet, layers, hex } = this.engine.ask({ ask: "packet", id });
    const title = make("h2", "", `${NAMES[packet.from]} to ${NAMES[packet.to]}: ${words(packet)}`);
    const does = make("div", "does");
    if (packet.fate === "flying") {
      const bth = layers.find((layer) => layer.name === "bth")?.start ?? 28;
      const psn = 8 * 12 - 1;
      for (const [what, label, more] of [
        ["drop", "Drop", {}], ["duplicate", "Duplicate", {}], ["delay", "Delay by 20 µs", { ns: 20_000 }],
        ["mark", "Mark CE", {}], ["flip", "Flip a bit", { bit: psn }],
      ]) {
        const button = make("button", "", label);
        button.dataset.does = what;
        button.addEventListener("click", () => this.act({ do: what, packet: id, ...(what === "flip" ? { bit: this.bit ?? psn } : more) }));
        does.append(button);
      }
      this.start = bth * 8;
    } else {
      does.append(packet.fate === "lost" ? "It was lost." : `It arrived at ${duration(packet.at)}.`);
    }
    this.bit = null;
    const bytes = make("div", "bytes");
    bytes.setAttribute("aria-label", "Bytes from the IP header on");
    const shown = Math.min(hex.length / 2, 320);
    for (let at = 0; at < shown; at++) bytes.append(make("span", "", hex.slice(2 * at, 2 * at + 2)), " ");
    if (shown < hex.length / 2) bytes.append(` and ${hex.length / 2 - shown} more`);
    const spans = bytes.querySelectorAll("span");
    const list = make("div", "layers");
    for (const layer of layers) {
      const part = make("div", "layer", make("h3", "", layer.name));
      for (const field of layer.fields) {
        const value = field.meaning ? `${field.value} (${field.meaning})` : field.value;
        const row = make("button", "field", make("span", "", field.name.replaceAll("_", " ")), make("span", "", value.length > 70 ? `${value.slice(0, 70)}…` : value));
        const light = () => {
          for (const on of this.box.querySelectorAll(".on")) on.classList.remove("on");
          row.classList.add("on");
          if (!field.bits) return;
          const [first, count] = field.bits;
          for (let at = first >> 3; at <= (first + count - 1) >> 3; at++) spans[at]?.classList.add("on");
          // "Flip a bit" takes the last one of the field that is lit, where the ICRC covers it.
          this.bit = first >= this.start ? first + count - 1 - this.start : null;
        };
        row.addEventListener("click", light);
        row.addEventListener("mouseenter", light);
        row.addEventListener("focus", light);
        part.append(row);
      }
      list.append(part);
    }
    this.box.replaceChildren(title, does, bytes, list);
  }
}
