// A NIC and its application: queues, PSNs, timer, memory, and the form by which work is posted.

const OPS = { send: "SEND", write: "WRITE", read: "READ", fetch_add: "Fetch-and-add", compare_swap: "Compare-and-swap" };

class SideView {
  constructor(box, number, engine, act) {
    this.box = box;
    this.number = number;
    this.engine = engine;
    box.append($("side-template").content.cloneNode(true));
    const $$ = (selector) => box.querySelector(selector);
    $$("h2").textContent = `NIC ${NAMES[number]}`;
    // The first end of each connection is at A, the second at B.
    const end = number;
    $$(".post").addEventListener("submit", (event) => {
      event.preventDefault();
      const form = event.target.elements;
      const number = (name) => Number(form[name].value);
      if (form.op.value === "recv") return act({ do: "recv", end, len: number("len") });
      const post = { do: "post", end, op: form.op.value, len: number("len"), local: number("local"), remote: number("remote"), sges: number("sges") };
      if (form.imm.value !== "") post.imm = number("imm");
      if (/fetch_add|compare_swap/.test(post.op)) (post.operand = number("operand")), (post.compare = number("compare"));
      for (const flag of ["inline", "unsignaled", "fence", "wrong_key"]) if (form[flag].checked) post[flag] = true;
      act(post);
    });
    $$(".poll").addEventListener("click", () => act({ do: "poll", end }));
    $$(".from").addEventListener("change", () => this.memory());
    $$(".memory").setAttribute("aria-label", `Memory of ${NAMES[number]}`);
  }

  set(side, end, peer) {
    this.side = side;
    const $$ = (selector) => this.box.querySelector(selector);
    list($$(".state"), [
      ["Address", side.address], ["QP", `0x${end.qpn.toString(16).padStart(6, "0")}`], ["State", end.state],
      ["Expects PSN", end.expected_psn], ["Messages taken (MSN)", end.msn],
      ["Retries left", end.retries_left], ["Timer", side.timer == null ? "none" : duration(side.timer)],
      ...(end.rnr_wait ? [["Waits", "receiver not ready"]] : []),
      ...(end.rate == null ? [] : [["Rate", `${((end.rate * 8) / 1e9).toFixed(2)} Gbit/s`]]),
    ]);
    psns($$(".psns"), end, peer);
    fill($$(".sends"), end.sends.map(([wr, op]) => [`wr_id ${wr}: ${OPS[op]}`]));
    fill($$(".receives"), end.receives.map(([wr, len]) => [`wr_id ${wr}: ${len} bytes`]));
    fill($$(".completions"), side.completions.map((done) => [
      `wr_id ${done.wr_id}: ${done.opcode}, ${done.status}, ${done.bytes} bytes${done.imm == null ? "" : `, immediate ${done.imm}`}`,
      done.status === "Success" ? "" : "failed",
    ]));
    $$(".poll").disabled = !side.completions.length;
    list($$(".counters"), side.counters);
    // Where bytes have changed last; elsewhere for as long as the reader wants to look there.
    if (side.changed.length || side.changed_at !== this.changedAt) {
      this.changedAt = side.changed_at;
      $$(".from").value = Math.min(side.changed_at & ~127, 16256);
    }
    this.memory();
  }

  memory() {
    const from = Math.max(Number(this.box.querySelector(".from").value) || 0, 0);
    const { hex } = this.engine.ask({ ask: "memory", side: this.number, offset: from, len: 128 });
    let html = "";
    for (let row = 0; row < hex.length / 16; row++) {
      html += `<span>${(from + 8 * row).toString().padStart(5)}</span> `;
      for (let at = from + 8 * row; at < from + 8 * row + 8; at++) {
        const byte = hex.slice(2 * (at - from), 2 * (at - from) + 2);
        const lit = this.side.changed.some(([offset, len]) => at >= offset && at < offset + len);
        html += lit ? `<mark>${byte}</mark> ` : `${byte} `;
      }
      html += "\n";
    }
    const box = this.box.querySelector(".memory");
    if (box.innerHTML !== html) box.innerHTML = html;
  }
}

function list(box, pairs) {
  box.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", String(value))]));
}

function fill(box, items) {
  const rows = items.map(([text, name]) => make("li", name ?? "", text));
  box.replaceChildren(...(rows.length ? rows : [make("li", "none", "empty")]));
}

/** What has been acknowledged, and what is under way: the last PSNs that matter. */
function psns(box, end, peer) {
  const ahead = (from, to) => (to - from) & 0xffffff;
  const open = ahead(end.una, end.send_psn);
  const known = Math.min(ahead(end.una, peer.expected_psn), open);
  const part = (count) => `${(100 * count) / Math.max(open, 8)}%`;
  const bar = make("div", "bar", make("i", "open"), make("i", "done"));
  bar.children[0].style.width = part(open);
  bar.children[1].style.width = part(known);
  const text = open
    ? `${open > 1 ? `${end.una} to ` : ""}${(end.send_psn - 1) & 0xffffff} not acknowledged; the peer has ${known} of ${open}`
    : `all acknowledged; next is ${end.send_psn}`;
  box.replaceChildren(bar, make("p", "", text));
}
