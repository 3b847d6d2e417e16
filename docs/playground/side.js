// A NIC and its application: queues, PSNs, timer, memory, and the form by which work is posted.

const OPS = { send: "SEND", write: "WRITE", read: "READ", fetch_add: "Fetch-and-add", compare_swap: "Compare-and-swap", bind: "Bind", invalidate: "Invalidate", send_invalidate: "SEND with Invalidate" };

class SideView {
  constructor(box, number, engine, act) {
    this.box = box;
    this.number = number;
    this.engine = engine;
    box.append($("side-template").content.cloneNode(true));
    const $$ = (selector) => box.querySelector(selector);
    $$("h2").textContent = `NIC ${NAMES[number]}`;
    // The end of a connection that is shown; the NIC in the middle may have several.
    this.end = number;
    this.which = $$(".which select");
    this.which.addEventListener("change", () => {
      this.end = Number(this.which.value);
      this.set(this.view);
    });
    $$(".connect").addEventListener("click", () => act({ do: "connect", end: this.end }));
    $$(".disconnect").addEventListener("click", () => act({ do: "disconnect", end: this.end }));
    $$(".post").addEventListener("submit", (event) => {
      event.preventDefault();
      const { end } = this;
      const form = event.target.elements;
      const number = (name) => Number(form[name].value);
      if (form.op.value === "recv") return act({ do: "recv", end, len: number("len") });
      const post = { do: "post", end, op: form.op.value, len: number("len"), local: number("local"), remote: number("remote"), sges: number("sges") };
      if (form.imm.value !== "") post.imm = number("imm");
      if (/fetch_add|compare_swap/.test(post.op)) (post.operand = number("operand")), (post.compare = number("compare"));
      if (number("times") !== 1) post.times = number("times");
      for (const flag of ["inline", "unsignaled", "fence", "window", "wrong_key", "read_only"]) if (form[flag].checked) post[flag] = true;
      act(post);
    });
    $$(".poll").addEventListener("click", () => act({ do: "poll", end: this.end }));
    $$(".from").addEventListener("change", () => this.memory());
    $$(".memory").setAttribute("aria-label", `Memory of ${NAMES[number]}`);
  }

  set(view) {
    this.view = view;
    const side = view.sides[this.number];
    this.box.hidden = !side;
    if (!side) return (this.side = null);
    this.side = side;
    this.choose(view.ends);
    const [end, peer] = [view.ends[this.end], view.ends[this.end ^ 1]];
    const $$ = (selector) => this.box.querySelector(selector);
    list($$(".state"), [
      ["Address", side.address], ["QP", `0x${end.qpn.toString(16).padStart(6, "0")}`], ["State", end.state],
      ...(end.connection ? [["Connection", end.connection]] : []),
      ["Expects PSN", end.expected_psn], ["Messages taken (MSN)", end.msn],
      ["Retries left", end.retries_left], ["Timer", "none"],
      ...(end.rnr_wait ? [["Waits", "receiver not ready"]] : []),
      ...(end.rate == null ? [] : [["Rate", `${((end.rate * 8) / 1e9).toFixed(2)} Gbit/s`]]),
    ]);
    this.timer = [...$$(".state").children].find((part) => part.textContent === "Timer").nextSibling;
    this.fires = side.timer == null ? null : view.now + side.timer;
    this.tick(view.now);
    // Who has a server does not ask for a connection.
    $$(".connection").hidden = !view.managed;
    $$(".connect").hidden = this.end % 2 === 1;
    psns($$(".psns"), end, peer);
    fill($$(".keys"), keys(side));
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

  /** Timers count down while time passes between two steps. */
  tick(clock) {
    if (!this.side) return;
    const text = this.fires == null ? "none" : duration(Math.max(Math.round(this.fires - clock), 0));
    if (this.timer.textContent !== text) this.timer.textContent = text;
  }

  choose(ends) {
    const own = ends.flatMap((end, number) => (end.side === this.number ? [number] : []));
    if (!own.includes(this.end)) this.end = own[0];
    if (this.which.options.length !== own.length) this.which.replaceChildren(...own.map((end) => new Option(NAMES[ends[end ^ 1].side], end)));
    this.which.value = this.end;
    this.which.parentElement.hidden = own.length < 2;
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
  if (!differs(box, pairs)) return;
  box.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", String(value))]));
}

/** Whether something else is to be shown than before; most of it stays from one step to the next. */
function differs(box, shown) {
  const text = JSON.stringify(shown);
  return box.shown !== text && ((box.shown = text), true);
}

/** What is at the front of a long queue. */
const SHOWN = 8;
function fill(box, items) {
  if (!differs(box, items)) return;
  const rows = items.slice(0, SHOWN).map(([text, name]) => make("li", name ?? "", text));
  if (items.length > SHOWN) rows.push(make("li", "none", `and ${items.length - SHOWN} more`));
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

/** What peers may do to the memory, and under which key. */
function keys({ rkey, window: { rkey: key, bound, offset, len, write, qpn } }) {
  const hex = (value, digits) => `0x${value.toString(16).padStart(digits, "0")}`;
  const opens = bound
    ? `bytes ${offset} to ${offset + len - 1}, ${write ? "READ and WRITE" : "READ"}, through QP ${hex(qpn, 6)}`
    : "not bound: it opens nothing";
  return [[`${hex(rkey, 8)}: the region, all of it`], [`${hex(key, 8)}: the window, ${opens}`, bound ? "" : "none"]];
}
